"""Degradations with random parameters, for training.

A degrader maps an HR clip and a random generator to an LR clip; the same state of the generator
gives the same LR clip.
"""

import re
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vsrkit.data.degrade import (
    BI,
    CRF,
    Degradation,
    degradation_named,
    degrade,
    round_to_8_bit,
)
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
