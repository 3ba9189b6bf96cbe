"""What training minimises."""

from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.errors import VsrkitError
from vsrkit.evaluate.metrics import Y_SHARES
from vsrkit.models.layers.flow import warp
from vsrkit.models.vsrt_small import VSRTSmall

LUMA = 0.7  # weight of brightness, beside that of the three colours together
FLOOR = 1e-4  # 40 dB: what is nearer to its goal than that counts no more
COVERED = 10 / 255  # where HR changes more along the motion, something was covered or uncovered
Reduction: TypeAlias = Literal["mean", "sum"]


def charbonnier(
    sr: Tensor, hr: Tensor, *, eps: float = 1e-12, reduction: Reduction = "mean"
) -> Tensor:
    """sqrt(d^2 + eps) over all numbers: an absolute error that is smooth at zero."""
    error = torch.sqrt((sr.float() - hr).square() + eps)
    return error.mean() if reduction == "mean" else error.sum()


class PixelLoss(nn.Module):
    """A model with what it is to make less: (lr, goal) -> how far its frames are off."""

    def __init__(self, model: nn.Module, reduction: Reduction) -> None:
        super().__init__()
        self.model = model
        self.reduction: Reduction = reduction

    def forward(self, lr: Tensor, goal: Tensor) -> Tensor:
        """(B, T, 3, H, W) and (B, T, 3, sH, sW) -> ()."""
        sr = self.model(lr)
        return charbonnier(sr, wanted(goal, sr), reduction=self.reduction)


class PsnrLoss(nn.Module):
    """Minus the PSNR of each clip, brightness counting most: easy clips weigh as much as hard ones.

    (lr, goal) -> the mean logarithm of the clips' square errors.
    steadiness: weight of how much frames change along the motion, beside their error.
    """

    def __init__(self, model: nn.Module, *, steadiness: float = 0.0) -> None:
        super().__init__()
        if steadiness and not isinstance(model, VSRTSmall):
            raise VsrkitError("steadiness needs the flow of our own presets, vsrt-s and vsrt-m")
        self.model, self.steadiness = model, steadiness

    def forward(self, lr: Tensor, goal: Tensor) -> Tensor:
        """(B, T, 3, H, W) and (B, T, 3, sH, sW) -> ()."""
        if not self.steadiness or not isinstance(self.model, VSRTSmall) or lr.shape[1] == 1:
            sr = self.model(lr)
            return torch.log(square_error(sr, wanted(goal, sr)) + FLOOR).mean()
        frames = list(lr.unbind(1))
        to_prev, to_next = self.model.flows(frames)
        sr = torch.stack(self.model.along(frames, to_prev, to_next), 1)
        flow = torch.stack([flow for flow in to_prev if flow is not None], 1)
        error = square_error(sr, goal) + self.steadiness * unrest(sr, goal, flow)
        return torch.log(error + FLOOR).mean()


def wanted(hr: Tensor, sr: Tensor) -> Tensor:
    """The frames that a model answers with: all, or the centre."""
    if sr.shape[1] == hr.shape[1]:
        return hr
    centre = hr.shape[1] // 2
    return hr[:, centre : centre + 1]


def square_error(sr: Tensor, goal: Tensor) -> Tensor:
    """Mean square of `weighted` errors, by clip: (B, T, 3, H, W) twice -> (B,)."""
    return weighted(sr.float() - goal).square().sum(2).mean((1, 2, 3))


def weighted(rgb: Tensor) -> Tensor:
    """RGB (B, T, 3, H, W) with brightness as a fourth, whose square weighs most: eyes see it so."""
    shares = Y_SHARES.to(rgb).view(3, 1, 1)
    luma = (rgb * shares).sum(2, keepdim=True)
    return torch.cat([rgb * ((1 - LUMA) / 3) ** 0.5, luma * LUMA**0.5], 2)


def unrest(sr: Tensor, hr: Tensor, flow_to_prev: Tensor) -> Tensor:
    """Mean squared change of frames along the motion, where nothing is covered, by clip: (B,).

    sr, hr: (B, T, 3, sH, sW); flow_to_prev: (B, T - 1, 2, H, W) of all frames but the first, in
    pixels of the small frames. What flickers costs here, and hardly more elsewhere.
    """
    scale = sr.shape[-1] // flow_to_prev.shape[-1]
    flow = scale * F.interpolate(
        flow_to_prev.detach().float().flatten(0, 1), scale_factor=scale, mode="bilinear"
    )
    ones = torch.ones_like(hr[:, :, :1])
    before = torch.cat([sr.float(), hr, ones], 2)[:, :-1].flatten(0, 1)
    warped_sr, warped_hr, inside = warp(before, flow).split([3, 3, 1], 1)
    now_sr, now_hr = (x[:, 1:].flatten(0, 1) for x in (sr, hr))
    same = (now_hr - warped_hr).mean(1, keepdim=True).abs() < COVERED
    change = (now_sr - warped_sr).square() * (same & (inside > 0.999))
    return change.unflatten(0, flow_to_prev.shape[:2]).mean((1, 2, 3, 4))
