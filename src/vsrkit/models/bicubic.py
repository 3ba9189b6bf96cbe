"""Bicubic interpolation: the floor that every table needs, with MATLAB's kernel and borders."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vsrkit.models.spec import Spec, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class BicubicConfig:
    """Bicubic has one choice: the factor."""

    scale: int = 4


class Bicubic(nn.Module):
    """Each frame by itself, as MATLAB's `imresize` enlarges (kernel a = -0.5, mirrored borders)."""

    def __init__(self, config: BicubicConfig) -> None:
        super().__init__()
        self.config = config
        self.spec = Spec(scale=config.scale, context=Window(1, "all"))

    def forward(self, clip: Tensor, keep: slice | None = None) -> Tensor:
        """(B, T, 3, H, W) -> (B, T, 3, sH, sW)."""
        frames = clip if keep is None else clip[:, keep]
        rows = _matrix(frames.shape[-2], self.config.scale).to(frames)
        columns = _matrix(frames.shape[-1], self.config.scale).to(frames)
        return rows @ frames @ columns.T


def _matrix(size: int, scale: int) -> Tensor:
    """The (s * size, size) matrix that enlarges one axis."""
    out = torch.arange(size * scale, dtype=torch.float64)
    centre = (out + 0.5) / scale - 0.5
    left = centre.floor() - 1
    taps = left[:, None] + torch.arange(4)
    weight = _cubic(centre[:, None] - taps)
    weight = weight / weight.sum(1, keepdim=True)
    inside = taps.long().remainder(2 * size)
    inside = torch.where(inside < size, inside, 2 * size - 1 - inside)  # mirror, edge pixel twice
    return torch.zeros(size * scale, size, dtype=torch.float64).scatter_add_(1, inside, weight)


def _cubic(x: Tensor) -> Tensor:
    """Keys' kernel with a = -0.5."""
    x = x.abs()
    near = 1.5 * x**3 - 2.5 * x**2 + 1
    far = -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
    return torch.where(x <= 1, near, torch.where(x <= 2, far, torch.zeros_like(x)))


def detect(_: object) -> None:
    """No weight file is bicubic's."""
