"""How LR frames are made of HR frames: by the degradations of the papers, and by random ones.

A `Degradation` has no random parameters: BI, BD, or CRF, which is a codec. A `Degrader`, for
training, maps an HR clip and a random generator to an LR clip; the same state of the generator
gives the same LR clip.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal, Protocol, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vsrkit.data.footage import (
    Fault,
    colour_fault,
    encoded,
    encoded_at_another_size,
    film_grain,
    halos,
    interlaced,
    out_of_focus,
    sensor_noise,
)
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


BICUBIC = BI(4)


@dataclass(frozen=True, slots=True)
class Reach:
    """Context that the degradation of a crop depends on."""

    pixels: int  # LR pixels on every side
    before: int = 0  # frames
    after: int = 0  # frames


NEAR = Reach(4)  # BI and BD depend on 2 pixels
# A small crop of a few frames is encoded differently from the same pixels inside their video (by
# 1 dB): the first frame of a video and frames that others are predicted from get more bits. x264
# looks 40 frames ahead; 15 have most of the effect.
ENCODED = Reach(24, before=15, after=15)


class Degrader(Protocol):
    """Callable that degrades a clip: (T, 3, H, W) in [0, 1] -> (T, 3, H / s, W / s)."""

    @property
    def scale(self) -> int: ...

    @property
    def reach(self) -> Reach: ...

    def __call__(self, hr: Tensor, rng: np.random.Generator) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """A degradation without random parameters."""

    how: Degradation = BICUBIC

    @property
    def scale(self) -> int:
        """HR pixels per LR pixel."""
        return self.how.scale

    @property
    def reach(self) -> Reach:
        """Context that the result depends on."""
        return ENCODED if isinstance(self.how, CRF) else NEAR

    def __call__(self, hr: Tensor, rng: np.random.Generator) -> Tensor:
        return degrade(hr, self.how)


@dataclass(frozen=True, slots=True)
class Compressed:
    """BI, then a codec at a random quality between `best` and `worst` for each clip."""

    best: int
    worst: int
    scale: int = 4
    codec: Codec = X264
    reach: Reach = ENCODED

    def __post_init__(self) -> None:
        least, most = self.codec.best, self.codec.worst
        if not least <= self.best <= self.worst <= most:
            raise DataError(
                f"a range of {self.codec.prefix} must be ascending and between {least} and {most}, "
                f"got {self.best}-{self.worst}"
            )

    def __call__(self, hr: Tensor, rng: np.random.Generator) -> Tensor:
        quality = int(rng.integers(self.best, self.worst + 1))
        return degrade(hr, CRF(quality, self.scale, self.codec))


@dataclass(frozen=True, slots=True)
class Realistic:
    """Random blur, resize, noise and x264 compression, in this order."""

    scale: int = 4
    widest_blur: float = 2.4  # largest sigma in HR pixels
    loudest_noise: float = 0.03  # largest standard deviation, for values in [0, 1]
    best: int = 15
    worst: int = 32  # x264 CRF
    reach: Reach = ENCODED

    def __call__(self, hr: Tensor, rng: np.random.Generator) -> Tensor:
        blurred = blur(hr, *rng.uniform(0.2, self.widest_blur, 2))
        lr = _reduced_by_some_filter(blurred, self.scale, rng)
        noise = torch.from_numpy(rng.standard_normal(lr.shape, dtype=np.float32))
        lr = round_to_8_bit(lr + noise * float(rng.uniform(0, self.loudest_noise)))
        quality = int(rng.integers(self.best, self.worst + 1))
        return torch.stack(list(recompress(lr, quality)))


# The faults of footage by name, in the order in which they happen, and the share of the clips of
# `footage` that has each.
FAULTS: dict[str, tuple[Fault, float]] = {
    "blur": (out_of_focus, 0.35),
    "noise": (sensor_noise, 0.3),
    "grain": (film_grain, 0.15),
    "interlaced": (interlaced, 0.05),
    "colour": (colour_fault, 0.15),
    "twice": (encoded_at_another_size, 0.3),
    "halos": (halos, 0.2),
}


@dataclass(frozen=True, slots=True)
class Footage:
    """Resize, faults of real footage, each with its probability, and one of five codecs."""

    scale: int = 4
    faults: tuple[tuple[Fault, float], ...] = tuple(FAULTS.values())
    reach: Reach = ENCODED

    def __call__(self, hr: Tensor, rng: np.random.Generator) -> Tensor:
        clip = _reduced_by_some_filter(hr, self.scale, rng)
        for fault, probability in self.faults:
            if rng.random() < probability:
                clip = fault(clip, rng)
        return encoded(clip, rng)


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of several degradations for each clip, chosen with equal probability."""

    kinds: tuple[Degrader, ...]

    @property
    def scale(self) -> int:
        """HR pixels per LR pixel."""
        return self.kinds[0].scale

    @property
    def reach(self) -> Reach:
        """The largest context of all, because the choice is not known beforehand."""
        return max((kind.reach for kind in self.kinds), key=lambda reach: reach.pixels)

    def __call__(self, hr: Tensor, rng: np.random.Generator) -> Tensor:
        return self.kinds[rng.integers(len(self.kinds))](hr, rng)


def _reduced_by_some_filter(hr: Tensor, scale: int, rng: np.random.Generator) -> Tensor:
    """Resize (T, 3, H, W) to (T, 3, H / s, W / s) by a random filter, sometimes with aliasing."""
    size = [side // scale for side in hr.shape[-2:]]
    mode = ("bicubic", "bilinear", "area")[rng.integers(3)]
    smooth = {} if mode == "area" else {"antialias": bool(rng.random() < 0.8)}
    return F.interpolate(hr, size, mode=mode, **smooth)


def blur(clip: Tensor, sigma_y: float, sigma_x: float) -> Tensor:
    """Blur (T, 3, H, W) with a Gaussian; edge pixels are repeated."""
    flat = clip.flatten(0, 1)[:, None]
    for axis, sigma in ((0, sigma_y), (1, sigma_x)):
        reach = max(1, round(3 * sigma))
        taps = torch.exp(-0.5 * (torch.arange(-reach, reach + 1) / sigma) ** 2)
        kernel = (taps / taps.sum()).view((1, 1, -1, 1) if axis == 0 else (1, 1, 1, -1))
        margin = (0, 0, reach, reach) if axis == 0 else (reach, reach, 0, 0)
        flat = F.conv2d(F.pad(flat, margin, mode="replicate"), kernel.to(flat))
    return flat[:, 0].view_as(clip)


def degrader_named(name: str, scale: int = 4) -> Degrader:
    """Return a degrader by name.

    Args:
        name: `bi`, `bd`, `bd-matlab12`, a codec at a quality such as `crf25` or `x265-crf28`, or
            in a range such as `crf15-35` or `mpeg2-q2-10`, `realistic`, `footage`, one of its
            faults (`FAULTS`), or several of them joined by `+`, one of which is drawn for each
            clip.
        scale: HR pixels per LR pixel.
    """
    if "+" in name:
        return OneOf(tuple(degrader_named(part, scale) for part in name.split("+")))
    match name.lower():
        case "realistic":
            return Realistic(scale)
        case "footage":
            return Footage(scale)
        case fault if fault in FAULTS:
            return Footage(scale, ((FAULTS[fault][0], 1.0),))
        case other:
            for codec in CODECS:
                if span := re.fullmatch(codec.prefix + r"(\d+)-(\d+)", other):
                    return Compressed(int(span[1]), int(span[2]), scale, codec)
    return Fixed(degradation_named(name, scale))
