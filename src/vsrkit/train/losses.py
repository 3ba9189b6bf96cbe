"""What training minimises."""

from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

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
