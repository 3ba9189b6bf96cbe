"""Degradations that make LR frames from HR frames: BI and BD of the papers, and CRF (a codec)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from vsrkit.data.recompress import CODECS, X264, Codec, recompress
from vsrkit.errors import DataError
from vsrkit.hardware.threads import single_thread
from vsrkit.models.layers.resample import imresize, resample, tap_matrix


@dataclass(frozen=True, slots=True)
class BI:
    """MATLAB's bicubic `imresize` with antialiasing, rounded to 8 bits like published LR files."""

    scale: int = 4

    def __str__(self) -> str:
        return f"BI x{self.scale} (MATLAB bicubic with antialiasing, 8 bit)"


@dataclass(frozen=True, slots=True)
class BD:
    """Gaussian blur of sigma 1.6, then every s-th pixel.

    The literature uses two kernels, and their LR frames differ:

    `duf13`: 13 taps, reflected borders, pixels 0, s, 2s (DUF, EDVR and models based on them).
    `matlab12`: 12 taps, repeated borders, centred between pixels (RDN, TDAN, BasicVSR).
    """

    scale: int = 4
    kernel: Literal["duf13", "matlab12"] = "duf13"

    def __str__(self) -> str:
        return f"BD x{self.scale} (Gaussian sigma 1.6, kernel {self.kernel}, 8 bit)"


@dataclass(frozen=True, slots=True)
class CRF:
    """BI, then encoded and decoded at constant quality, in memory; of H.264 from 0 to 51 (worst).

    The quality of MPEG-2 and MPEG-4 is the quantiser, 1 to 31 (worst).
    """

    quality: int
    scale: int = 4
    codec: Codec = X264

    def __post_init__(self) -> None:
        self.codec.options_at(self.quality)  # refuses a quality that the encoder does not have

    def __str__(self) -> str:
        if self.codec == X264:
            return (
                f"CRF{self.quality} x{self.scale} (BI, then x264 --crf {self.quality} "
                "--preset medium, yuv420p bt709, one thread)"
            )
        return f"{self.codec.prefix}{self.quality} x{self.scale} (BI, then {self.codec}, yuv420p)"


Degradation: TypeAlias = BI | BD | CRF


def degradation_named(name: str, scale: int = 4) -> Degradation:
    """Return a degradation by name.

    Args:
        name: `bi`, `bd`, `bd-matlab12`, or the prefix of a codec and a number: `crf25` (H.264),
            `x265-crf28`, `vp9-crf33`, `mpeg2-q6`, `mpeg4-q6`.
        scale: HR pixels per LR pixel.
    """
    match name.lower():
        case "bi":
            return BI(scale)
        case "bd" | "bd-duf13":
            return BD(scale)
        case "bd-matlab12":
            return BD(scale, "matlab12")
        case other:
            for codec in CODECS:
                quality = other.removeprefix(codec.prefix)
                if quality != other and quality.isdigit():
                    return CRF(int(quality), scale, codec)
    raise DataError(
        f"no degradation called {name!r}; use bi, bd, bd-matlab12 or one of "
        + ", ".join(f"{codec.prefix}{codec.best} to {codec.worst}" for codec in CODECS)
    )


def degrade(hr: Tensor, degradation: Degradation) -> Tensor:
    """Degrade a clip: (T, 3, H, W) -> (T, 3, H // s, W // s), float RGB in [0, 1].

    The frames are first cropped at the right and bottom to multiples of the scale. The values are
    multiples of 1/255, as if read from an 8-bit file.
    """
    return torch.stack(list(degrade_frames(hr, degradation)))


def degrade_frames(hr: Iterable[Tensor], degradation: Degradation) -> Iterator[Tensor]:
    """Degrade frames (3, H, W) one by one; keeps a bounded number of them in memory."""
    match degradation:
        case BI(scale=scale):
            return (_reduced(frame, scale) for frame in hr)
        case BD():
            return (_blurred(frame, degradation) for frame in hr)
        case CRF(quality=quality, scale=scale, codec=codec):
            return recompress((_reduced(frame, scale) for frame in hr), quality, codec)


def mod_crop(x: Tensor, scale: int) -> Tensor:
    """Crop (..., H, W) at the right and bottom so that both sides are multiples of the scale."""
    height, width = x.shape[-2:]
    if height < scale or width < scale:
        raise DataError(f"a {width}x{height} frame is too small for a scale of {scale}")
    return x[..., : height - height % scale, : width - width % scale]


def round_to_8_bit(x: Tensor) -> Tensor:
    """Clip to [0, 1] and round to multiples of 1/255, halves to the even neighbour."""
    return (x.clamp(0, 1) * 255).round() / 255


def _reduced(frame: Tensor, scale: int) -> Tensor:
    # float64, so that rounding to 8 bits does not depend on the order of the additions.
    with single_thread():
        lr = imresize(mod_crop(frame, scale).double(), Fraction(1, scale))
        return round_to_8_bit(lr).to(frame.dtype)


def _blurred(frame: Tensor, how: BD) -> Tensor:
    with single_thread():
        hr = mod_crop(frame, how.scale).double()
        rows, columns = (_blur_matrix(side, how) for side in hr.shape[-2:])
        return round_to_8_bit(resample(hr, rows, columns)).to(frame.dtype)


@lru_cache(maxsize=16)
@torch.inference_mode(False)
def _blur_matrix(length: int, how: BD) -> Tensor:
    """Matrix that blurs one axis and takes every s-th pixel of it: (length // s, length)."""
    count = 13 if how.kernel == "duf13" else 12
    offsets = torch.arange(count, dtype=torch.float64) - (count - 1) / 2
    weights = torch.exp(-(offsets**2) / (2 * 1.6**2))
    first = -6 if how.kernel == "duf13" else how.scale // 2 - 6
    taps = how.scale * torch.arange(length // how.scale)[:, None] + first + torch.arange(count)
    border: Literal["reflect", "replicate"] = "reflect" if count == 13 else "replicate"
    return tap_matrix(taps, weights.expand(len(taps), -1), length, border)
