"""Temporal metrics: flicker and motion errors between consecutive frames.

Motion is estimated by coarse-to-fine Lucas-Kanade, which has no weights: the metrics must not
depend on a flow network, nor favour models that were trained with one.
"""

from dataclasses import dataclass, field
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from vsrkit.evaluate.metrics import luma
from vsrkit.models.layers.flow import warp
from vsrkit.models.layers.resample import resample, tap_matrix

OCCLUDED = 10.0  # grey levels; a larger change of the ground truth along its flow is an occlusion
ALONG_FLOW = frozenset({"warping_error", "warped_flicker", "tof"})
TEMPORAL_METRICS = ALONG_FLOW | {"flicker"}

RADIUS = 7  # pixels; flow is assumed constant in a square of 15 x 15
STEPS = 5  # Gauss-Newton steps on each level of the pyramid
SMALLEST = 24  # pixels of the shorter side on the coarsest level
STIFFNESS = 4.0  # grey levels squared; with less structure, flow is close to the local mean


@dataclass
class Temporal:
    """Compares each frame of a clip with the previous one.

    warping_error: mean squared change of the output along the motion of the ground truth, values
        in [0, 1], without occluded pixels (Lai et al. 2018, with our flow).
    warped_flicker: the same for the output's error, that is its difference from the ground truth.
        A blurred clip has a low warping error because it has fewer details that could change;
        its warped flicker includes the missing ones.
    tof: mean distance in pixels between the flow of the output and that of the ground truth
        (Chu et al. 2020, with our flow).
    flicker: mean absolute difference between the frame-to-frame change of the output and that of
        the ground truth at a fixed pixel, in 1/255 of luma.
    """

    names: frozenset[str]
    previous: tuple[Tensor, Tensor] | None = field(default=None)

    def measure(self, sr: Tensor, hr: Tensor) -> dict[str, float]:
        """Score a frame (3, H, W) against the previous one; empty for the first of a clip."""
        now = (sr.float().clamp(0, 1), hr.float())
        before, self.previous = self.previous, now
        if before is None:
            return {}
        y_sr, y_hr, y_sr_before, y_hr_before = (luma(x * 255) for x in (*now, *before))
        scores = {}
        if "flicker" in self.names:
            change = (y_sr - y_sr_before) - (y_hr - y_hr_before)
            scores["flicker"] = float(change.abs().mean())
        if self.names & ALONG_FLOW:
            flow = estimate_flow(y_hr, y_hr_before)
            visible = (y_hr - _warped(y_hr_before, flow)).abs()[0] < OCCLUDED
            if "warping_error" in self.names:
                scores["warping_error"] = warping_error(now[0], before[0], flow, visible)
            if "warped_flicker" in self.names:
                wrong, wrong_before = now[0] - now[1], before[0] - before[1]
                scores["warped_flicker"] = warping_error(wrong, wrong_before, flow, visible)
            if "tof" in self.names:
                distance = (estimate_flow(y_sr, y_sr_before) - flow).norm(dim=0)
                scores["tof"] = float(distance.mean())
        return scores


def warping_error(frame: Tensor, before: Tensor, flow_to_prev: Tensor, visible: Tensor) -> float:
    """Mean squared difference between a frame and the previous one along the flow.

    Args:
        frame: (3, H, W).
        before: the previous frame, (3, H, W).
        flow_to_prev: where each pixel of `frame` is in `before`, (2, H, W).
        visible: (H, W); pixels that are False are not counted.
    """
    inside = _warped(torch.ones_like(frame[:1]), flow_to_prev)[0] > 0.999
    error = (frame - _warped(before, flow_to_prev)).square().mean(0)
    mask = inside & visible
    return float(error[mask].mean()) if mask.any() else 0.0


def _warped(x: Tensor, flow: Tensor) -> Tensor:
    return warp(x[None].float(), flow[None])[0]


def estimate_flow(reference: Tensor, neighbour: Tensor) -> Tensor:
    """Estimate where each pixel of `reference` is in `neighbour`.

    Args:
        reference: (1, H, W) luma in 0..255.
        neighbour: the same of another frame.

    Returns:
        (2, H, W) in pixels; channel 0 is u (right), 1 is v (down).
    """
    references, neighbours = _pyramid(reference.float()), _pyramid(neighbour.float())
    flow = reference.new_zeros(1, 2, *references[-1].shape[-2:], dtype=torch.float32)
    for ref, other in zip(reversed(references), reversed(neighbours), strict=True):
        if flow.shape[-2:] != ref.shape[-2:]:
            size = tuple(ref.shape[-2:])
            flow = 2 * F.interpolate(flow, size=size, mode="bilinear", align_corners=False)
        flow = _refine(flow, ref, other)
    return flow[0]


def _pyramid(frame: Tensor) -> list[Tensor]:
    """Return (1, 1, H, W) from fine to coarse, each half the size of the previous one."""
    levels = [frame[None]]
    while min(levels[-1].shape[-2:]) >= 2 * SMALLEST:
        levels.append(F.avg_pool2d(levels[-1], 2))
    return levels


def _refine(flow: Tensor, reference: Tensor, neighbour: Tensor) -> Tensor:
    """Improve the flow by Gauss-Newton steps that reduce the difference after warping."""
    padded = F.pad(reference, (1, 1, 1, 1), mode="replicate")
    dx = (padded[..., 1:-1, 2:] - padded[..., 1:-1, :-2]) / 2
    dy = (padded[..., 2:, 1:-1] - padded[..., :-2, 1:-1]) / 2
    xx, yy = _square_mean(dx * dx) + STIFFNESS, _square_mean(dy * dy) + STIFFNESS
    xy = _square_mean(dx * dy)
    determinant = xx * yy - xy * xy
    for _ in range(STEPS):
        u, v = flow.split(1, dim=1)
        # Solves for the whole flow of a square, not for an update of each pixel's flow: this
        # keeps the flow smooth.
        error = reference - warp(neighbour, flow, padding="border") + dx * u + dy * v
        x = _square_mean(dx * error) + STIFFNESS * _square_mean(u)
        y = _square_mean(dy * error) + STIFFNESS * _square_mean(v)
        flow = torch.cat([yy * x - xy * y, xx * y - xy * x], 1) / determinant
    return flow


def _square_mean(x: Tensor) -> Tensor:
    """Average over a square of 2 * RADIUS + 1 pixels a side, clipped to the frame."""
    height, width = x.shape[-2:]
    return resample(x, _mean_matrix(height), _mean_matrix(width))


@lru_cache(maxsize=32)
@torch.inference_mode(False)
def _mean_matrix(length: int) -> Tensor:
    taps = torch.arange(length)[:, None] + torch.arange(-RADIUS, RADIUS + 1)
    inside = (taps >= 0) & (taps < length)
    return tap_matrix(taps, inside, length, "replicate")
