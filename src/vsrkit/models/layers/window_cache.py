"""Cache of per-frame results, so that overlapping windows compute them once."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class WindowCache:
    """Results of functions of single frames or pairs of frames, for the latest window.

    Frames are identified by their pixels, so that callers need not number them: frames of another
    shot, tile or video are new, and a repeated frame is not. Results for frames that are not in
    the latest window are dropped.
    """

    def __init__(self) -> None:
        self._frames: dict[int, Tensor] = {}  # of the latest window, by number
        self._results: dict[tuple[Any, ...], Any] = {}  # by function and frame numbers
        self._count = 0

    def map_frames(self, function: Callable[[Tensor], T], clip: Tensor) -> list[T]:
        """`function(frame)` for every frame (B, 3, H, W) of (B, T, 3, H, W)."""
        frames = clip.unbind(1)
        return [
            self._cached(function, (number,), (frame,))
            for number, frame in zip(self._number(frames), frames, strict=True)
        ]

    def map_pairs(
        self, function: Callable[[Tensor, Tensor], T], clip: Tensor, others: Sequence[int]
    ) -> list[T]:
        """`function(frame, other)` for every frame and the one at its index in `others`."""
        frames = clip.unbind(1)
        numbers = self._number(frames)
        return [
            self._cached(function, (number, numbers[other]), (frame, frames[other]))
            for number, frame, other in zip(numbers, frames, others, strict=True)
        ]

    def _number(self, frames: Sequence[Tensor]) -> list[int]:
        """Number the frames of a window; frames of the previous window keep their numbers."""
        known = self._frames
        window: dict[int, Tensor] = {}
        numbers = []
        for frame in frames:
            number = next(
                (n for n, old in chain(window.items(), known.items()) if torch.equal(old, frame)),
                self._count,
            )
            self._count += number == self._count
            window.setdefault(number, known.get(number, frame))
            numbers.append(number)
        self._frames = window
        self._results = {
            key: result for key, result in self._results.items() if window.keys() >= set(key[1:])
        }
        return numbers

    def _cached(
        self, function: Callable[..., T], numbers: tuple[int, ...], frames: tuple[Tensor, ...]
    ) -> T:
        key = (function, *numbers)
        if key not in self._results:
            self._results[key] = function(*frames)
        result: T = self._results[key]
        return result


def map_frames(function: Callable[[Tensor], T], clip: Tensor, cache: WindowCache | None) -> list[T]:
    """`function(frame)` for every frame of (B, T, 3, H, W), from the cache if there is one."""
    if cache is not None:
        return cache.map_frames(function, clip)
    return [function(frame) for frame in clip.unbind(1)]
