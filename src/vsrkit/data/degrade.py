"""Degradations that make LR frames from HR frames: BI and BD of the papers, and CRF (H.264).

H.264 is encoded and decoded in memory; nothing is written to disk.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import av
import numpy as np
import torch
import torch.nn.functional as F
from av.codec.context import CodecContext
from av.video.codeccontext import VideoCodecContext
from torch import Tensor

from vsrkit.errors import DataError
from vsrkit.hardware.threads import single_thread
from vsrkit.models.layers.resample import imresize, resample, tap_matrix

# BT.709, limited range: (Y, Cb, Cr) = MATRIX @ (R, G, B) + OFFSET, in 8-bit code values.
KR, KB = 0.2126, 0.0722
_LUMA = torch.tensor([KR, 1 - KR - KB, KB], dtype=torch.float64)
_RED, _BLUE = torch.eye(3, dtype=torch.float64)[[0, 2]]
MATRIX = torch.stack(
    [219 * _LUMA, 112 * (_BLUE - _LUMA) / (1 - KB), 112 * (_RED - _LUMA) / (1 - KR)]
)
OFFSET = torch.tensor([16.0, 128.0, 128.0], dtype=torch.float64)[:, None, None]


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
    """BI, then encoded and decoded as H.264 at constant quality (0 best, 51 worst)."""

    quality: int
    scale: int = 4

    def __post_init__(self) -> None:
        if not 0 <= self.quality <= 51:
            raise DataError(f"the CRF of x264 must be between 0 and 51, got {self.quality}")

    def __str__(self) -> str:
        return (
            f"CRF{self.quality} x{self.scale} (BI, then x264 --crf {self.quality} --preset medium, "
            "yuv420p bt709, one thread)"
        )


Degradation: TypeAlias = BI | BD | CRF


def degradation_named(name: str, scale: int = 4) -> Degradation:
    """Return a degradation by name: `bi`, `bd`, `bd-matlab12`, or `crf` and a number (`crf25`)."""
    match name.lower():
        case "bi":
            return BI(scale)
        case "bd" | "bd-duf13":
            return BD(scale)
        case "bd-matlab12":
            return BD(scale, "matlab12")
        case crf if crf.startswith("crf") and crf[3:].isdigit():
            return CRF(int(crf[3:]), scale)
    raise DataError(f"no degradation called {name!r}; use bi, bd, bd-matlab12 or crf0 to crf51")


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
        case CRF(quality=quality, scale=scale):
            return recompress((_reduced(frame, scale) for frame in hr), quality)


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


def recompress(frames: Iterable[Tensor], quality: int) -> Iterator[Tensor]:
    """Encode frames with x264 and decode them again, in memory.

    Uses one thread and fixed settings, so the same frames always give the same result. Keeps the
    encoder's look-ahead of about 60 frames in memory.

    Args:
        frames: (3, H, W) each, RGB in [0, 1].
        quality: the encoder's CRF, from 0 (best) to 51.
    """
    encoder: VideoCodecContext | None = None
    decoder = CodecContext.create("h264", "r")
    assert isinstance(decoder, VideoCodecContext)
    height = width = 0
    for number, frame in enumerate(frames):
        if encoder is None:
            height, width = frame.shape[-2:]
            encoder = _encoder(height + height % 2, width + width % 2, quality)
        picture = av.VideoFrame.from_ndarray(to_yuv420(frame), format="yuv420p")
        picture.pts = number
        for packet in encoder.encode(picture):
            for decoded in decoder.decode(packet):
                yield from_yuv420(decoded.to_ndarray())[:, :height, :width]
    if encoder is None:
        return
    rest: list[av.Packet[Any] | None] = [*encoder.encode(None), None]
    for last in rest:
        for decoded in decoder.decode(last):
            yield from_yuv420(decoded.to_ndarray())[:, :height, :width]


def _encoder(height: int, width: int, quality: int) -> VideoCodecContext:
    encoder = CodecContext.create("libx264", "w")
    assert isinstance(encoder, VideoCodecContext)
    encoder.width, encoder.height = width, height
    encoder.pix_fmt = "yuv420p"
    encoder.framerate = Fraction(25)
    encoder.time_base = Fraction(1, 25)
    encoder.thread_count = 1
    # Without AVX-512: with it, x264's look-ahead gives different bytes in each run on some CPUs.
    encoder.options = {"crf": str(quality), "preset": "medium", "x264-params": "asm=avx2"}
    return encoder


def to_yuv420(frame: Tensor) -> np.ndarray:
    """Convert (3, H, W) RGB in [0, 1] to 4:2:0 planes, (3/2 H', W') uint8.

    Odd sides are first extended by a pixel.
    """
    height, width = frame.shape[-2:]
    with single_thread():
        rgb = F.pad(frame[None].double(), (0, width % 2, 0, height % 2), mode="replicate")[0]
        yuv = torch.einsum("yc,chw->yhw", MATRIX, rgb) + OFFSET
        chroma = resample(yuv[1:], *_halving(*yuv.shape[-2:]))
        planes = torch.cat([yuv[0].flatten(), chroma.flatten()])
        return planes.round().clamp(0, 255).byte().view(-1, yuv.shape[-1]).numpy()


def from_yuv420(planes: np.ndarray) -> Tensor:
    """Convert 4:2:0 planes, (3/2 H, W) uint8, to (3, H, W) float32 RGB, multiples of 1/255."""
    with single_thread():
        data = torch.from_numpy(planes).double()
        height, width = data.shape[0] * 2 // 3, data.shape[1]
        chroma = data[height:].reshape(2, height // 2, width // 2)
        yuv = torch.cat([data[None, :height], resample(chroma, *_doubling(height, width))])
        rgb = torch.einsum("cy,yhw->chw", torch.linalg.inv(MATRIX), yuv - OFFSET)
        return ((rgb * 255).round().clamp(0, 255) / 255).float()


@lru_cache(maxsize=4)
@torch.inference_mode(False)
def _halving(height: int, width: int) -> tuple[Tensor, Tensor]:
    """Matrices that reduce chroma to H.264's default position.

    Chroma samples are between two rows and on every second column.
    """
    rows = 2 * torch.arange(height // 2)[:, None]
    columns = 2 * torch.arange(width // 2)[:, None]
    return (
        tap_matrix(rows + torch.tensor([0, 1]), torch.ones(height // 2, 2), height, "replicate"),
        tap_matrix(
            columns + torch.tensor([-1, 0, 1]),
            torch.tensor([1.0, 2.0, 1.0]).expand(width // 2, -1),
            width,
            "replicate",
        ),
    )


@lru_cache(maxsize=4)
@torch.inference_mode(False)
def _doubling(height: int, width: int) -> tuple[Tensor, Tensor]:
    """Matrices that interpolate linearly between the samples of `_halving`."""
    return _linear(height, -0.25), _linear(width, 0.0)


def _linear(length: int, shift: float) -> Tensor:
    position = torch.arange(length) / 2 + shift
    first = position.floor()
    weights = torch.stack([1 - (position - first), position - first], 1)
    taps = first.long()[:, None] + torch.tensor([0, 1])
    return tap_matrix(taps, weights, length // 2, "replicate")
