"""Measures of how a clip moves: what a table of PSNR does not see and every viewer does."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from vsrkit.evaluate.metrics import luma
from vsrkit.evaluate.motion import estimate_flow
from vsrkit.models.layers.flow import warp

OCCLUDED = 10.0  # grey steps: where the ground truth changes more along its flow, it was covered

ALONG_FLOW = frozenset({"warping_error", "warped_flicker", "tof"})


@dataclass
class Temporal:
    """Takes the frames of one clip in order and compares each with the one before.

    warping_error: mean squared change of the output along the motion of the ground truth, values
        in [0, 1], where nothing is covered or uncovered (Lai et al. 2018, with our flow).
    warped_flicker: the same of the output's difference from the ground truth: how its errors come
        and go along the motion. A blurred clip has a low warping error, because what is not there
        cannot change; here it pays for what it lacks.
    tof: mean distance in pixels between the flow of the output and that of the ground truth
        (Chu et al. 2020, with our flow).
    flicker: mean absolute difference between how the output and how the ground truth change from
        frame to frame at a fixed place, in steps of 1/255 of luma.
    """

    names: frozenset[str]
    previous: tuple[Tensor, Tensor] | None = field(default=None)

    def measure(self, sr: Tensor, hr: Tensor) -> dict[str, float]:
        """Scores of this frame (3, H, W) after the previous one; empty for a clip's first."""
        now = (sr.float().clamp(0, 1), hr.float())
        before, self.previous = self.previous, now
        if before is None or not self.names & {*ALONG_FLOW, "flicker"}:
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
    """Mean squared difference of (3, H, W) and `before` along the flow, where `visible` (H, W)."""
    inside = _warped(torch.ones_like(frame[:1]), flow_to_prev)[0] > 0.999
    error = (frame - _warped(before, flow_to_prev)).square().mean(0)
    mask = inside & visible
    return float(error[mask].mean()) if mask.any() else 0.0


def _warped(x: Tensor, flow: Tensor) -> Tensor:
    return warp(x[None].float(), flow[None])[0]
