"""Fit a trained preset's last convolution anew, by least squares, on clips as they are upscaled.

Steps learn from short clips and small crops, against a goal that is smoother than HR. What the last
convolution makes of the features can be put right for whole segments and HR itself in one pass over
the clips: it is linear, so its best weights follow from sums of products (`least_squares`).
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from operator import add

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.data.clips import Clip
from vsrkit.data.random_degradation import Degrader
from vsrkit.errors import VsrkitError
from vsrkit.evaluate.metrics import Y_SHARES
from vsrkit.hardware.precision import Precision
from vsrkit.models.layers.blocks import upsample_bilinear
from vsrkit.models.vsrt_small import SMALLEST_SIDE, DirectTail, VSRTSmall
from vsrkit.train.distill.least_squares import Sums, fit, sums_of
from vsrkit.train.losses import FLOOR
from vsrkit.train.validate import Held, piece_of

FRAMES = 20  # of each clip: as many as are upscaled at once, and
CROP = 144  # as large a part of them (LR pixels) as hardly needs memory
SAMPLES = 3000  # pixels of each frame
# Of the mean square feature: it holds the weights near to what they were, where clips tell little.
# Of 1e-4 to 0.1 this was the best for clips that were not seen.
DAMPING = 0.1
# Of the way that brightness goes: least squares knows nothing of steadiness, and gives it up. Half
# of what is gained in PSNR is gained here; colours, whose change is hardly seen, go the whole way.
BRIGHTNESS = 0.3


@torch.no_grad()
def refit(model: nn.Module, pieces: Iterable[Held], precision: Precision, device: str) -> None:
    """Move the last convolution to where the error on the pieces is least; each counts alike."""
    conv = last_convolution(model)
    sums = reduce(add, (sums_of_piece(model, piece, precision, device) for piece in pieces))
    found = fit(sums, list(range(sums.channels)), damping=DAMPING)
    conv.weight += held_back(found.weight).to(conv.weight)
    conv.bias += held_back(found.bias).to(conv.weight)  # type: ignore[operator]


def held_back(change: Tensor) -> Tensor:
    """What changes R, G and B (3 x n outputs in the first axis), brightness for its share only."""
    colours = change.unflatten(0, (3, -1))
    brightness = torch.tensordot(Y_SHARES.to(change), colours, dims=1)
    return (colours - (1 - BRIGHTNESS) * brightness).flatten(0, 1)


def last_convolution(model: nn.Module) -> nn.Conv2d:
    """The one that makes a preset's frames."""
    if not isinstance(model, VSRTSmall):
        raise VsrkitError("refit is for our own presets, vsrt-s and vsrt-m; leave it out")
    return model.tail.conv if isinstance(model.tail, DirectTail) else model.tail.conv_last


def pieces_of(clips: Sequence[Clip], how: Degrader) -> Iterator[Held]:
    """The middle of each clip, one at a time; those too small for a preset are left out."""
    for number, clip in enumerate(clips):
        if min(clip.shape[1:3]) >= how.scale * SMALLEST_SIDE:
            yield piece_of(clip, number, how, FRAMES, CROP)


def sums_of_piece(model: nn.Module, piece: Held, precision: Precision, device: str) -> Sums:
    """What the features go with that is still missing, over the piece's square error."""
    conv, found = last_convolution(model), list[Sums]()
    detail = piece.hr - upsample_bilinear(piece.lr, 4)

    def hear(_: nn.Module, given: tuple[Tensor, ...], answer: Tensor) -> None:
        goal = detail[len(found)][None]
        if conv.out_channels != goal.shape[1]:
            goal = F.pixel_unshuffle(goal, 4)
        missing = goal - answer.float().cpu()
        found.append(sums_of(given[0].float().cpu(), missing, SAMPLES, seed=len(found)))

    handle = conv.register_forward_hook(hear)
    try:  # frame by frame, in order: cores are not shared here
        kind = torch.device(device).type
        with torch.autocast(kind, torch.bfloat16, enabled=precision.dtype == "bfloat16"):
            model(piece.lr[None].to(device))
    finally:
        handle.remove()
    total = reduce(add, found)
    mean_square = total.square / (len(found) * SAMPLES * conv.out_channels)
    return total * (1 / (mean_square + FLOOR))
