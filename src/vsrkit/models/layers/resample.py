"""Resampling by banded matrices, such as MATLAB's bicubic `imresize`, and pixels as channels."""

from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from vsrkit.hardware.threads import single_thread
from vsrkit.models.layers.blocks import memory_format_of, upsample_bilinear
from vsrkit.models.layers.flow import warp

# Pixels outside of the frame: `symmetric` mirrors with the edge pixel twice (MATLAB's
# imresize), `reflect` with the edge pixel once, `replicate` repeats the edge pixel.
Border: TypeAlias = Literal["symmetric", "reflect", "replicate"]

Blocks: TypeAlias = list[tuple[Tensor, slice]]

BLOCK = 16  # output pixels per product: small dense blocks of the band contain few zeros


def imresize(x: Tensor, scale: Fraction | int) -> Tensor:
    """MATLAB's `imresize(x, scale, 'bicubic')`: (..., H, W) -> (..., ceil(sH), ceil(sW)).

    Keys' kernel with a = -0.5, stretched for reduction (antialiasing), mirrored borders. The
    weights are float64; the products have the dtype of `x`.
    """
    height, width = x.shape[-2:]
    return _resample(
        x, _bicubic_blocks(height, Fraction(scale)), _bicubic_blocks(width, Fraction(scale))
    )


def fitted(x: Tensor, height: int, width: int) -> Tensor:
    """The same kernel to a given size: (..., H, W) -> (..., height, width)."""
    rows, columns = x.shape[-2:]
    if (rows, columns) == (height, width):
        return x
    return _resample(
        x,
        _bicubic_blocks(rows, Fraction(height, rows)),
        _bicubic_blocks(columns, Fraction(width, columns)),
    )


def resample(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """`rows @ x @ columns.T` for banded matrices: (..., H, W) -> (..., H', W')."""
    return _resample(x, _blocks(rows), _blocks(columns))


def _resample(x: Tensor, rows: Blocks, columns: Blocks) -> Tensor:
    high, wide = (sum(len(block) for block, _ in blocks) for blocks in (rows, columns))
    height, width = x.shape[-2:]
    # No autocast: bfloat16 is too coarse for pictures. One thread: the products are many and small.
    with torch.autocast(x.device.type, enabled=False), single_thread():
        if high * width > height * wide:
            return _along_rows(_along_columns(x, columns), rows)  # the smaller product first
        return _along_columns(_along_rows(x, rows), columns)


def _along_rows(x: Tensor, blocks: Blocks) -> Tensor:
    parts = [block.to(x) @ x[..., band, :] for block, band in blocks]
    return torch.cat(parts, dim=-2)


def _along_columns(x: Tensor, blocks: Blocks) -> Tensor:
    parts = [x[..., band] @ block.to(x).T for block, band in blocks]
    return torch.cat(parts, dim=-1)


def _blocks(matrix: Tensor) -> Blocks:
    """Groups of rows, cropped to the columns that are not all zero, and the slice of those."""
    return [_cropped(block, 0) for block in matrix.split(BLOCK)]


def _cropped(block: Tensor, start: int) -> tuple[Tensor, slice]:
    """Some rows of a matrix without the columns that are zero; the first column is `start`."""
    used = block.any(0).nonzero()[:, 0]
    first, last = int(used[0]), int(used[-1]) + 1
    return block[:, first:last].clone(), slice(start + first, start + last)


@lru_cache(maxsize=64)
@torch.inference_mode(False)
def _bicubic_blocks(length: int, scale: Fraction) -> Blocks:
    """The blocks of `bicubic_matrix` without the whole matrix, which has gigabytes for 8K."""
    taps, weights = _bicubic_taps(length, scale)
    blocks = []
    for part, weight in zip(taps.split(BLOCK), weights.split(BLOCK), strict=True):
        inside = _inside(part, length, "symmetric")
        start = int(inside.min())
        blocks.append(_cropped(_scattered(inside - start, weight), start))
    return blocks


@lru_cache(maxsize=64)
@torch.inference_mode(False)  # a cached matrix must also work where gradients are needed
def bicubic_matrix(length: int, scale: Fraction) -> Tensor:
    """The (ceil(scale * length), length) float64 matrix that resizes one axis."""
    return tap_matrix(*_bicubic_taps(length, scale), length, "symmetric")


def _bicubic_taps(length: int, scale: Fraction) -> tuple[Tensor, Tensor]:
    """Places in the input and their weights, for each place in the output."""
    stretch = min(scale, Fraction(1))  # for reduction the kernel is stretched
    count = ceil(Fraction(4) / stretch) + 2
    out = torch.arange(ceil(length * scale), dtype=torch.float64)
    centre = (out + 0.5) / float(scale) - 0.5
    first = (centre - 2 / float(stretch)).floor()
    taps = first[:, None] + torch.arange(count)
    weights = cubic(float(stretch) * (centre[:, None] - taps))
    return taps.long(), weights


def tap_matrix(taps: Tensor, weights: Tensor, length: int, border: Border) -> Tensor:
    """The (N, length) matrix whose row n has `weights[n]` (scaled to sum to one) at `taps[n]`.

    taps, weights: (N, K); taps outside of [0, length) are moved inside according to `border`
    """
    return _scattered(_inside(taps, length, border), weights, length)


def _scattered(places: Tensor, weights: Tensor, length: int | None = None) -> Tensor:
    """The matrix with these weights, scaled to a sum of one; as wide as needed if not `length`."""
    weights = weights.double()
    weights = weights / weights.sum(1, keepdim=True)
    width = int(places.max()) + 1 if length is None else length
    matrix = torch.zeros(len(places), width, dtype=torch.float64)
    return matrix.scatter_add_(1, places, weights)


def _inside(taps: Tensor, length: int, border: Border) -> Tensor:
    match border:
        case "replicate":
            return taps.clamp(0, length - 1)
        case "symmetric":
            taps = taps.remainder(2 * length)
            return torch.where(taps < length, taps, 2 * length - 1 - taps)
        case "reflect":
            taps = taps.remainder(max(2 * length - 2, 1))
            return torch.where(taps < length, taps, 2 * length - 2 - taps)


def cubic(x: Tensor) -> Tensor:
    """Keys' kernel with a = -0.5."""
    x = x.abs()
    near = 1.5 * x**3 - 2.5 * x**2 + 1
    far = -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
    return torch.where(x <= 1, near, torch.where(x <= 2, far, torch.zeros_like(x)))


def middle(x: Tensor, height: int, width: int) -> Tensor:
    """The centre of (..., H, W), at most `height` x `width`."""
    high, wide = x.shape[-2:]
    top, left = max(0, high - height) // 2, max(0, wide - width) // 2
    return x[..., top : top + height, left : left + width]


def stack_pixels(frame: Tensor, stack: int) -> Tensor:
    """(B, 3, sH, sW) -> (B, 3 * s^2, H, W): `stack` x `stack` pixels in channels."""
    return frame if stack == 1 else F.pixel_unshuffle(frame, stack)


def reduce_to_grid(frame: Tensor, stack: int) -> Tensor:
    """(B, 3, sH, sW) -> (B, 3, H, W): the mean of `stack` x `stack` pixels."""
    return frame if stack == 1 else F.avg_pool2d(frame, stack)


def enlarge_flow(flow: Tensor, stack: int) -> Tensor:
    """A flow on the grid (B, 2, H, W), in its pixels -> on the frame (B, 2, sH, sW), in its."""
    return flow if stack == 1 else stack * upsample_bilinear(flow, stack)


def warp_stacked(features: Tensor, flow: Tensor, stack: int) -> Tensor:
    """Warp features of the grid whose channels are maps of `stack` x `stack` pixels.

    A motion by one pixel of the frame is half a pixel of the grid: interpolated there, the detail
    would be lost. So the features are unfolded to the size of the frame, warped, and folded again.

    features: (B, C, H, W)
    flow: (B, 2, H, W), in pixels of the grid
    """
    if stack == 1:
        return warp(features, flow)
    unfolded = warp(F.pixel_shuffle(features, stack), enlarge_flow(flow, stack))
    folded = F.pixel_unshuffle(unfolded, stack)
    return folded.contiguous(memory_format=memory_format_of(features))


def stacked_weight(weight: Tensor, stack: int) -> Tensor:
    """Weights (N, 3 + C, 3, 3) of a convolution of one pixel per grid pixel -> of stacked ones.

    Each of the stacked pixels gets an equal share, so that the result is that of their mean.
    """
    colours, features = weight[:, :3], weight[:, 3:]
    return torch.cat([colours.repeat_interleave(stack**2, 1) / stack**2, features], 1)
