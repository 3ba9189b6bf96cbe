"""Between the samples of a picture and float RGB: matrix, range, bit depth, place of the chroma.

Nothing is clipped on the way in, and the way out is its exact inverse, for chroma as well (see
chroma.py). So a picture that no model touched comes back bit by bit.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import av
import numpy as np
import torch
from av.video.format import VideoFormat
from av.video.frame import VideoFrame
from torch import Tensor

from vsrkit.video.chroma import Samples, Siting, enlarged, reduced, rows_near, shortened
from vsrkit.video.rows import Rows, rows_of

# Codes of ITU-T H.273, as files and FFmpeg have them.
UNKNOWN, BT709, BT601_625, BT601, BT2020 = 2, 1, 5, 6, 9
LIMITED, FULL = 1, 2
YCGCO = 8
LUMA_WEIGHTS = {  # of red and blue
    BT709: (0.2126, 0.0722),
    4: (0.30, 0.11),
    BT601_625: (0.299, 0.114),
    BT601: (0.299, 0.114),
    7: (0.212, 0.087),
    BT2020: (0.2627, 0.0593),
    10: (0.2627, 0.0593),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Colour:
    """What the samples of a picture mean."""

    matrix: int = BT709
    range: int = LIMITED
    primaries: int = UNKNOWN
    transfer: int = UNKNOWN
    siting: Siting = "left"  # where a chroma sample lies among its luma samples


def known_matrix(matrix: int, *, height: int, width: int) -> int:
    """The matrix to use for a tag: untagged is BT.601 up to 1024x576, BT.709 above.

    That is what players assume. The output is tagged with it, because it is larger.
    """
    if matrix in LUMA_WEIGHTS or matrix == YCGCO:
        return matrix
    return BT601 if height <= 576 and width <= 1024 else BT709


@dataclass(frozen=True, slots=True)
class Layout:
    """How a pixel format stores its samples: planes of their own, integers of the machine."""

    kind: Literal["yuv", "rgb", "grey"]
    bits: int
    halvings: tuple[int, int] = (0, 0)  # how often chroma is halved in (height, width)


_PLANAR = re.compile(r"(yuva?|yuvj)(420|422|444|440|411|410)p(\d+)?(le)?|(gray|gbra?p)(\d+)?(le)?")
_HALVINGS = {
    "444": (0, 0),
    "422": (0, 1),
    "420": (1, 1),
    "440": (1, 0),
    "411": (0, 2),
    "410": (2, 2),
}


def layout_of(name: str) -> Layout | None:
    """The layout of a planar format that we read and write directly; None for others."""
    match = _PLANAR.fullmatch(name)
    if match is None:
        return None
    if match[1]:
        return Layout("yuv", int(match[3] or 8), _HALVINGS[match[2]])
    return Layout("grey" if match[5] == "gray" else "rgb", int(match[6] or 8))


def picture_bytes(name: str) -> float:
    """Bytes of one pixel of a picture of the format `name`."""
    layout = layout_of(planar_format(name))
    assert layout is not None
    chroma = 0.0 if layout.kind == "grey" else 2 / 2 ** sum(layout.halvings)
    return (1 + chroma) * (1 if layout.bits <= 8 else 2)


def planar_format(name: str) -> str:
    """The planar format that holds every sample of `name`; the same where it is one."""
    if layout_of(name):
        return name
    form = VideoFormat(name, 64, 64)
    bits = max(component.bits for component in form.components)
    depth = next(depth for depth in (8, 10, 12, 14, 16) if depth >= min(bits, 16))
    suffix = "" if depth == 8 else f"{depth}le"
    if name.startswith(("gray", "ya")) or name in ("monow", "monob"):
        return f"gray{suffix}"
    if form.is_rgb or form.has_palette or form.is_bayer:
        return f"gbrp{suffix}"
    halved = (64 // form.chroma_height(64), 64 // form.chroma_width(64))
    wanted = (halved[0].bit_length() - 1, halved[1].bit_length() - 1)
    ratio = next((name for name, halvings in _HALVINGS.items() if halvings == wanted), "444")
    return f"yuv{ratio}p{suffix}"


def rgb_of(picture: VideoFrame, colour: Colour, rows: slice = slice(None)) -> Tensor:
    """Rows of a picture, (3, H, W) float32 RGB.

    0 is black and 1 is white, values beyond are kept as they are.
    """
    name = planar_format(picture.format.name)
    if name != picture.format.name:
        picture = picture.reformat(format=name)
    layout = layout_of(name)
    assert layout is not None
    planes = [_samples(plane, layout.bits) for plane in picture.planes]
    start, stop, _ = rows.indices(picture.height)
    rows = slice(start, stop)
    luma_zero, luma_span, chroma_zero, chroma_span = _levels(colour.range, layout.bits)
    rgb = np.empty((3, stop - start, picture.width), np.float32)
    if layout.kind == "grey":
        rgb[:] = (planes[0][rows] - np.float32(luma_zero)) / np.float32(luma_span)
    elif layout.kind == "rgb":
        for channel, plane in zip((1, 2, 0), planes, strict=False):  # stored as G, B, R
            np.divide(plane[rows], np.float32(2**layout.bits - 1), out=rgb[channel])
    else:
        y = (planes[0][rows].astype(np.float32) - np.float32(luma_zero)) * np.float32(1 / luma_span)
        size = (picture.height, picture.width)
        near = rows_near(rows, layout.halvings[0])
        u, v = (
            enlarged(
                (plane[near].astype(np.float32) - np.float32(chroma_zero))
                * np.float32(1 / chroma_span),
                rows,
                size,
                layout.halvings,
                colour.siting,
            )
            for plane in planes[1:3]
        )
        for channel, weights in enumerate(np.linalg.inv(_matrix(colour.matrix))):
            for few in _stripes(stop - start):
                rgb[channel, few] = _mixed([y[few], u[few], v[few]], weights)
    return torch.from_numpy(rgb)


def picture_of(frame: Tensor | Rows, name: str, colour: Colour) -> VideoFrame:
    """(3, H, W) RGB as a picture of the planar format `name`, tagged with its colours."""
    layout = layout_of(name)
    assert layout is not None, name
    height, width = frame.shape[-2:]
    read = rows_of(frame).read
    picture = VideoFrame(width, height, name)
    luma_zero, luma_span, chroma_zero, chroma_span = _levels(colour.range, layout.bits)
    top = 2**layout.bits - 1
    out = [_samples(plane, layout.bits) for plane in picture.planes]
    if layout.kind == "rgb":
        for rows in _stripes(height):
            rgb = _pixels(read(rows.start, rows.stop))
            for channel, plane in zip((1, 2, 0), out, strict=False):
                _quantise(rgb[channel] * np.float32(top), top, plane[rows])
    else:
        matrix = _matrix(colour.matrix)
        chroma = matrix[1:] * chroma_span if layout.kind == "yuv" else matrix[:0]

        def narrow_stripes() -> Iterator[list[Samples]]:
            """Chroma of a few rows at a time, reduced in width; luma is done on the way."""
            for rows in _stripes(height):
                rgb = _pixels(read(rows.start, rows.stop))
                luma = _mixed(rgb, matrix[0] * luma_span)
                luma += np.float32(luma_zero)
                _quantise(luma, top, out[0][rows])
                yield [
                    reduced(_mixed(rgb, weights), 1, layout.halvings[1], colour.siting)
                    for weights in chroma
                ]

        for rows, stripe in shortened(narrow_stripes(), layout.halvings[0], colour.siting):
            for small, plane in zip(stripe, out[1:3], strict=True):
                small += np.float32(chroma_zero)
                _quantise(small, top, plane[rows])
    tag(picture, colour)
    return picture


def tag(target: VideoFrame | av.VideoCodecContext, colour: Colour) -> None:
    """Write on a picture or an encoder what its samples mean."""
    target.colorspace = colour.matrix
    target.color_range = colour.range
    target.color_primaries = colour.primaries
    target.color_trc = colour.transfer


def _levels(range_: int, bits: int) -> tuple[float, float, float, float]:
    """Zero and span of luma, zero and span of chroma, in code values."""
    if range_ == FULL:
        return 0, 2**bits - 1, 2 ** (bits - 1), 2**bits - 1
    step = 2 ** (bits - 8)
    return 16 * step, 219 * step, 128 * step, 224 * step


def _matrix(matrix: int) -> np.ndarray:
    """(3, 3) float64 from RGB to luma in [0, 1] and chroma in [-1/2, 1/2]."""
    if matrix == YCGCO:
        return np.array([[0.25, 0.5, 0.25], [-0.25, 0.5, -0.25], [0.5, 0, -0.5]])
    red, blue = LUMA_WEIGHTS[matrix]
    luma = np.array([red, 1 - red - blue, blue])
    return np.stack(
        [
            luma,
            (np.array([0, 0, 1]) - luma) / (2 * (1 - blue)),
            (np.array([1, 0, 0]) - luma) / (2 * (1 - red)),
        ]
    )


def _stripes(height: int) -> list[slice]:
    """A few rows (or columns) at a time: what is worked on stays in the processor's cache."""
    return [slice(start, min(start + 32, height)) for start in range(0, height, 32)]


def _pixels(frame: Tensor) -> np.ndarray:
    return frame.detach().cpu().float().numpy()


def _mixed(planes: Sequence[Samples] | np.ndarray, weights: np.ndarray) -> Samples:
    """The weighted sum of three planes."""
    total = planes[0] * np.float32(weights[0])
    for plane, weight in zip(planes[1:], weights[1:], strict=True):
        if weight:
            total += plane * np.float32(weight)
    return total


def _samples(plane: av.video.plane.VideoPlane, bits: int) -> Samples:
    """A view of a plane's samples, (H, W)."""
    kind = np.dtype(np.uint8 if bits <= 8 else np.uint16)
    flat = np.frombuffer(memoryview(plane), kind)
    return flat.reshape(plane.height, plane.line_size // kind.itemsize)[:, : plane.width]


def _quantise(values: Samples, top: int, out: Samples) -> None:
    np.rint(values, out=values)
    np.clip(values, 0, top, out=values)
    out[...] = values
