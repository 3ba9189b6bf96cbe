"""Scores during training: PSNR on Y of held-out clips, as they will be upscaled."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from vsrkit.data.augment import Placement, cut
from vsrkit.data.clips import Clip
from vsrkit.data.random_degradation import Degrader
from vsrkit.evaluate.metrics import mean_psnr_y
from vsrkit.hardware.precision import Precision
from vsrkit.inference.engine import Engine, upscale_frames


@dataclass(frozen=True, slots=True)
class Held:
    """A held-out piece: both sizes, ready to be scored."""

    name: str
    lr: Tensor  # (T, 3, H, W)
    hr: Tensor  # (T, 3, sH, sW)


def held_pieces(
    clips: Sequence[Clip], degradation: Degrader, frames: int, crop: int = 0
) -> list[Held]:
    """The middle `frames` frames of each clip; the same lots are drawn for it every time.

    crop: LR pixels along each side of their middle; 0 takes whole frames.
    """
    return [piece_of(clip, n, degradation, frames, crop) for n, clip in enumerate(clips)]


def piece_of(clip: Clip, number: int, degradation: Degrader, frames: int, crop: int = 0) -> Held:
    """The middle of one clip; its number decides the lots that are drawn for it."""
    h, w = (side // degradation.scale for side in clip.shape[1:3])
    size = t, rows, columns = min(frames, len(clip)), min(crop or h, h), min(crop or w, w)
    middle = Placement((len(clip) - t) // 2, (h - rows) // 2, (w - columns) // 2)
    rng = np.random.default_rng(number)
    return Held(clip.name, *cut(clip.frames, middle, degradation, rng, size))


def score(
    model: nn.Module, pieces: Sequence[Held], precision: Precision, device: str
) -> tuple[float, Tensor]:
    """Mean PSNR on Y in dB over the pieces, and a frame of the first one (3, sH, sW) to look at.

    The two frames at either end of a piece are not scored.
    """
    engine = Engine(model, precision, device, tile=None)
    scores, shown = [], torch.zeros(0)
    for number, piece in enumerate(pieces):
        ends = 2 if len(piece.hr) > 4 else 0
        frames = list(upscale_frames(piece.lr, engine))
        sr = torch.stack(frames[ends : len(frames) - ends])
        scores.append(mean_psnr_y(sr, piece.hr[ends : len(frames) - ends]))
        if number == 0:
            shown = sr[len(sr) // 2]
    return sum(scores) / len(scores), shown
