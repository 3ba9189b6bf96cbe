"""Conversion between decoded pictures and float RGB: matrix, range, bit depth, chroma siting.

Nothing is clipped when reading, and writing is the exact inverse: a picture that no model changed
is restored bit by bit. That includes subsampled chroma. It is upsampled linearly and downsampled by
the filter that inverts this: the LeGall 5/3 pair where chroma is sited on a luma sample, its
counterpart of even length where it is sited between two.
"""

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, TypeAlias

import av
import numpy as np
import torch
from av.video.format import VideoFormat
from av.video.frame import VideoFrame
from torch import Tensor

from vsrkit.hardware.memory import Rows, as_rows

Samples: TypeAlias = np.ndarray  # (H, W), integers or float32
Siting: TypeAlias = Literal["left", "center", "topleft", "top"]

# Codes of ITU-T H.273, used by files and by FFmpeg.
UNKNOWN, BT709, BT601_625, BT601, BT2020 = 2, 1, 5, 6, 9
LIMITED, FULL = 1, 2
YCGCO = 8
LUMA_WEIGHTS = {  # weights of red and blue, by matrix
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
    """The meaning of a picture's samples: codes of H.273 and the position of chroma."""

    matrix: int = BT709
    range: int = LIMITED
    primaries: int = UNKNOWN
    transfer: int = UNKNOWN
    siting: Siting = "left"  # position of a chroma sample among its luma samples


def effective_matrix(matrix: int, *, height: int, width: int) -> int:
    """The matrix for a tag; untagged video is BT.601 up to 1024x576 and BT.709 above.

    That is what players assume. The output must be tagged with it, because it is larger.
    """
    if matrix in LUMA_WEIGHTS or matrix == YCGCO:
        return matrix
    return BT601 if height <= 576 and width <= 1024 else BT709


@dataclass(frozen=True, slots=True)
class Layout:
    """A planar pixel format with samples in native byte order."""

    kind: Literal["yuv", "rgb", "grey"]
    bits: int
    halvings: tuple[int, int] = (0, 0)  # log2 of the chroma subsampling in (height, width)


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
    """The layout of a pixel format that is read and written directly; None for other formats."""
    match = _PLANAR.fullmatch(name)
    if match is None:
        return None
    if match[1]:
        return Layout("yuv", int(match[3] or 8), _HALVINGS[match[2]])
    return Layout("grey" if match[5] == "gray" else "rgb", int(match[6] or 8))


def bytes_per_pixel(name: str) -> float:
    """Bytes per pixel of a picture in a pixel format, chroma included."""
    layout = layout_of(planar_format(name))
    assert layout is not None
    chroma = 0.0 if layout.kind == "grey" else 2 / 2 ** sum(layout.halvings)
    return (1 + chroma) * (1 if layout.bits <= 8 else 2)


def planar_format(name: str) -> str:
    """The planar format that holds every sample of a pixel format; itself if it is planar."""
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


def to_rgb(picture: VideoFrame, colour: Colour, rows: slice = slice(None)) -> Tensor:
    """Convert a picture to (3, H, W) float32 RGB; 0 is black, 1 is white, nothing is clipped.

    picture: a decoded frame in any pixel format.
    colour: the meaning of its samples.
    rows: convert only these rows.
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
        near = _chroma_rows(rows, layout.halvings[0])
        u, v = (
            _upsample_chroma(
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
            for part in _stripes(stop - start):
                rgb[channel, part] = _weighted_sum([y[part], u[part], v[part]], weights)
    return torch.from_numpy(rgb)


def checksum(picture: VideoFrame) -> int:
    """CRC-32 of the visible samples of a picture, its format, size and colour tags."""
    kind = picture.format.name, picture.height, picture.width
    tags = picture.colorspace, picture.color_range
    name = planar_format(picture.format.name)
    if name != picture.format.name:
        picture = picture.reformat(format=name)
    layout = layout_of(name)
    assert layout is not None
    crc = zlib.crc32(repr((kind, tags)).encode())
    for plane in picture.planes:
        # Without the padding at the end of each line.
        crc = zlib.crc32(np.ascontiguousarray(_samples(plane, layout.bits)).data, crc)
    return crc


def from_rgb(frame: Tensor | Rows, name: str, colour: Colour) -> VideoFrame:
    """Convert (3, H, W) RGB to a picture of the planar format `name` with colour tags."""
    layout = layout_of(name)
    assert layout is not None, name
    height, width = frame.shape[-2:]
    read = as_rows(frame).read
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
            """Chroma of a few rows at a time, downsampled in width; also writes their luma."""
            for rows in _stripes(height):
                rgb = _pixels(read(rows.start, rows.stop))
                luma = _weighted_sum(rgb, matrix[0] * luma_span)
                luma += np.float32(luma_zero)
                _quantise(luma, top, out[0][rows])
                full = (_weighted_sum(rgb, weights) for weights in chroma)
                yield [
                    _downsample_chroma(plane, 1, layout.halvings[1], colour.siting)
                    for plane in full
                ]

        for rows, stripe in _downsample_stripes(
            narrow_stripes(), layout.halvings[0], colour.siting
        ):
            for small, plane in zip(stripe, out[1:3], strict=True):
                small += np.float32(chroma_zero)
                _quantise(small, top, plane[rows])
    set_colour_tags(picture, colour)
    return picture


def set_colour_tags(target: VideoFrame | av.VideoCodecContext, colour: Colour) -> None:
    """Set the colour tags of a picture or an encoder."""
    target.colorspace = colour.matrix
    target.color_range = colour.range
    target.color_primaries = colour.primaries
    target.color_trc = colour.transfer


def _levels(range_: int, bits: int) -> tuple[float, float, float, float]:
    """Offset and span of luma, offset and span of chroma, in code values."""
    if range_ == FULL:
        return 0, 2**bits - 1, 2 ** (bits - 1), 2**bits - 1
    step = 2 ** (bits - 8)
    return 16 * step, 219 * step, 128 * step, 224 * step


def _matrix(matrix: int) -> np.ndarray:
    """(3, 3) float64 matrix from RGB to luma in [0, 1] and chroma in [-1/2, 1/2]."""
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
    """Slices of 32 rows, so that the data stays in the processor's cache."""
    return [slice(start, min(start + 32, height)) for start in range(0, height, 32)]


def _pixels(frame: Tensor) -> np.ndarray:
    return frame.detach().cpu().float().numpy()


def _weighted_sum(planes: Sequence[Samples] | np.ndarray, weights: np.ndarray) -> Samples:
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


MARGIN = 8  # extra chroma rows above and below: more than any of the filters reads


def _chroma_rows(rows: slice, halvings: int) -> slice:
    """The chroma rows that `_upsample_chroma` needs for these luma rows."""
    step = 2**halvings
    return slice(max(0, rows.start // step - MARGIN), -(-rows.stop // step) + MARGIN)


def _upsample_chroma(
    chroma: Samples, rows: slice, size: tuple[int, int], halvings: tuple[int, int], siting: Siting
) -> Samples:
    """Rows of chroma at the resolution of luma, equal to those of the whole plane upsampled.

    chroma: the rows `_chroma_rows(rows, ...)` of the plane.
    size: (height, width) of luma.
    """
    above = _chroma_rows(rows, halvings[0]).start * 2 ** halvings[0]  # luma rows above `chroma`
    height = min(size[0] - above, len(chroma) * 2 ** halvings[0])
    for axis, side in enumerate((height, size[1])):
        for step in reversed(range(halvings[axis])):
            length = -(-side // 2**step)
            chroma = _double(chroma, axis, length, on_sample=_on_sample(siting)[axis])
    return chroma[rows.start - above : rows.stop - above]


def _downsample_chroma(chroma: Samples, axis: int, halvings: int, siting: Siting) -> Samples:
    """Chroma at its stored resolution along an axis; the inverse of `_upsample_chroma`."""
    for _ in range(halvings):
        chroma = _halve(chroma, axis, on_sample=_on_sample(siting)[axis])
    return chroma


def _downsample_stripes(
    stripes: Iterable[list[Samples]], halvings: int, siting: Siting
) -> Iterator[tuple[slice, list[Samples]]]:
    """Downsample planes in height, stripe by stripe, with the result of the whole planes.

    Each stripe is filtered with a few rows of its neighbours. Yields the rows of the result and
    the planes.
    """
    start = 0
    for above, here, below in _with_neighbours(stripes):
        made = []
        for k, plane in enumerate(here):
            parts = [above[k][-MARGIN:]] if above else []
            parts += [plane, *([below[k][:MARGIN]] if below else [])]
            whole = _downsample_chroma(np.concatenate(parts), 0, halvings, siting)
            skipped = MARGIN >> halvings if above else 0
            made.append(whole[skipped : skipped + -(-len(plane) // 2**halvings)])
        stop = start + (len(made[0]) if made else 0)
        yield slice(start, stop), made
        start = stop


def _on_sample(siting: Siting) -> tuple[bool, bool]:
    """Whether chroma is sited on the first of its luma samples, in (height, width)."""
    return siting in ("topleft", "top"), siting in ("left", "topleft")


def _with_neighbours(
    stripes: Iterable[list[Samples]],
) -> Iterator[tuple[list[Samples], list[Samples], list[Samples]]]:
    """Each stripe with the one above and the one below; an empty list where there is none."""
    ends: list[list[Samples]] = [[]]
    above: list[Samples] = []
    here: list[Samples] | None = None
    for below in chain(stripes, ends):
        if here is not None:
            yield above, here, below
            above = here
        here = below


def _double(x: Samples, axis: int, length: int, *, on_sample: bool) -> Samples:
    x = np.moveaxis(x, axis, 0)
    out = np.empty((length, *x.shape[1:]), np.float32)
    after = np.concatenate([x[1:], x[-1:]])
    if on_sample:
        out[0::2] = x
        out[1::2] = ((x + after) * np.float32(0.5))[: length // 2]
    else:
        before = np.concatenate([x[:1], x[:-1]])
        near = x * np.float32(0.75)
        out[0::2] = near + before * np.float32(0.25)
        out[1::2] = (near + after * np.float32(0.25))[: length // 2]
    return np.moveaxis(out, 0, axis)


def _halve(x: Samples, axis: int, *, on_sample: bool) -> Samples:
    length = x.shape[axis]
    count = -(-length // 2)
    # Both filters read up to two samples before the first and three after the last.
    mode: Literal["reflect", "symmetric"] = "reflect" if on_sample else "symmetric"
    around = np.pad(x, [(2, 3) if axis == side else (0, 0) for side in (0, 1)], mode=mode)

    def every_second(start: int) -> Samples:
        taken = slice(start, start + 2 * count, 2)
        return around[taken] if axis == 0 else around[:, taken]

    if on_sample:
        near, far = every_second(1) + every_second(3), every_second(0) + every_second(4)
        near *= np.float32(2 / 8)
        near += every_second(2) * np.float32(6 / 8)
        far *= np.float32(1 / 8)
    else:
        near, far = every_second(2) + every_second(3), every_second(1) + every_second(4)
        near *= np.float32(6 / 8)
        far *= np.float32(2 / 8)
    near -= far
    return near
