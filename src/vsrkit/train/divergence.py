"""Losses since the last check, and errors about those that are not finite.

Values are checked only when they are logged or saved, because reading them waits for the device.
Since batches are a pure function of the step, the clips of any earlier step can still be named.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from vsrkit.errors import VsrkitError
from vsrkit.train.losses import Terms
from vsrkit.train.processes import Processes
from vsrkit.train.run_files import STATE

GRADIENT = "gradient norm"


class DivergedError(VsrkitError):
    """The loss, a gradient or a weight became NaN or infinite."""


@dataclass(frozen=True, slots=True)
class NotFinite:
    """The first value of a process that is not finite."""

    step: int  # counted from 1
    part: int  # batch of the step, from 0; -1: all of them
    name: str  # of the term
    value: float


@dataclass(slots=True)
class RecentLosses:
    """The terms of every batch and the gradient norm of every step since the last check.

    check_gradients: whether a gradient that is not finite is an error; with a scaled loss such
        steps are skipped instead.
    """

    check_gradients: bool = True
    _rows: list[tuple[int, int, Terms]] = field(default_factory=list)  # step, part, terms

    def add(self, step: int, parts: Sequence[Terms], gradient_norm: Tensor) -> None:
        """Add a step, counted from 1: the terms of its batches, not yet averaged over them."""
        self._rows += [(step, part, terms) for part, terms in enumerate(parts)]
        self._rows.append((step, -1, {GRADIENT: gradient_norm}))

    def check(
        self, processes: Processes, clips: Callable[[int, int], str], run_dir: Path
    ) -> dict[str, float]:
        """The mean of each term and of the gradient norm over batches, steps and processes.

        Raises DivergedError in all processes if a value of one of them is not finite. Waits for
        the device and for the other processes.

        Args:
            processes: of the run.
            clips: names the clips of a step (from 0) and a batch of it (-1: all).
            run_dir: of the run.
        """
        bad, means = self._read()
        where = clips(bad.step - 1, bad.part) if bad else ""
        reports = processes.gather((bad, where, means))
        found = [(bad, where, rank) for rank, (bad, where, _) in enumerate(reports) if bad]
        if found:
            first, where, rank = min(found, key=lambda each: (each[0].step, each[2]))
            of = f" of process {rank}" if processes.count > 1 else ""
            kind = "the" if first.name == GRADIENT else "the loss term"
            problem = f"{kind} {first.name} became {first.value} in step {first.step}{of}"
            processes.fail(_diverged(f"{problem}, with the clips {where}", run_dir))
        return {
            name: sum(report[2][name] for report in reports) / processes.count for name in means
        }

    def _read(self) -> tuple[NotFinite | None, dict[str, float]]:
        """The first value that is not finite, and the means; starts with no values again."""
        rows, self._rows = self._rows, []
        names = [(step, part, name) for step, part, terms in rows for name in terms]
        stacked = [value.detach().float() for *_, terms in rows for value in terms.values()]
        numbers = torch.stack(stacked).tolist() if stacked else []
        values: dict[str, list[float]] = {}
        for (step, part, name), number in zip(names, numbers, strict=True):
            finite = math.isfinite(number)
            if not finite and (name != GRADIENT or self.check_gradients):
                return NotFinite(step, part, name, number), {}
            values.setdefault(name, [])
            if finite:
                values[name].append(number)
        return None, {name: sum(all_) / max(1, len(all_)) for name, all_ in values.items()}


def check_weights(model: nn.Module, step: int, run_dir: Path) -> None:
    """Raise DivergedError for weights that are not finite; the loss before them can be finite."""
    if not all(bool(weight.isfinite().all()) for weight in model.parameters()):
        raise _diverged(f"weights became NaN or infinite before step {step}", run_dir)


def _diverged(problem: str, run_dir: Path) -> DivergedError:
    if (run_dir / STATE).exists():
        then = f"the last finite state is in {run_dir}: continue with --resume and"
    else:
        then = "no earlier state was saved: start again with"
    return DivergedError(f"{problem}; {then} a lower learning_rate, or set clip_gradients")
