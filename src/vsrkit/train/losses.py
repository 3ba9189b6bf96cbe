"""What training minimises."""

from typing import Literal

import torch
from torch import Tensor


def charbonnier(
    sr: Tensor, hr: Tensor, *, eps: float = 1e-12, reduction: Literal["mean", "sum"] = "mean"
) -> Tensor:
    """sqrt(d^2 + eps) over all numbers: an absolute error that is smooth at zero."""
    error = torch.sqrt((sr.float() - hr).square() + eps)
    return error.mean() if reduction == "mean" else error.sum()
