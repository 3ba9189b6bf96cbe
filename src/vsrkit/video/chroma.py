"""The place of chroma: planes enlarged to the size of luma, and reduced again, exactly inverse.

Enlarging is linear. Reducing is by the filter that gives back what was enlarged: the LeGall 5/3
pair where chroma lies on a luma sample, its sister of even length where it lies between two.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Literal, TypeAlias

import numpy as np

Samples: TypeAlias = np.ndarray  # (H, W), integers or float32
Siting: TypeAlias = Literal["left", "center", "topleft", "top"]

REACH = 8  # rows of chroma around those that are wanted: more than any filter looks at


def rows_near(rows: slice, halvings: int) -> slice:
    """Rows of chroma that `enlarged` needs for some rows of luma."""
    step = 2**halvings
    return slice(max(0, rows.start // step - REACH), -(-rows.stop // step) + REACH)


def enlarged(
    chroma: Samples, rows: slice, size: tuple[int, int], halvings: tuple[int, int], siting: Siting
) -> Samples:
    """Rows of chroma at the size of luma, as if the plane were whole.

    chroma: what lies in `rows_near` of the plane.
    size: (height, width) of luma.
    """
    above = rows_near(rows, halvings[0]).start * 2 ** halvings[0]  # luma's rows before `chroma`
    height = min(size[0] - above, len(chroma) * 2 ** halvings[0])
    for axis, side in enumerate((height, size[1])):
        for step in reversed(range(halvings[axis])):
            length = -(-side // 2**step)
            chroma = _doubled(chroma, axis, length, on_sample=_on_sample(siting)[axis])
    return chroma[rows.start - above : rows.stop - above]


def reduced(chroma: Samples, axis: int, halvings: int, siting: Siting) -> Samples:
    """Chroma at the size that the format stores along an axis: the inverse of `enlarged`."""
    for _ in range(halvings):
        chroma = _halved(chroma, axis, on_sample=_on_sample(siting)[axis])
    return chroma


def shortened(
    stripes: Iterable[list[Samples]], halvings: int, siting: Siting
) -> Iterator[tuple[slice, list[Samples]]]:
    """Stripes of planes reduced in height, as if the planes were whole, and their rows.

    The filter sees a few rows of the stripes above and below; where there are none, the edge.
    """
    start = 0
    for above, here, below in _with_neighbours(stripes):
        small = []
        for k, plane in enumerate(here):
            parts = [above[k][-REACH:]] if above else []
            parts += [plane, *([below[k][:REACH]] if below else [])]
            whole = reduced(np.concatenate(parts), 0, halvings, siting)
            skipped = REACH >> halvings if above else 0
            small.append(whole[skipped : skipped + -(-len(plane) // 2**halvings)])
        stop = start + (len(small[0]) if small else 0)
        yield slice(start, stop), small
        start = stop


def _on_sample(siting: Siting) -> tuple[bool, bool]:
    """Whether chroma lies on the first of its luma samples, in (height, width)."""
    return siting in ("topleft", "top"), siting in ("left", "topleft")


def _with_neighbours(
    stripes: Iterable[list[Samples]],
) -> Iterator[tuple[list[Samples], list[Samples], list[Samples]]]:
    """Each stripe between the one above it and the one below; an empty list where there is none."""
    ends: list[list[Samples]] = [[]]
    above: list[Samples] = []
    here: list[Samples] | None = None
    for below in chain(stripes, ends):
        if here is not None:
            yield above, here, below
            above = here
        here = below


def _doubled(x: Samples, axis: int, length: int, *, on_sample: bool) -> Samples:
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


def _halved(x: Samples, axis: int, *, on_sample: bool) -> Samples:
    length = x.shape[axis]
    count = -(-length // 2)
    # Two samples before the first and enough after the last for both filters.
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
