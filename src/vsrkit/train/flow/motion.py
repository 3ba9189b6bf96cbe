"""Pairs of LR frames with known motion, made of stills.

The view `b` is a crop of the still. The view `a` shows at each pixel p what `b` shows at
p + flow(p): so the flow from a to b is known exactly, and that from b to a by inverting it. A
second still moves in front of the first on its own, for motion that is not smooth everywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from vsrkit.data.augment import to_clip
from vsrkit.models.layers.flow import warp
from vsrkit.models.layers.resample import imresize

SCALE = 2  # between the stills as given here and the frames made of them


@dataclass(frozen=True, slots=True)
class Moving:
    """A batch of pairs, frames (N, 3, H, W) in [0, 1], flows (N, 2, H, W) in pixels."""

    a: Tensor
    b: Tensor
    a_to_b: Tensor
    b_to_a: Tensor


def moving_pairs(
    stills: Sequence[NDArray[np.uint8]],
    seed: int,
    step: int,
    *,
    batch: int,
    size: int,
    reach: float,
) -> Moving:
    """The batch of a step; `reach` is the largest motion in LR pixels, small ones are commoner."""
    pairs = [
        _pair(stills, np.random.default_rng([seed, step, i]), size, reach) for i in range(batch)
    ]
    return Moving(*(torch.cat(parts) for parts in zip(*pairs, strict=True)))


def _pair(
    stills: Sequence[NDArray[np.uint8]], rng: np.random.Generator, size: int, reach: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """a, b and both flows, one of each."""
    b = _texture(stills, rng, size * SCALE)
    a_to_b = _motion(rng, size, reach)
    a, b_to_a = _moved(b, a_to_b), invert(a_to_b)
    if rng.random() < 0.6:
        front, mask = _texture(stills, rng, size * SCALE), _blob(rng, size)
        flow = a_to_b + _motion(rng, size, reach / 2)
        mask_a = warp(mask, flow)
        a = torch.lerp(a, _moved(front, flow), _enlarged(mask_a))
        b = torch.lerp(b, front, _enlarged(mask))
        a_to_b = torch.where(mask_a > 0.5, flow, a_to_b)
        b_to_a = torch.where(mask > 0.5, invert(flow), b_to_a)
    a, b = (_photographed(rng, imresize(x, Fraction(1, SCALE))) for x in (a, b))
    return (a, b, a_to_b, b_to_a) if rng.random() < 0.5 else (b, a, b_to_a, a_to_b)


def _moved(still: Tensor, flow: Tensor) -> Tensor:
    """The still seen through a flow that is given at the frame's size."""
    return warp(still, SCALE * _enlarged(flow), padding="border")


def _enlarged(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=SCALE, mode="bilinear", align_corners=False)


def _texture(stills: Sequence[NDArray[np.uint8]], rng: np.random.Generator, side: int) -> Tensor:
    """A crop of some still, turned at random: (1, 3, side, side)."""
    still = stills[int(rng.integers(len(stills)))]
    row, column = (int(rng.integers(0, max(1, n - side + 1))) for n in still.shape[:2])
    crop = to_clip(still[None, row : row + side, column : column + side])
    crop = F.pad(crop, (0, side - crop.shape[-1], 0, side - crop.shape[-2]), mode="replicate")
    crop = crop.mT if rng.random() < 0.5 else crop
    return crop.flip(-1) if rng.random() < 0.5 else crop


def _motion(rng: np.random.Generator, side: int, reach: float) -> Tensor:
    """A smooth flow (1, 2, side, side) of up to about `reach` pixels.

    Shift, rotation, zoom, shear and perspective as one polynomial, and a wavy field on top.
    """
    grid = torch.linspace(-1, 1, side)
    y, x = torch.meshgrid(grid, grid, indexing="ij")
    amount = reach * float(np.exp(rng.uniform(np.log(0.01), 0)))
    shift = torch.from_numpy(rng.uniform(-1, 1, (2, 1, 1))).float()
    linear = torch.from_numpy(rng.normal(0, 0.25, (2, 2))).float()
    tilt = torch.from_numpy(rng.normal(0, 0.08, 2)).float()
    across = torch.stack([x, y])
    flow = shift + torch.einsum("ij,jhw->ihw", linear, across)
    flow = flow + across * torch.einsum("j,jhw->hw", tilt, across)
    cells = int(rng.integers(3, 9))
    waves = torch.from_numpy(rng.normal(0, 1, (1, 2, cells, cells))).float()
    waves = F.interpolate(waves, (side, side), mode="bicubic", align_corners=True)
    share = 0.35 * float(rng.random()) * 4 / cells  # finer waves must be lower, or they fold over
    return (flow[None] + share * waves) * amount


def invert(flow: Tensor, iterations: int = 12) -> Tensor:
    """The flow back: g(q) = -f(q + g(q)), by repetition, which converges for smooth flows."""
    back = -flow
    for _ in range(iterations):
        back = -warp(flow, back, padding="border")
    return back


def _blob(rng: np.random.Generator, side: int) -> Tensor:
    """A soft-edged mask (1, 1, side, side) of some random shape that covers a part."""
    noise = torch.from_numpy(rng.normal(0, 1, (1, 1, 5, 5))).float()
    noise = F.interpolate(noise, (side, side), mode="bicubic", align_corners=True)
    return torch.sigmoid(8 * (noise - float(rng.uniform(0, 0.8))))


def _photographed(rng: np.random.Generator, frame: Tensor) -> Tensor:
    """A little of what differs between two frames of a video: exposure and noise."""
    noise = torch.from_numpy(rng.normal(0, 1, frame.shape)).float()
    return frame * float(rng.normal(1, 0.01)) + noise * abs(float(rng.normal(0, 0.006)))
