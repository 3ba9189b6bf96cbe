"""Encode frames and decode them again, in memory: the artefacts of five codecs.

Encoders run in one thread with fixed settings, so the same frames always give the same result.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import av
import numpy as np
import torch
import torch.nn.functional as F
from av.codec.context import CodecContext
from av.video.codeccontext import VideoCodecContext
from torch import Tensor

from vsrkit.errors import DataError
from vsrkit.hardware.threads import single_thread
from vsrkit.models.layers.resample import resample, tap_matrix

# BT.709, limited range: (Y, Cb, Cr) = MATRIX @ (R, G, B) + OFFSET, in 8-bit code values.
KR, KB = 0.2126, 0.0722
_LUMA = torch.tensor([KR, 1 - KR - KB, KB], dtype=torch.float64)
_RED, _BLUE = torch.eye(3, dtype=torch.float64)[[0, 2]]
MATRIX = torch.stack(
    [219 * _LUMA, 112 * (_BLUE - _LUMA) / (1 - KB), 112 * (_RED - _LUMA) / (1 - KR)]
)
OFFSET = torch.tensor([16.0, 128.0, 128.0], dtype=torch.float64)[:, None, None]


@dataclass(frozen=True, slots=True)
class Codec:
    """An encoder at constant quality, and the decoder of its format."""

    prefix: str  # of the names of its degradations, which end with the quality
    encoder: str
    decoder: str
    best: int
    worst: int
    options: tuple[tuple[str, str], ...]
    smallest: int = 2  # pixels along a side

    def options_at(self, quality: int) -> dict[str, str]:
        """The options of the encoder at this quality, from `best` to `worst`."""
        if not self.best <= quality <= self.worst:
            raise DataError(
                f"the quality of {self.encoder} must be between {self.best} and {self.worst}, "
                f"got {quality}"
            )
        return {name: value.format(quality=quality) for name, value in self.options}

    def __str__(self) -> str:
        return self.encoder


# Without AVX-512: with it, x264's look-ahead gives different bytes in each run on some CPUs.
X264 = Codec(
    "crf",
    "libx264",
    "h264",
    0,
    51,
    (("crf", "{quality}"), ("preset", "medium"), ("x264-params", "asm=avx2")),
)
X265 = Codec(
    "x265-crf",
    "libx265",
    "hevc",
    0,
    51,
    (
        ("crf", "{quality}"),
        ("preset", "medium"),
        ("x265-params", "pools=none:frame-threads=1:ctu=32:log-level=error"),
    ),
    smallest=32,  # one coding tree unit
)
VP9 = Codec(
    "vp9-crf",
    "libvpx-vp9",
    "vp9",
    0,
    63,
    (("crf", "{quality}"), ("b", "0"), ("cpu-used", "4"), ("lag-in-frames", "16")),
)
# The quantiser is fixed; a keyframe every 12 frames, as on DVDs.
MPEG2 = Codec(
    "mpeg2-q",
    "mpeg2video",
    "mpeg2video",
    1,
    31,
    (("qmin", "{quality}"), ("qmax", "{quality}"), ("bf", "2"), ("g", "12")),
)
# Advanced Simple Profile, the format of DivX and Xvid: B-frames and quarter-pixel motion.
MPEG4 = Codec(
    "mpeg4-q",
    "mpeg4",
    "mpeg4",
    1,
    31,
    (("qmin", "{quality}"), ("qmax", "{quality}"), ("bf", "2"), ("g", "250"), ("flags", "+qpel")),
)
CODECS = (X264, X265, VP9, MPEG2, MPEG4)


def recompress(frames: Iterable[Tensor], quality: int, codec: Codec = X264) -> Iterator[Tensor]:
    """Encode frames and decode them again, in memory.

    Keeps the encoder's look-ahead, of x264 about 60 frames, in memory.

    Args:
        frames: (3, H, W) each, RGB in [0, 1].
        quality: the encoder's CRF or quantiser, from `codec.best` to `codec.worst`.
        codec: the encoder and its settings.
    """
    encoder: VideoCodecContext | None = None
    decoder = CodecContext.create(codec.decoder, "r")
    assert isinstance(decoder, VideoCodecContext)
    decoder.thread_count = 1
    height = width = rows = columns = 0
    for number, frame in enumerate(frames):
        if encoder is None:
            height, width = frame.shape[-2:]
            rows, columns = (max(side + side % 2, codec.smallest) for side in (height, width))
            encoder = _encoder(rows, columns, quality, codec)
        planes = to_yuv420(_extended(frame, rows, columns))
        picture = av.VideoFrame.from_ndarray(planes, format="yuv420p")
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


def _encoder(height: int, width: int, quality: int, codec: Codec) -> VideoCodecContext:
    encoder = CodecContext.create(codec.encoder, "w")
    assert isinstance(encoder, VideoCodecContext)
    encoder.width, encoder.height = width, height
    encoder.pix_fmt = "yuv420p"
    encoder.framerate = Fraction(25)
    encoder.time_base = Fraction(1, 25)
    encoder.thread_count = 1
    encoder.options = codec.options_at(quality)
    return encoder


def _extended(frame: Tensor, height: int, width: int) -> Tensor:
    """Repeat the last column and the last row until (3, H, W) has this size."""
    beyond = (0, width - frame.shape[-1], 0, height - frame.shape[-2])
    return F.pad(frame[None], beyond, mode="replicate")[0]


def to_yuv420(frame: Tensor) -> np.ndarray:
    """Convert (3, H, W) RGB in [0, 1] to 4:2:0 planes, (3/2 H', W') uint8.

    Odd sides are first extended by a pixel.
    """
    height, width = frame.shape[-2:]
    with single_thread():
        rgb = _extended(frame.double(), height + height % 2, width + width % 2)
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
    """Matrices that reduce chroma to the default position of 4:2:0.

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
