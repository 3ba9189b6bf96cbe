"""What a model wants of time: windows or segments of a shot, cut out of a stream of frames."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from vsrkit.models.spec import Carried, Context, Segments, Window
from vsrkit.video.rows import Rows

# What stands in for frames before the first and after the last of a shot.
Padding: TypeAlias = Literal["replicate", "reflection", "reflection_circle", "circle"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Frames that a model runs at once, and which of them are wanted."""

    clip: Tensor | Rows  # (T, 3, H, W)
    keep: slice  # along T
    limits: tuple[float, float] | None = None  # its smallest and largest value, where known


@dataclass(frozen=True, slots=True)
class PiecePlan:
    """A piece by the numbers of its frames in the video."""

    frames: tuple[int, ...]  # one may stand in for another that is not there
    keep: slice

    @property
    def kept(self) -> tuple[int, ...]:
        """The frames that this piece is for."""
        return self.frames[self.keep]


def plan_pieces(
    start: int,
    stop: int,
    context: Context,
    *,
    padding: Padding = "reflection_circle",
    stride: int = 1,
) -> Iterator[PiecePlan]:
    """The pieces of the shot from frame `start` up to `stop`, as `pieces` cuts them.

    stride: frames to keep of each window, for models that give back all of them. More are faster
        and see less on one side.

    A carried state has a piece for each frame; that of the first holds the second, too.
    """
    length = stop - start
    match context:
        case Window(size=size, emits=emits):
            stride = min(stride, size) if emits == "all" else 1
            for first in range(0, length, stride):
                centre = min(first + stride // 2, length - 1)
                numbers = window_indices(centre, length, size, padding)
                skip = size // 2 - (centre - first)
                keep = slice(skip, skip + min(stride, length - first))
                yield PiecePlan(tuple(start + i for i in numbers), keep)
        case Segments(length=kept, warmup=warmup):
            for first in range(0, length, kept):
                low, high = max(0, first - warmup), min(length, first + kept + warmup)
                keep = slice(first - low, min(first + kept, length) - low)
                yield PiecePlan(tuple(range(start + low, start + high)), keep)
        case Carried():
            second = min(start + 1, stop - 1)
            for number in range(start, stop):
                yield PiecePlan((number, second) if number == start else (number,), slice(0, 1))


def pieces(
    shot: Iterable[Tensor], context: Context, padding: Padding = "reflection_circle"
) -> Iterator[Piece]:
    """Cut a shot into the pieces that `context` asks for; their kept frames, joined, are the shot.

    Holds as many frames as one piece needs (twice a window), however long the shot.
    """
    match context:
        case Window(size=size):
            for window in sliding_windows(shot, size, padding):
                yield Piece(torch.stack(window), slice(size // 2, size // 2 + 1))
        case Segments(length=length, warmup=warmup):
            yield from segments(shot, length, warmup)
        case Carried():
            raise TypeError("a carried state runs frame by frame and is not cut into pieces")


def sliding_windows(
    frames: Iterable[Tensor], size: int, padding: Padding = "reflection_circle"
) -> Iterator[list[Tensor]]:
    """Yield one window of `size` frames around each frame, in order. Holds 2 * size frames."""
    held: deque[Tensor] = deque(maxlen=2 * size)
    read = centre = 0
    for frame in frames:
        held.append(frame)
        read += 1
        # Every index that a window can ask for is read once `size` frames follow its centre.
        if read - centre == size:
            yield _window(held, read, centre, None, size, padding)
            centre += 1
    while centre < read:
        yield _window(held, read, centre, read, size, padding)
        centre += 1


def _window(
    held: deque[Tensor], read: int, centre: int, length: int | None, size: int, padding: Padding
) -> list[Tensor]:
    oldest = read - len(held)
    return [held[i - oldest] for i in window_indices(centre, length, size, padding)]


def window_indices(
    centre: int, length: int | None, size: int, padding: Padding = "reflection_circle"
) -> list[int]:
    """Frame numbers of the window around `centre` in a shot of `length` frames (None: no end near).

    A shot shorter than the window repeats its edge frames where the rule would leave the shot.
    """
    half = size // 2
    last = centre + size if length is None else length - 1
    indices = [
        _inside(i, centre, last, half, size, padding)
        for i in range(centre - half, centre - half + size)
    ]
    return [min(max(i, 0), last) for i in indices]


def _inside(i: int, centre: int, last: int, half: int, size: int, padding: Padding) -> int:
    before, after = i < 0, i > last
    if not before and not after:
        return i
    match padding:
        case "replicate":
            return 0 if before else last
        case "reflection":
            return -i if before else 2 * last - i
        case "reflection_circle":  # take the missing ones from the other side of the window
            reach = size - 1 - half  # after the centre: one less than before it in an even window
            return centre + reach - i if before else (centre - half) - (i - last)
        case "circle":
            return size + i if before else i - size


def segments(shot: Iterable[Tensor], length: int, warmup: int) -> Iterator[Piece]:
    """Yield `length` frames at a time with up to `warmup` more on either side."""
    frames = iter(shot)
    held: list[Tensor] = list(islice(frames, length + warmup))
    start = 0  # of the segment inside `held`
    while start < len(held):
        stop = min(start + length, len(held))
        yield Piece(torch.stack(held), slice(start, stop))
        held = held[max(0, stop - warmup) :] + list(islice(frames, length))
        start = stop - max(0, stop - warmup)
