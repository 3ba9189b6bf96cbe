"""What training minimises."""

from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.models.flow import warp

COVERED = 10 / 255  # where HR changes more along the motion, something was covered or uncovered
Reduction: TypeAlias = Literal["mean", "sum"]


def charbonnier(
    sr: Tensor, hr: Tensor, *, eps: float = 1e-12, reduction: Reduction = "mean"
) -> Tensor:
    """sqrt(d^2 + eps) over all numbers: an absolute error that is smooth at zero."""
    error = torch.sqrt((sr.float() - hr).square() + eps)
    return error.mean() if reduction == "mean" else error.sum()


class PixelLoss(nn.Module):
    """A model with what it is to make less: (lr, hr) -> the distance of its frames from `hr`."""

    def __init__(self, model: nn.Module, reduction: Reduction) -> None:
        super().__init__()
        self.model = model
        self.reduction: Reduction = reduction

    def forward(self, lr: Tensor, hr: Tensor) -> Tensor:
        """(B, T, 3, H, W) and (B, T, 3, sH, sW) -> ()."""
        sr = self.model(lr)
        return charbonnier(sr, wanted(hr, sr), reduction=self.reduction)


def wanted(hr: Tensor, sr: Tensor) -> Tensor:
    """The frames that a model answers with: all, or the centre."""
    if sr.shape[1] == hr.shape[1]:
        return hr
    centre = hr.shape[1] // 2
    return hr[:, centre : centre + 1]


def unrest(sr: Tensor, hr: Tensor, flow_to_prev: Tensor) -> Tensor:
    """Mean squared change of frames along the motion, where nothing is covered.

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
    return ((now_sr - warped_sr).square() * (same & (inside > 0.999))).mean()
