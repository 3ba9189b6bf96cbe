"""Pairs of LR frames with known motion, made from still images.

Frame `b` is a crop of a still. Pixel p of frame `a` is pixel p + flow(p) of `b`, so the flow from a
to b is exact, and the flow from b to a is its inverse. In some pairs part of a second still moves
independently in front of the first one, so that the motion is not smooth everywhere.
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

SCALE = 2  # stills are this many times as large as the frames made from them


@dataclass(frozen=True, slots=True)
class MotionPairs:
    """A batch of pairs: frames (N, 3, H, W) in [0, 1] and flows (N, 2, H, W) in pixels."""

    a: Tensor
    b: Tensor
    a_to_b: Tensor
    b_to_a: Tensor

    def to(self, device: str) -> "MotionPairs":
        """The same pairs on a device."""
        return MotionPairs(*(x.to(device) for x in (self.a, self.b, self.a_to_b, self.b_to_a)))


def motion_pairs(
    stills: Sequence[NDArray[np.uint8]],
    seed: int,
    step: int,
    *,
    batch: int,
    size: int,
    reach: float,
) -> MotionPairs:
    """The pairs of a step.

    Args:
        stills: images (H, W, 3).
        seed: seed of the run.
        step: number of the step; the result depends on seed and step only.
        batch: number of pairs.
        size: side of the frames in pixels.
        reach: largest motion in pixels; small motion is more frequent.
    """
    pairs = [
        _pair(stills, np.random.default_rng([seed, step, i]), size, reach) for i in range(batch)
    ]
    return MotionPairs(*(torch.cat(parts) for parts in zip(*pairs, strict=True)))


def _pair(
    stills: Sequence[NDArray[np.uint8]], rng: np.random.Generator, size: int, reach: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Frames a and b and the flows from a to b and from b to a, each with a batch axis of 1."""
    b = _texture(stills, rng, size * SCALE)
    a_to_b = _motion(rng, size, reach)
    a, b_to_a = _moved(b, a_to_b), invert(a_to_b)
    if rng.random() < 0.6:
        front, mask = _texture(stills, rng, size * SCALE), _random_mask(rng, size)
        flow = a_to_b + _motion(rng, size, reach / 2)
        mask_a = warp(mask, flow)
        a = torch.lerp(a, _moved(front, flow), _enlarged(mask_a))
        b = torch.lerp(b, front, _enlarged(mask))
        a_to_b = torch.where(mask_a > 0.5, flow, a_to_b)
        b_to_a = torch.where(mask > 0.5, invert(flow), b_to_a)
    a, b = (_with_noise(rng, imresize(x, Fraction(1, SCALE))) for x in (a, b))
    return (a, b, a_to_b, b_to_a) if rng.random() < 0.5 else (b, a, b_to_a, a_to_b)


def _moved(still: Tensor, flow: Tensor) -> Tensor:
    """The still warped by a flow that has the size of the frames."""
    return warp(still, SCALE * _enlarged(flow), padding="border")


def _enlarged(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=SCALE, mode="bilinear", align_corners=False)


def _texture(stills: Sequence[NDArray[np.uint8]], rng: np.random.Generator, side: int) -> Tensor:
    """A random crop of a random still, flipped and transposed at random: (1, 3, side, side)."""
    still = stills[int(rng.integers(len(stills)))]
    row, column = (int(rng.integers(0, max(1, n - side + 1))) for n in still.shape[:2])
    crop = to_clip(still[None, row : row + side, column : column + side])
    crop = F.pad(crop, (0, side - crop.shape[-1], 0, side - crop.shape[-2]), mode="replicate")
    crop = crop.mT if rng.random() < 0.5 else crop
    return crop.flip(-1) if rng.random() < 0.5 else crop


def _motion(rng: np.random.Generator, side: int, reach: float) -> Tensor:
    """A smooth flow (1, 2, side, side) of up to about `reach` pixels.

    The sum of a polynomial (shift, rotation, zoom, shear and perspective) and smooth noise.
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
    share = 0.35 * float(rng.random()) * 4 / cells  # weaker if finer, so that flow is invertible
    return (flow[None] + share * waves) * amount


def invert(flow: Tensor, iterations: int = 12) -> Tensor:
    """The inverse g(q) = -f(q + g(q)) of a smooth flow f, by fixed-point iteration."""
    back = -flow
    for _ in range(iterations):
        back = -warp(flow, back, padding="border")
    return back


def _random_mask(rng: np.random.Generator, side: int) -> Tensor:
    """A mask (1, 1, side, side) of random shape with soft edges."""
    noise = torch.from_numpy(rng.normal(0, 1, (1, 1, 5, 5))).float()
    noise = F.interpolate(noise, (side, side), mode="bicubic", align_corners=True)
    return torch.sigmoid(8 * (noise - float(rng.uniform(0, 0.8))))


def _with_noise(rng: np.random.Generator, frame: Tensor) -> Tensor:
    """The frame with a random small change of exposure and noise."""
    noise = torch.from_numpy(rng.normal(0, 1, frame.shape)).float()
    return frame * float(rng.normal(1, 0.01)) + noise * abs(float(rng.normal(0, 0.006)))
