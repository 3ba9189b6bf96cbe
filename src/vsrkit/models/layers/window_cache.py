"""What a model found out about single frames, kept for the next window that has them too."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class Recall:
    """Answers about the frames of a window, or about pairs of them, each computed once.

    Frames are known by their pixels, so that nobody has to number them: those of another shot,
    tile or video are simply new, and a frame that the video repeats is not. What belongs to no
    frame of the latest window is forgotten.
    """

    def __init__(self) -> None:
        self._frames: dict[int, Tensor] = {}  # of the latest window, by the numbers given to them
        self._answers: dict[tuple[Any, ...], Any] = {}  # by question and numbers
        self._count = 0

    def each(self, ask: Callable[[Tensor], T], clip: Tensor) -> list[T]:
        """`ask(frame)` for every frame (B, 3, H, W) of (B, T, 3, H, W)."""
        frames = clip.unbind(1)
        return [
            self._once(ask, (number,), (frame,))
            for number, frame in zip(self._look(frames), frames, strict=True)
        ]

    def pairs(
        self, ask: Callable[[Tensor, Tensor], T], clip: Tensor, others: Sequence[int]
    ) -> list[T]:
        """`ask(frame, other)` for every frame of a clip and the one that `others` names for it."""
        frames = clip.unbind(1)
        numbers = self._look(frames)
        return [
            self._once(ask, (number, numbers[other]), (frame, frames[other]))
            for number, frame, other in zip(numbers, frames, others, strict=True)
        ]

    def _look(self, frames: Sequence[Tensor]) -> list[int]:
        """The numbers of a window's frames: old ones for those that were in the last window."""
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
        self._answers = {
            key: answer for key, answer in self._answers.items() if window.keys() >= set(key[1:])
        }
        return numbers

    def _once(
        self, ask: Callable[..., T], numbers: tuple[int, ...], frames: tuple[Tensor, ...]
    ) -> T:
        key = (ask, *numbers)
        if key not in self._answers:
            self._answers[key] = ask(*frames)
        answer: T = self._answers[key]
        return answer


def each_frame(ask: Callable[[Tensor], T], clip: Tensor, recall: Recall | None) -> list[T]:
    """`ask(frame)` for every frame of (B, T, 3, H, W), or what it said the last time."""
    return [ask(frame) for frame in clip.unbind(1)] if recall is None else recall.each(ask, clip)


# By tile: tiles come in the same order for every window.
Recalls: TypeAlias = defaultdict[int, Recall]


def no_recalls() -> Recalls:
    """Nothing found out yet, of any tile."""
    return defaultdict(Recall)
