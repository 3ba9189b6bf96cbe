"""HR frames -> LR frames: the field's BI and BD, and CRF, which is what real videos are like."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from vsrkit.data.h264 import recompress
from vsrkit.errors import DataError
from vsrkit.hardware.threads import one_thread
from vsrkit.models.layers.resample import imresize, resample, tap_matrix


@dataclass(frozen=True, slots=True)
class BI:
    """MATLAB's bicubic `imresize` with antialiasing, rounded to 8 bits like the sets' LR files."""

    scale: int = 4

    def __str__(self) -> str:
        return f"BI x{self.scale} (MATLAB bicubic with antialiasing, 8 bit)"


@dataclass(frozen=True, slots=True)
class BD:
    """Gaussian blur of sigma 1.6, then every s-th pixel.

    Two kernels are in use, and their LR frames differ:

    `duf13`: 13 taps, reflected borders, pixels 0, s, 2s (DUF, EDVR and their descendants).
    `matlab12`: 12 taps, repeated borders, centred between pixels (RDN, TDAN, BasicVSR).
    """

    scale: int = 4
    kernel: Literal["duf13", "matlab12"] = "duf13"

    def __str__(self) -> str:
        return f"BD x{self.scale} (Gaussian sigma 1.6, kernel {self.kernel}, 8 bit)"


@dataclass(frozen=True, slots=True)
class CRF:
    """BI, then encoded and decoded as H.264 at constant quality (0 best, 51 worst)."""

    quality: int
    scale: int = 4

    def __post_init__(self) -> None:
        if not 0 <= self.quality <= 51:
            raise DataError(f"x264 qualities go from 0 to 51, got {self.quality}")

    def __str__(self) -> str:
        return (
            f"CRF{self.quality} x{self.scale} (BI, then x264 --crf {self.quality} --preset medium, "
            "yuv420p bt709, one thread)"
        )


Degradation: TypeAlias = BI | BD | CRF


def degradation_named(name: str, scale: int = 4) -> Degradation:
    """`bi`, `bd`, `bd-matlab12`, or `crf` and a number (`crf25`)."""
    match name.lower():
        case "bi":
            return BI(scale)
        case "bd" | "bd-duf13":
            return BD(scale)
        case "bd-matlab12":
            return BD(scale, "matlab12")
        case crf if crf.startswith("crf") and crf[3:].isdigit():
            return CRF(int(crf[3:]), scale)
    raise DataError(f"no degradation called {name!r}; there are bi, bd, bd-matlab12, crf0..crf51")


def degrade(hr: Tensor, degradation: Degradation) -> Tensor:
    """LR clip of an HR clip: (T, 3, H, W) -> (T, 3, H // s, W // s), float RGB in [0, 1].

    Values are multiples of 1/255, as if read from a file. What does not divide by the scale is cut
    off at the right and bottom first.
    """
    return torch.stack(list(degrade_frames(hr, degradation)))


def degrade_frames(hr: Iterable[Tensor], degradation: Degradation) -> Iterator[Tensor]:
    """LR frames of HR frames (3, H, W), in order; holds a bounded number of them."""
    match degradation:
        case BI(scale=scale):
            return (_reduced(frame, scale) for frame in hr)
        case BD():
            return (_blurred(frame, degradation) for frame in hr)
        case CRF(quality=quality, scale=scale):
            return recompress((_reduced(frame, scale) for frame in hr), quality)


def mod_crop(x: Tensor, scale: int) -> Tensor:
    """Cut (..., H, W) at the right and bottom so that both sides divide by the scale."""
    height, width = x.shape[-2:]
    if height < scale or width < scale:
        raise DataError(f"a {width}x{height} frame is too small to be reduced {scale} times")
    return x[..., : height - height % scale, : width - width % scale]


def round_to_8_bit(x: Tensor) -> Tensor:
    """The nearest multiples of 1/255 in [0, 1]; a half goes to the even neighbour."""
    return (x.clamp(0, 1) * 255).round() / 255


def _reduced(frame: Tensor, scale: int) -> Tensor:
    # float64: which way a value is rounded should not depend on how the products were added up.
    with one_thread():
        lr = imresize(mod_crop(frame, scale).double(), Fraction(1, scale))
        return round_to_8_bit(lr).to(frame.dtype)


def _blurred(frame: Tensor, how: BD) -> Tensor:
    with one_thread():
        hr = mod_crop(frame, how.scale).double()
        rows, columns = (_blur_matrix(side, how) for side in hr.shape[-2:])
        return round_to_8_bit(resample(hr, rows, columns)).to(frame.dtype)


@lru_cache(maxsize=16)
@torch.inference_mode(False)
def _blur_matrix(length: int, how: BD) -> Tensor:
    """Blurs one axis and takes every s-th pixel of it: (length // s, length)."""
    count = 13 if how.kernel == "duf13" else 12
    offsets = torch.arange(count, dtype=torch.float64) - (count - 1) / 2
    weights = torch.exp(-(offsets**2) / (2 * 1.6**2))
    first = -6 if how.kernel == "duf13" else how.scale // 2 - 6
    taps = how.scale * torch.arange(length // how.scale)[:, None] + first + torch.arange(count)
    border: Literal["reflect", "replicate"] = "reflect" if count == 13 else "replicate"
    return tap_matrix(taps, weights.expand(len(taps), -1), length, border)
