"""Brightness apart from colour, for networks that see only brightness (BT.601, studio range)."""

from collections.abc import Callable

import torch
from torch import Tensor

from vsrkit.models.layers.resample import imresize

_OFFSET = (16 / 255, 128 / 255, 128 / 255)
_FROM_RGB = (
    (65.481 / 255, 128.553 / 255, 24.966 / 255),
    (-37.797 / 255, -74.203 / 255, 112.0 / 255),
    (112.0 / 255, -93.786 / 255, -18.214 / 255),
)


def rgb_to_ycbcr(frames: Tensor) -> Tensor:
    """(..., 3, H, W) RGB in [0, 1] -> Y in 16/255 ... 235/255, Cb and Cr around 128/255."""
    matrix, offset = _matrix(frames)
    return torch.einsum("ij,...jhw->...ihw", matrix, frames) + offset


def ycbcr_to_rgb(frames: Tensor) -> Tensor:
    """The way back: (..., 3, H, W) -> same."""
    matrix, offset = _matrix(frames)
    return torch.einsum("ij,...jhw->...ihw", matrix.double().inverse().to(frames), frames - offset)


def enlarge_luma(clip: Tensor, enlarge: Callable[[Tensor], Tensor]) -> Tensor:
    """The centre of (B, T, 3, H, W), its brightness by a network, its colour by bicubic x4.

    `enlarge` takes brightness (B, T, 1, H, W) and answers with the centre's (B, 1, 4H, 4W).
    Returns (B, 1, 3, 4H, 4W).
    """
    y, colour = rgb_to_ycbcr(clip).split([1, 2], 2)
    colour = imresize(colour[:, clip.shape[1] // 2], 4)
    return ycbcr_to_rgb(torch.cat([enlarge(y), colour], 1))[:, None]


def _matrix(like: Tensor) -> tuple[Tensor, Tensor]:
    return torch.tensor(_FROM_RGB).to(like), torch.tensor(_OFFSET).to(like).view(3, 1, 1)
