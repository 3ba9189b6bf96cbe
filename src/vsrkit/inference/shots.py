"""Detect cuts, so that no model looks across one.

Each frame is reduced to a small copy and compared with the previous one the way a video encoder
does: the residual after motion compensation of every block (inter) against the residual after
subtracting the block's own mean (intra). After a cut the previous frame does not help, and the two
are about equal. The ratio does not depend on brightness, so it works in dark scenes too.

The thresholds were measured: notes/decisions/0016-shot-detection.md.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

Picture = NDArray[np.float32]  # (3, H, W)

HEIGHT, WIDTH = 36, 64  # of the small copies
BLOCK = (9, 8)
REACH = 4  # search range of a block in each direction, pixels of the small copy
COARSE = 4  # the small copy is reduced by this factor to search for global motion
FAR = (3, 5)  # range of that search in rows and columns: a third of the frame
NOISE = 0.005  # changes below this are ignored, in [0, 1]

LIKELY = 0.5  # a change that is a cut if it is large compared with its neighbours
CERTAIN = 0.85  # a change that is a cut whatever its neighbours are
STANDS_OUT = 2.0  # minimum ratio to the changes before and after
STEADY = 0.5  # a frame is between its neighbours if it is nearer to their mean than this
BRIGHTER = 0.03  # minimum brightness of a flash above the frames on either side

BEFORE, AHEAD = 3, 2  # neighbouring frames that the decision about a frame uses


@dataclass(frozen=True, slots=True)
class _Small:
    picture: Picture
    change: float  # since the frame before; 0 for the first

    @property
    def brightness(self) -> float:
        return float(self.picture.mean())


def mark_cuts(frames: Iterable[Tensor]) -> Iterator[tuple[Tensor, bool]]:
    """Yield each frame (3, H, W) in [0, 1] with True where it begins a new shot.

    The first frame gets False. Fades, dissolves (of two or more mixed frames), flashes of one or
    two frames and fast pans are not cuts. The decision about a frame depends only on the three
    frames before it and the two after it. Holds three frames.
    """
    waiting: deque[Tensor] = deque()
    small: deque[_Small] = deque(maxlen=BEFORE + 1 + AHEAD)
    for frame in frames:
        waiting.append(frame)
        picture = _shrunk(frame)
        small.append(_Small(picture, change(small[-1].picture, picture) if small else 0.0))
        if len(waiting) > AHEAD:
            yield waiting.popleft(), _is_cut(small, len(small) - 1 - AHEAD)
    while waiting:
        number = len(small) - len(waiting)
        yield waiting.popleft(), _is_cut(small, number)


def _is_cut(small: Sequence[_Small], at: int) -> bool:
    now = small[at].change
    if now < LIKELY or at == 0:
        return False
    around = max(small[at - 1].change, small[at + 1].change if at + 1 < len(small) else 0.0)
    if now < CERTAIN and now < STANDS_OUT * around:
        return False  # fast motion before and after as well
    return not _is_gradual(small, at) and not _is_flash(small, at)


def _is_gradual(small: Sequence[_Small], at: int) -> bool:
    """Whether the step to frame `at` is one of three or more equal steps: a fade or a dissolve."""
    steady = [_is_between(small, number) for number in range(at - 2, at + 2)]
    return any(a and b for a, b in pairwise(steady))


def _is_between(small: Sequence[_Small], at: int) -> bool:
    """Whether a frame is close to the mean of its neighbours, and these differ."""
    if not 0 < at < len(small) - 1:
        return False
    before, now, after = (small[n].picture for n in (at - 1, at, at + 1))
    bend = np.abs(now - (before + after) / 2).mean()
    return bool(bend < STEADY * np.abs(after - before).mean() / 2)


def _is_flash(small: Sequence[_Small], at: int) -> bool:
    """Whether the step is into or out of one or two brighter frames within the same shot."""
    for first, after in ((at, at + 1), (at, at + 2), (at - 1, at), (at - 2, at)):
        before = first - 1
        if before < 0 or after >= len(small):
            continue
        sides = max(small[before].brightness, small[after].brightness)
        bright = min(small[n].brightness for n in range(first, after))
        if bright > sides + BRIGHTER and _is_alike(small[before].picture, small[after].picture):
            return True
    return False


def _is_alike(a: Picture, b: Picture) -> bool:
    """Whether two pictures are equal apart from brightness (a flash may fade slowly)."""
    a, b = (x - x.mean((1, 2), keepdims=True) for x in (a, b))
    return change(a, b) < LIKELY


def _shrunk(frame: Tensor) -> Picture:
    return F.adaptive_avg_pool2d(frame.float(), (HEIGHT, WIDTH)).cpu().numpy()


def change(before: Picture, now: Picture) -> float:
    """Change between two small pictures: 0 if equal, about 1 or more if unrelated.

    Below half of LIKELY the exact value does not matter, and the motion search is skipped.
    """
    in_place = float(np.abs(now - before).mean()) / _detail(before, now)
    if in_place < LIKELY / STANDS_OUT:
        return in_place
    near = _unlike(before, now)
    return min(near, _after_panning(before, now)) if near >= LIKELY else near


def _unlike(before: Picture, now: Picture) -> float:
    """Residual of blocks after a motion search within REACH, divided by their own contrast."""
    height, width = now.shape[1:]
    wide = np.pad(before, ((0, 0), (REACH, REACH), (REACH, REACH)), mode="edge")
    offsets = range(2 * REACH + 1)
    difference = np.empty_like(now)
    left = []
    for y, x in product(offsets, offsets):
        np.subtract(wide[:, y : y + height, x : x + width], now, out=difference)
        np.abs(difference, out=difference)
        left.append(_block_means(difference.sum(0) / 3))
    return float(np.min(left, axis=0).mean()) / _detail(before, now)


def _after_panning(before: Picture, now: Picture) -> float:
    """The same for the area that both pictures show, after a search for global motion."""
    small_before, small_now = (_pooled(x, COARSE) for x in (before, now))
    (rows, columns) = FAR
    shifts = product(range(-rows, rows + 1), range(-columns, columns + 1))

    def difference(shift: tuple[int, int]) -> float:
        a, b = _shared(small_before, small_now, *shift)
        return float(np.abs(a - b).mean())

    y, x = min(shifts, key=difference)
    a, b = _shared(before, now, y * COARSE, x * COARSE)
    height, width = (side // block * block for side, block in zip(a.shape[1:], BLOCK, strict=True))
    share = a.shape[1] * a.shape[2] / (HEIGHT * WIDTH)  # a smaller area is less similar
    return _unlike(a[:, :height, :width], b[:, :height, :width]) / share


def _shared(before: Picture, now: Picture, y: int, x: int) -> tuple[Picture, Picture]:
    """The common area of two pictures if the content moved by (-x, -y) in between."""
    height, width = now.shape[1:]
    a = before[:, max(0, y) : height + min(0, y), max(0, x) : width + min(0, x)]
    b = now[:, max(0, -y) : height + min(0, -y), max(0, -x) : width + min(0, -x)]
    return a, b


def _detail(a: Picture, b: Picture) -> float:
    """Mean contrast inside blocks, of the picture with more of it; never zero."""
    return NOISE + float(np.maximum(_contrast(a), _contrast(b)).mean())


def _contrast(picture: Picture) -> Picture:
    rows, columns = BLOCK
    c, height, width = picture.shape
    blocks = picture.reshape(c, height // rows, rows, width // columns, columns)
    return np.abs(blocks - blocks.mean((2, 4), keepdims=True)).mean((0, 2, 4))


def _block_means(plane: Picture) -> Picture:
    """(H, W) -> (H / rows, W / columns), by two matrix products, several times faster than mean."""
    (rows, columns), (height, width) = BLOCK, plane.shape
    means = _averaging(height, rows) @ plane @ _averaging(width, columns).T
    return means.astype(np.float32, copy=False)


@lru_cache(maxsize=32)
def _averaging(length: int, block: int) -> Picture:
    """The (length / block, length) matrix that averages each block."""
    return np.repeat(np.eye(length // block, dtype=np.float32), block, axis=1) / np.float32(block)


def _pooled(picture: Picture, factor: int) -> Picture:
    c, height, width = picture.shape
    return picture.reshape(c, height // factor, factor, width // factor, factor).mean((2, 4))
