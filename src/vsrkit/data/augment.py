"""Random crops, flips and time reversal of training clips; equal for all frames of a clip."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vsrkit.data.clips import request_rows
from vsrkit.data.degrade import Degrader
from vsrkit.errors import DataError

Size: TypeAlias = tuple[int, int, int]  # frames, rows and columns (LR pixels)


@dataclass(frozen=True, slots=True)
class Placement:
    """Position of a crop in LR pixels, and how it is flipped, transposed and reversed."""

    start: int  # index of the first frame
    row: int
    column: int
    flip_rows: bool = False
    flip_columns: bool = False
    transpose: bool = False
    reverse: bool = False


def place(
    rng: np.random.Generator,
    shape: tuple[int, int, int],
    *,
    frames: int,
    crop: int,
    scale: int,
    flips: bool,
    reversal: bool,
) -> Placement:
    """Choose a random crop.

    Args:
        rng: random numbers; the options do not change how many are drawn.
        shape: (T, H, W) of the HR clip.
        frames: number of frames of the crop.
        crop: LR pixels along each side.
        scale: HR pixels per LR pixel.
        flips: allow flips and transposition.
        reversal: allow time reversal.
    """
    t, h, w = shape
    room = (t - frames, h // scale - crop, w // scale - crop)
    if min(room) < 0:
        raise DataError(
            f"a clip of {t} frames of {w}x{h} is too small for {frames} frames of "
            f"{crop * scale}x{crop * scale}"
        )
    start, row, column = (int(rng.integers(0, r + 1)) for r in room)
    coins = rng.random(4) < 0.5
    rows, columns, transpose = (bool(c) and flips for c in coins[:3])
    return Placement(start, row, column, rows, columns, transpose, bool(coins[3]) and reversal)


def cut(
    pixels: NDArray[np.uint8], where: Placement, how: Degrader, rng: np.random.Generator, size: Size
) -> tuple[Tensor, Tensor]:
    """Make the (lr, hr) pair of a crop: (t, 3, h, w) and (t, 3, sh, sw) in [0, 1].

    The crop is degraded together with the pixels and frames around it, if the clip has them, so
    that the LR crop equals a crop of the degraded clip (approximately, for encoders).

    Args:
        pixels: (T, H, W, 3) HR clip.
        where: position and orientation of the crop.
        how: the degradation.
        rng: random numbers for the degradation.
        size: frames, rows and columns of the crop in LR pixels.
    """
    (frames, rows, columns), s, reach = size, how.scale, how.reach
    first, last = max(0, where.start - reach.before), where.start + frames + reach.after
    top, left = max(0, where.row - reach.pixels), max(0, where.column - reach.pixels)
    bottom = min(pixels.shape[1] // s, where.row + rows + reach.pixels)
    right = min(pixels.shape[2] // s, where.column + columns + reach.pixels)
    request_rows(pixels, range(first, min(last, len(pixels))), range(top * s, bottom * s))
    around = to_clip(pixels[first:last, top * s : bottom * s, left * s : right * s])
    t, y, x = where.start - first, where.row - top, where.column - left
    lr = how(around, rng)[t : t + frames, :, y : y + rows, x : x + columns]
    hr = around[t : t + frames, :, y * s : (y + rows) * s, x * s : (x + columns) * s]
    return turn(lr, where), turn(hr, where)


def cut_hr(pixels: NDArray[np.uint8], where: Placement, scale: int, size: Size) -> Tensor:
    """Cut the HR crop alone: (T, H, W, 3) uint8 -> (t, 3, sh, sw) in [0, 1]."""
    frames = slice(where.start, where.start + size[0])
    rows = slice(where.row * scale, (where.row + size[1]) * scale)
    columns = slice(where.column * scale, (where.column + size[2]) * scale)
    request_rows(pixels, range(frames.start, frames.stop), range(rows.start, rows.stop))
    return turn(to_clip(pixels[frames, rows, columns]), where)


def turn(clip: Tensor, where: Placement) -> Tensor:
    """Flip, transpose and reverse a clip (T, 3, H, W) according to `where`."""
    axes = [-2] * where.flip_rows + [-1] * where.flip_columns + [0] * where.reverse
    clip = clip.flip(axes) if axes else clip
    return clip.mT if where.transpose else clip


def to_clip(pixels: NDArray[np.uint8]) -> Tensor:
    """Convert (T, H, W, 3) uint8 to (T, 3, H, W) float in [0, 1]."""
    return torch.from_numpy(np.array(pixels)).permute(0, 3, 1, 2).float() / 255
