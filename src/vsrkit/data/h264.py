"""What H.264 does to frames: encode with x264, decode again, nothing written to disk."""

from collections.abc import Iterable, Iterator
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

from vsrkit.hardware.threads import one_thread
from vsrkit.models.layers.resample import resample, tap_matrix

# BT.709, limited range: (Y, Cb, Cr) = MATRIX @ (R, G, B) + OFFSET, in units of 8 bits.
KR, KB = 0.2126, 0.0722
_LUMA = torch.tensor([KR, 1 - KR - KB, KB], dtype=torch.float64)
_RED, _BLUE = torch.eye(3, dtype=torch.float64)[[0, 2]]
MATRIX = torch.stack(
    [219 * _LUMA, 112 * (_BLUE - _LUMA) / (1 - KB), 112 * (_RED - _LUMA) / (1 - KR)]
)
OFFSET = torch.tensor([16.0, 128.0, 128.0], dtype=torch.float64)[:, None, None]


def recompress(frames: Iterable[Tensor], quality: int) -> Iterator[Tensor]:
    """Frames (3, H, W) in [0, 1] as a player shows them after x264 at `quality` (CRF).

    Holds what the encoder looks ahead (about 60 frames), however long the clip. One thread, fixed
    settings: the same frames always give the same output.
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
    # Without AVX-512: with it, x264's look-ahead gave other bytes in each run on some processors.
    encoder.options = {"crf": str(quality), "preset": "medium", "x264-params": "asm=avx2"}
    return encoder


def to_yuv420(frame: Tensor) -> np.ndarray:
    """(3, H, W) RGB in [0, 1] -> (3/2 H', W') uint8, the planes of 4:2:0, sides made even."""
    height, width = frame.shape[-2:]
    with one_thread():
        rgb = F.pad(frame[None].double(), (0, width % 2, 0, height % 2), mode="replicate")[0]
        yuv = torch.einsum("yc,chw->yhw", MATRIX, rgb) + OFFSET
        chroma = resample(yuv[1:], *_halving(*yuv.shape[-2:]))
        planes = torch.cat([yuv[0].flatten(), chroma.flatten()])
        return planes.round().clamp(0, 255).byte().view(-1, yuv.shape[-1]).numpy()


def from_yuv420(planes: np.ndarray) -> Tensor:
    """(3/2 H, W) uint8 planes of 4:2:0 -> (3, H, W) float32 RGB, multiples of 1/255 in [0, 1]."""
    with one_thread():
        data = torch.from_numpy(planes).double()
        height, width = data.shape[0] * 2 // 3, data.shape[1]
        chroma = data[height:].reshape(2, height // 2, width // 2)
        yuv = torch.cat([data[None, :height], resample(chroma, *_doubling(height, width))])
        rgb = torch.einsum("cy,yhw->chw", torch.linalg.inv(MATRIX), yuv - OFFSET)
        return ((rgb * 255).round().clamp(0, 255) / 255).float()


@lru_cache(maxsize=4)
@torch.inference_mode(False)
def _halving(height: int, width: int) -> tuple[Tensor, Tensor]:
    """Chroma lies between two rows and on every second column, as H.264 has it by default."""
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
    """Linear interpolation back from where `_halving` put the samples."""
    return _linear(height, -0.25), _linear(width, 0.0)


def _linear(length: int, shift: float) -> Tensor:
    position = torch.arange(length) / 2 + shift
    first = position.floor()
    weights = torch.stack([1 - (position - first), position - first], 1)
    taps = first.long()[:, None] + torch.tensor([0, 1])
    return tap_matrix(taps, weights, length // 2, "replicate")
