"""Where a training crop lies and how it is turned: the same for every frame of a clip."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vsrkit.data.realistic import Degrader
from vsrkit.errors import DataError

MARGIN = 4  # LR pixels around a crop that degrading it needs: BI reaches 2, BD 2, an encoder more


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
    *,
    frames: int,
    crop: int,
) -> tuple[Tensor, Tensor]:
    """The (lr, hr) pair of a crop: (T, H, W, 3) uint8 -> (T, 3, h, w), (T, 3, sh, sw) in [0, 1].

    Degrades the crop with a margin, which the frame's borders may cut short: so the LR crop is
    what one would cut out of the degraded frame, but for encoders, whose choices reach anywhere.
    """
    s = how.scale
    h, w = pixels.shape[1] // s, pixels.shape[2] // s
    top, left = max(0, where.row - MARGIN), max(0, where.column - MARGIN)
    bottom, right = min(h, where.row + crop + MARGIN), min(w, where.column + crop + MARGIN)
    time = slice(where.start, where.start + frames)
    around = to_clip(pixels[time, top * s : bottom * s, left * s : right * s])
    lr = how(around, rng)
    y, x = where.row - top, where.column - left
    lr = lr[..., y : y + crop, x : x + crop]
    hr = around[..., y * s : (y + crop) * s, x * s : (x + crop) * s]
    return turn(lr, where), turn(hr, where)


def turn(clip: Tensor, where: Placement) -> Tensor:
    """Flip, transpose and reverse (T, 3, H, W)."""
    axes = [-2] * where.flip_rows + [-1] * where.flip_columns + [0] * where.reverse
    clip = clip.flip(axes) if axes else clip
    return clip.mT if where.transpose else clip


def to_clip(pixels: NDArray[np.uint8]) -> Tensor:
    """(T, H, W, 3) uint8 -> (T, 3, H, W) float in [0, 1]."""
    return torch.from_numpy(np.array(pixels)).permute(0, 3, 1, 2).float() / 255
