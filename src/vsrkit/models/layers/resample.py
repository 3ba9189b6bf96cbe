"""Resampling by banded matrices: MATLAB's bicubic `imresize` and other filters."""

from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from vsrkit.hardware.threads import single_thread

# Pixels outside of the frame: `symmetric` mirrors with the edge pixel twice (MATLAB's
# imresize), `reflect` with the edge pixel once, `replicate` repeats the edge pixel.
Border: TypeAlias = Literal["symmetric", "reflect", "replicate"]

BLOCK = 16  # output pixels per product: small dense blocks of the band contain few zeros


def imresize(x: Tensor, scale: Fraction | int) -> Tensor:
    """MATLAB's `imresize(x, scale, 'bicubic')`: (..., H, W) -> (..., ceil(sH), ceil(sW)).

    Keys' kernel with a = -0.5, stretched for reduction (antialiasing), mirrored borders. The
    weights are float64; the products have the dtype of `x`.
    """
    height, width = x.shape[-2:]
    return resample(
        x, bicubic_matrix(height, Fraction(scale)), bicubic_matrix(width, Fraction(scale))
    )


def fitted(x: Tensor, height: int, width: int) -> Tensor:
    """The same kernel to a given size: (..., H, W) -> (..., height, width)."""
    rows, columns = x.shape[-2:]
    if (rows, columns) == (height, width):
        return x
    return resample(
        x,
        bicubic_matrix(rows, Fraction(height, rows)),
        bicubic_matrix(columns, Fraction(width, columns)),
    )


def resample(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """`rows @ x @ columns.T` for banded matrices: (..., H, W) -> (..., H', W')."""
    # No autocast: bfloat16 is too coarse for pictures. One thread: the products are many and small.
    with torch.autocast(x.device.type, enabled=False), single_thread():
        if rows.shape[0] * columns.shape[1] > rows.shape[1] * columns.shape[0]:
            return _along_rows(_along_columns(x, columns), rows)  # the smaller product first
        return _along_columns(_along_rows(x, rows), columns)


def _along_rows(x: Tensor, matrix: Tensor) -> Tensor:
    parts = [block.to(x) @ x[..., band, :] for block, band in _blocks(matrix)]
    return torch.cat(parts, dim=-2)


def _along_columns(x: Tensor, matrix: Tensor) -> Tensor:
    parts = [x[..., band] @ block.to(x).T for block, band in _blocks(matrix)]
    return torch.cat(parts, dim=-1)


def _blocks(matrix: Tensor) -> list[tuple[Tensor, slice]]:
    """Groups of rows, cropped to the columns that are not all zero, and the slice of those."""
    result = []
    for block in matrix.split(BLOCK):
        used = block.any(0).nonzero()[:, 0]
        band = slice(int(used[0]), int(used[-1]) + 1)
        result.append((block[:, band], band))
    return result


@lru_cache(maxsize=64)
@torch.inference_mode(False)  # a cached matrix must also work where gradients are needed
def bicubic_matrix(length: int, scale: Fraction) -> Tensor:
    """The (ceil(scale * length), length) float64 matrix that resizes one axis."""
    stretch = min(scale, Fraction(1))  # for reduction the kernel is stretched
    count = ceil(Fraction(4) / stretch) + 2
    out = torch.arange(ceil(length * scale), dtype=torch.float64)
    centre = (out + 0.5) / float(scale) - 0.5
    first = (centre - 2 / float(stretch)).floor()
    taps = first[:, None] + torch.arange(count)
    weights = cubic(float(stretch) * (centre[:, None] - taps))
    return tap_matrix(taps.long(), weights, length, "symmetric")


def tap_matrix(taps: Tensor, weights: Tensor, length: int, border: Border) -> Tensor:
    """The (N, length) matrix whose row n has `weights[n]` (scaled to sum to one) at `taps[n]`.

    taps, weights: (N, K); taps outside of [0, length) are moved inside according to `border`
    """
    weights = weights.double()
    weights = weights / weights.sum(1, keepdim=True)
    matrix = torch.zeros(len(taps), length, dtype=torch.float64)
    return matrix.scatter_add_(1, _inside(taps, length, border), weights)


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
