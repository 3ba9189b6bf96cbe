"""Loss functions, each a module that holds the model: (lr, target) -> named terms.

The loss is the sum of the terms, which are weighted already. The log has each of them, and an error
about NaN names the term.
"""

from typing import Literal, Protocol, TypeAlias, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.errors import VsrkitError
from vsrkit.evaluate.metrics import Y_SHARES
from vsrkit.models.layers.flow import warp
from vsrkit.models.vsrt_small import Flows

LUMA = 0.7  # weight of the squared luma error; the three colours share the rest
FLOOR = 1e-4  # added to square errors before the logarithm; limits the weight of clips above 40 dB
OCCLUDED = 10 / 255  # a pixel whose HR changes more along the motion counts as occluded
Reduction: TypeAlias = Literal["mean", "sum"]
Terms: TypeAlias = dict[str, Tensor]  # scalars by name


def charbonnier(
    sr: Tensor, hr: Tensor, *, eps: float = 1e-12, reduction: Reduction = "mean"
) -> Tensor:
    """Mean or sum of sqrt(d^2 + eps) over all values: an absolute error that is smooth at zero."""
    error = torch.sqrt((sr.float() - hr).square() + eps)
    return error.mean() if reduction == "mean" else error.sum()


class PixelLoss(nn.Module):
    """Charbonnier loss of a model's frames."""

    def __init__(self, model: nn.Module, reduction: Reduction) -> None:
        super().__init__()
        self.model = model
        self.reduction: Reduction = reduction

    def forward(self, lr: Tensor, target: Tensor) -> Terms:
        """(B, T, 3, H, W) and (B, T, 3, sH, sW) -> the term `charbonnier`."""
        sr = self.model(lr)
        hr = matching_frames(target, sr)
        return {"charbonnier": charbonnier(sr, hr, reduction=self.reduction)}


@runtime_checkable
class AlongFlow(Protocol):
    """A model that can be run with given flows."""

    def flows(self, frames: list[Tensor]) -> tuple[Flows, Flows]:
        """Flows to the previous and to the next frame, of frames (B, 3, H, W)."""

    def along(self, frames: list[Tensor], to_prev: Flows, to_next: Flows) -> list[Tensor]:
        """The results (B, 3, sH, sW) with these flows."""


class PsnrLoss(nn.Module):
    """Mean over clips of the logarithm of the square error; luma has most of the weight.

    It is PSNR with the opposite sign: a clip with small errors weighs as much as one with large
    errors.

    Args:
        model: the model; with steadiness, one of the presets, whose flow is used.
        steadiness: weight of the change along the motion, added to the square error.
    """

    def __init__(self, model: nn.Module, *, steadiness: float = 0.0) -> None:
        super().__init__()
        if steadiness and not isinstance(model, AlongFlow):
            raise VsrkitError(
                "steadiness needs the flow of a preset such as vsrt-s; set it to 0 for other models"
            )
        self.model, self.steadiness = model, steadiness

    def forward(self, lr: Tensor, target: Tensor) -> Terms:
        """(B, T, 3, H, W) and (B, T, 3, sH, sW) -> the term `psnr`."""
        return {"psnr": self._log_error(lr, target)}

    def _log_error(self, lr: Tensor, target: Tensor) -> Tensor:
        if not self.steadiness or not isinstance(self.model, AlongFlow) or lr.shape[1] == 1:
            sr = self.model(lr)
            return torch.log(square_error(sr, matching_frames(target, sr)) + FLOOR).mean()
        frames = list(lr.unbind(1))
        to_prev, to_next = self.model.flows(frames)
        sr = torch.stack(self.model.along(frames, to_prev, to_next), 1)
        flow = torch.stack([flow for flow in to_prev if flow is not None], 1)
        error = square_error(sr, target) + self.steadiness * temporal_change(sr, target, flow)
        return torch.log(error + FLOOR).mean()


def matching_frames(hr: Tensor, sr: Tensor) -> Tensor:
    """The frames of `hr` that `sr` has: all of them, or the centre only."""
    if sr.shape[1] == hr.shape[1]:
        return hr
    centre = hr.shape[1] // 2
    return hr[:, centre : centre + 1]


def square_error(sr: Tensor, target: Tensor) -> Tensor:
    """Mean square error of each clip, weighted by `weight_luma`: (B, T, 3, H, W) twice -> (B,)."""
    return weight_luma(sr.float() - target).square().sum(2).mean((1, 2, 3))


def weight_luma(rgb: Tensor) -> Tensor:
    """RGB (B, T, 3, H, W) and luma as a fourth channel, scaled so that its square weighs `LUMA`."""
    shares = Y_SHARES.to(rgb).view(3, 1, 1)
    luma = (rgb * shares).sum(2, keepdim=True)
    return torch.cat([rgb * ((1 - LUMA) / 3) ** 0.5, luma * LUMA**0.5], 2)


def temporal_change(sr: Tensor, hr: Tensor, flow_to_prev: Tensor) -> Tensor:
    """Mean squared change of frames along the motion, without occluded pixels; of each clip: (B,).

    Args:
        sr: output frames (B, T, 3, sH, sW); flicker raises the result.
        hr: HR frames (B, T, 3, sH, sW), by which occluded pixels are found.
        flow_to_prev: (B, T - 1, 2, H, W) of all frames but the first, in its own pixels; H and W
            divide sH and sW.
    """
    scale = sr.shape[-1] // flow_to_prev.shape[-1]
    flow = scale * F.interpolate(
        flow_to_prev.detach().float().flatten(0, 1), scale_factor=scale, mode="bilinear"
    )
    ones = torch.ones_like(hr[:, :, :1])
    before = torch.cat([sr.float(), hr, ones], 2)[:, :-1].flatten(0, 1)
    warped_sr, warped_hr, inside = warp(before, flow).split([3, 3, 1], 1)
    now_sr, now_hr = (x[:, 1:].flatten(0, 1) for x in (sr, hr))
    same = (now_hr - warped_hr).mean(1, keepdim=True).abs() < OCCLUDED
    change = (now_sr - warped_sr).square() * (same & (inside > 0.999))
    return change.unflatten(0, flow_to_prev.shape[:2]).mean((1, 2, 3, 4))
