"""Bicubic interpolation, the baseline of every table, with MATLAB's kernel and borders."""

from dataclasses import dataclass

from torch import Tensor, nn

from vsrkit.models.anatomy import Anatomy
from vsrkit.models.layers.resample import imresize
from vsrkit.models.spec import Spec, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class BicubicConfig:
    """The integer factor."""

    scale: int = 4


class Bicubic(nn.Module):
    """Each frame alone, by MATLAB's `imresize` (kernel a = -0.5, mirrored borders)."""

    anatomy = Anatomy()  # no flow, no attention, no switches

    def __init__(self, config: BicubicConfig) -> None:
        super().__init__()
        self.config = config
        self.spec = Spec(scale=config.scale, context=Window(1, "all"))

    def forward(self, clip: Tensor, keep: slice | None = None) -> Tensor:
        """(B, T, 3, H, W) -> (B, T, 3, sH, sW)."""
        frames = clip if keep is None else clip[:, keep]
        return imresize(frames, self.config.scale)
