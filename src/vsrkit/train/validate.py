"""Scores during training: PSNR on Y of held-out clips, whole frames, as they will be upscaled."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vsrkit.data.augment import to_clip
from vsrkit.data.clips import Clip
from vsrkit.data.degrade import Degradation, degrade, mod_crop
from vsrkit.precision import Precision
from vsrkit.upscale import Engine, upscale_frames


@dataclass(frozen=True, slots=True)
class Held:
    """A held-out piece: both sizes, ready to be scored."""

    name: str
    lr: Tensor  # (T, 3, H, W)
    hr: Tensor  # (T, 3, sH, sW)


def held_pieces(clips: Sequence[Clip], degradation: Degradation, frames: int) -> list[Held]:
    """The middle `frames` frames of each clip."""
    pieces = []
    for clip in clips:
        start = max(0, (len(clip) - frames) // 2)
        hr = mod_crop(to_clip(clip.frames[start : start + frames]), degradation.scale)
        pieces.append(Held(clip.name, degrade(hr, degradation), hr))
    return pieces


def score(model: nn.Module, pieces: Sequence[Held], precision: Precision, device: str) -> float:
    """Mean PSNR on Y in dB over the pieces; the two frames at either end are not scored."""
    engine = Engine(model, precision, device, tile=None)
    scores = []
    for piece in pieces:
        ends = 2 if len(piece.hr) > 4 else 0
        frames = list(upscale_frames(piece.lr, engine))
        sr = torch.stack(frames[ends : len(frames) - ends])
        scores.append(psnr_y(sr, piece.hr[ends : len(frames) - ends]).mean())
    return float(torch.stack(scores).mean())


def psnr_y(sr: Tensor, hr: Tensor) -> Tensor:
    """PSNR of each frame on Y: (N, 3, H, W) twice -> (N,)."""
    weights = torch.tensor([65.481, 128.553, 24.966]).view(3, 1, 1)
    error = (((sr * 255).round() - (hr * 255).round()) / 255 * weights).sum(-3)
    return 10 * torch.log10(255**2 / error.square().mean((-2, -1)).clamp_min(1e-10))
