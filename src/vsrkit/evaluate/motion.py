"""Optical flow without learning, for measuring: coarse-to-fine Lucas-Kanade on whole frames.

A measure must not depend on which network's weights are at hand, or favour those that learnt with
one flow network; this has no weights.
"""

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from vsrkit.models.layers.flow import warp
from vsrkit.models.layers.resample import resample, tap_matrix

RADIUS = 7  # of the square in which the flow is taken to be constant
STEPS = 5  # Gauss-Newton steps on each level of the pyramid
SMALLEST = 24  # pixels of the shorter side on the coarsest level
STIFFNESS = 4.0  # grey steps squared: where there is less structure than this, stay with the mean


def estimate_flow(reference: Tensor, neighbour: Tensor) -> Tensor:
    """Where each pixel of `reference` is in `neighbour`: two (1, H, W) in 0..255 -> (2, H, W).

    Pixels; channel 0 = u (right), 1 = v (down).
    """
    references, neighbours = _pyramid(reference.float()), _pyramid(neighbour.float())
    flow = reference.new_zeros(1, 2, *references[-1].shape[-2:], dtype=torch.float32)
    for ref, other in zip(reversed(references), reversed(neighbours), strict=True):
        if flow.shape[-2:] != ref.shape[-2:]:
            flow = _enlarge(flow, ref)
        flow = _refine(flow, ref, other)
    return flow[0]


def _pyramid(frame: Tensor) -> list[Tensor]:
    """(1, 1, H, W) from fine to coarse, each half the size of the one before."""
    levels = [frame[None]]
    while min(levels[-1].shape[-2:]) >= 2 * SMALLEST:
        levels.append(F.avg_pool2d(levels[-1], 2))
    return levels


def _enlarge(flow: Tensor, frame: Tensor) -> Tensor:
    size = frame.shape[-2:]
    return 2 * F.interpolate(flow, size=tuple(size), mode="bilinear", align_corners=False)


def _refine(flow: Tensor, reference: Tensor, neighbour: Tensor) -> Tensor:
    """Gauss-Newton: the flow of each square that best explains what differs after warping."""
    padded = F.pad(reference, (1, 1, 1, 1), mode="replicate")
    dx = (padded[..., 1:-1, 2:] - padded[..., 1:-1, :-2]) / 2
    dy = (padded[..., 2:, 1:-1] - padded[..., :-2, 1:-1]) / 2
    xx, yy = _square_mean(dx * dx) + STIFFNESS, _square_mean(dy * dy) + STIFFNESS
    xy = _square_mean(dx * dy)
    determinant = xx * yy - xy * xy
    for _ in range(STEPS):
        u, v = flow.split(1, dim=1)
        # Solving for the whole flow of a square, not for a step from each pixel's own flow, is
        # what keeps it smooth.
        error = reference - warp(neighbour, flow, padding="border") + dx * u + dy * v
        x = _square_mean(dx * error) + STIFFNESS * _square_mean(u)
        y = _square_mean(dy * error) + STIFFNESS * _square_mean(v)
        flow = torch.cat([yy * x - xy * y, xx * y - xy * x], 1) / determinant
    return flow


def _square_mean(x: Tensor) -> Tensor:
    """Mean over a square of 2 * RADIUS + 1 pixels a side, of what lies inside the frame."""
    height, width = x.shape[-2:]
    return resample(x, _mean_matrix(height), _mean_matrix(width))


@lru_cache(maxsize=32)
@torch.inference_mode(False)
def _mean_matrix(length: int) -> Tensor:
    taps = torch.arange(length)[:, None] + torch.arange(-RADIUS, RADIUS + 1)
    inside = (taps >= 0) & (taps < length)
    return tap_matrix(taps, inside, length, "replicate")
