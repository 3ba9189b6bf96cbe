"""Batches of training pairs, each a pure function of the seed and the step."""

import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from vsrkit.data.augment import cut, cut_hr, place
from vsrkit.data.clips import Clip
from vsrkit.data.random_degradation import Degrader
from vsrkit.errors import DataError

T = TypeVar("T")
Batch: TypeAlias = tuple[Tensor, Tensor]  # lr (B, T, 3, H, W), its goal (B, T, 3, sH, sW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Training clips of one source."""

    clips: Sequence[Clip]
    weight: float
    degradation: Degrader
    answers: Sequence[Clip] = ()  # what a teacher made of each clip, or of its beginning
    hr_share: float = 0.0  # of HR in the goal, where there are answers

    @property
    def shapes(self) -> list[tuple[int, int, int]]:
        """T, H, W of what may be drawn from each clip."""
        return [clip.shape[:3] for clip in self.answers or self.clips]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """What each step of each process learns from.

    All processes together draw pairs number `step * n`, `step * n + 1` ... from one endless list,
    so that two processes see what one with twice the batch would see.
    """

    shares: Sequence[Share]
    seed: int
    batch_size: int
    accumulate: int
    frames: int
    crop: int
    flips: bool
    reversal: bool
    rank: int = 0
    processes: int = 1
    distinct: int = 0  # pairs in the list, which then begins anew; 0: it has no end

    def __post_init__(self) -> None:
        if not any(share.weight for share in self.shares):
            raise DataError("every source has weight 0; give one of them more")
        if not any(share.weight * self._windows(share).sum() for share in self.shares):
            raise DataError(
                f"no clip has {self.frames} frames and room for a crop of {self.crop} LR pixels; "
                "give longer or larger ones, or lower `frames` or `crop`"
            )

    def step(self, step: int) -> list[Batch]:
        """The batches of one step, `accumulate` of them."""
        size = self.batch_size
        first = (step * self.processes + self.rank) * self.accumulate * size
        numbers = range(first, first + self.accumulate * size)
        return [self._stack(numbers[i : i + size]) for i in range(0, len(numbers), size)]

    def _stack(self, numbers: Sequence[int]) -> Batch:
        lr, goal = zip(*(self.pair(number) for number in numbers), strict=True)
        return torch.stack(lr), torch.stack(goal)

    def pair(self, number: int) -> tuple[Tensor, Tensor]:
        """Pair `number` of the endless list: LR (T, 3, H, W), its goal (T, 3, sH, sW).

        The goal is HR, or what a teacher made of the clip, or something between the two.
        """
        if self.distinct:
            number %= self.distinct
        rng = np.random.default_rng([self.seed, number])
        weights = np.array([s.weight if self._windows(s).any() else 0.0 for s in self.shares])
        share = self.shares[rng.choice(len(self.shares), p=weights / weights.sum())]
        windows = self._windows(share)
        chosen = rng.choice(len(windows), p=windows / windows.sum())
        where = place(
            rng,
            share.shapes[chosen],
            frames=self.frames,
            crop=self.crop,
            scale=share.degradation.scale,
            flips=self.flips,
            reversal=self.reversal,
        )
        size = (self.frames, self.crop, self.crop)
        lr, hr = cut(share.clips[chosen].frames, where, share.degradation, rng, size)
        if not share.answers:
            return lr, hr
        answer = cut_hr(share.answers[chosen].frames, where, share.degradation.scale, size)
        return lr, torch.lerp(answer, hr, share.hr_share)

    def _windows(self, share: Share) -> NDArray[np.int64]:
        """How many stretches of `frames` frames each clip has; all are equally likely."""
        side = self.crop * share.degradation.scale
        fitting = [t - self.frames + 1 if min(h, w) >= side else 0 for t, h, w in share.shapes]
        return np.maximum(0, np.array(fitting, dtype=np.int64))


class _Steps(Dataset[Any]):
    """What `make` returns for each step, in the form that PyTorch's loader wants."""

    def __init__(self, make: Callable[[int], Any], steps: range) -> None:
        self.make, self.steps = make, steps

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, index: int) -> Any:
        return self.make(self.steps[index])


def prefetched(make: Callable[[int], T], steps: range, *, workers: int) -> Iterable[T]:
    """`make(step)` for each step in order, made by other processes while the model works.

    Processes, not threads: two threads that both compute with all cores slow each other down.
    Without workers everything is made here, when it is asked for.
    """
    return DataLoader(
        _Steps(make, steps), batch_size=None, num_workers=workers, worker_init_fn=_ignore_signals
    )


def _ignore_signals(_: int) -> None:
    """Signals that are meant for the run reach its helpers too: the run decides, and ends them."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
