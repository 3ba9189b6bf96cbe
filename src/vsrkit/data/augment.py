"""Where a training crop lies and how it is turned: the same for every frame of a clip."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vsrkit.data.random_degradation import Degrader
from vsrkit.errors import DataError

Size: TypeAlias = tuple[int, int, int]  # frames, rows and columns (LR pixels)


@dataclass(frozen=True, slots=True)
class Placement:
    """Frames, rows and columns of a crop (LR pixels) and how it is turned afterwards."""

    start: int
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
    """A random crop of a clip of `shape` (T, H, W); takes the same numbers from `rng` always."""
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
    pixels: NDArray[np.uint8],
    where: Placement,
    how: Degrader,
    rng: np.random.Generator,
    size: Size,
) -> tuple[Tensor, Tensor]:
    """The (lr, hr) pair of a crop: (T, H, W, 3) uint8 -> (t, 3, h, w), (t, 3, sh, sw) in [0, 1].

    Degrades the crop with what lies around it, which the borders of frame and clip may cut short:
    so the LR crop is what one would cut out of the degraded clip, for encoders nearly so.
    """
    (frames, rows, columns), s, reach = size, how.scale, how.reach
    first, last = max(0, where.start - reach.before), where.start + frames + reach.after
    top, left = max(0, where.row - reach.pixels), max(0, where.column - reach.pixels)
    bottom = min(pixels.shape[1] // s, where.row + rows + reach.pixels)
    right = min(pixels.shape[2] // s, where.column + columns + reach.pixels)
    around = to_clip(pixels[first:last, top * s : bottom * s, left * s : right * s])
    t, y, x = where.start - first, where.row - top, where.column - left
    lr = how(around, rng)[t : t + frames, :, y : y + rows, x : x + columns]
    hr = around[t : t + frames, :, y * s : (y + rows) * s, x * s : (x + columns) * s]
    return turn(lr, where), turn(hr, where)


def cut_hr(pixels: NDArray[np.uint8], where: Placement, scale: int, size: Size) -> Tensor:
    """The crop of large frames alone: (T, H, W, 3) uint8 -> (t, 3, sh, sw) in [0, 1]."""
    frames = slice(where.start, where.start + size[0])
    rows = slice(where.row * scale, (where.row + size[1]) * scale)
    columns = slice(where.column * scale, (where.column + size[2]) * scale)
    return turn(to_clip(pixels[frames, rows, columns]), where)


def turn(clip: Tensor, where: Placement) -> Tensor:
    """Flip, transpose and reverse (T, 3, H, W)."""
    axes = [-2] * where.flip_rows + [-1] * where.flip_columns + [0] * where.reverse
    clip = clip.flip(axes) if axes else clip
    return clip.mT if where.transpose else clip


def to_clip(pixels: NDArray[np.uint8]) -> Tensor:
    """(T, H, W, 3) uint8 -> (T, 3, H, W) float in [0, 1]."""
    return torch.from_numpy(np.array(pixels)).permute(0, 3, 1, 2).float() / 255
