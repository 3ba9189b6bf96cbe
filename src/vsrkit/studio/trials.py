"""Previews and plans: results for one to a few models, computed one after the other."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from vsrkit.errors import VsrkitError
from vsrkit.studio.api.answers import shown
from vsrkit.studio.errors import UnknownError
from vsrkit.studio.events import Events

KEPT = 32  # trials of one kind that can be read
# Of decoders and models that strangers' files confuse.
ERRORS = (VsrkitError, OSError, ArithmeticError, ValueError, RuntimeError, MemoryError)

Values = dict[str, Any]


@dataclass(slots=True)
class Trial:
    """A preview or a plan.

    about: what was asked for, and what all results share.
    results: by model, in the order of the request.
    """

    about: Values
    results: dict[str, Values]
    id: str = field(default_factory=lambda: secrets.token_hex(6))
    state: str = "running"
    error: str | None = None
    task: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, about: Values, models: Iterable[str], empty: Values) -> "Trial":
        """A trial that has no results yet.

        about: what was asked for.
        models: names.
        empty: values of a result that is not there.
        """
        waiting = {"state": "waiting", "error": None} | empty
        return cls(about, {model: dict(waiting) for model in models})

    def as_json(self) -> Values:
        """The trial as pages see it."""
        results = [{"model": model} | result for model, result in self.results.items()]
        head = {"id": self.id, "state": self.state, "error": self.error}
        return head | self.about | {"results": results}


class Trials:
    """The trials of one kind that were made last."""

    def __init__(
        self, name: str, events: Events, *, forget: Callable[[Trial], None] = lambda _: None
    ) -> None:
        """Have no trials yet.

        name: of the events.
        events: get every trial after each result.
        forget: called for those that can no longer be read.
        """
        self._name, self._events, self._forget = name, events, forget
        self._trials: dict[str, Trial] = {}

    def start(
        self,
        trial: Trial,
        compute: Callable[[str], Awaitable[Values]],
        *,
        prepare: Callable[[], Awaitable[Values]] | None = None,
        replaces: Callable[[Trial], bool],
    ) -> None:
        """Begin a trial in the background.

        compute: the values of a result, from the name of its model.
        prepare: values that all results share, computed first.
        replaces: which of the running trials are cancelled.
        """
        for other in self._trials.values():
            if other.task and other.state == "running" and replaces(other):
                other.task.cancel()
        self._trials[trial.id] = trial
        if len(self._trials) > KEPT:
            self._drop(next(iter(self._trials)))
        trial.task = asyncio.create_task(self._run(trial, compute, prepare))

    def _drop(self, number: str) -> None:
        trial = self._trials.pop(number)
        if trial.task:
            trial.task.cancel()
        self._forget(trial)

    def find(self, number: str) -> Trial:
        """A trial by its id."""
        if number not in self._trials:
            raise UnknownError(self._name)
        return self._trials[number]

    async def stop(self) -> None:
        """Cancel and forget all trials."""
        tasks = [trial.task for trial in self._trials.values() if trial.task]
        for number in list(self._trials):
            self._drop(number)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(
        self,
        trial: Trial,
        compute: Callable[[str], Awaitable[Values]],
        prepare: Callable[[], Awaitable[Values]] | None,
    ) -> None:
        try:
            if prepare:
                trial.about |= await prepare()
            for model in trial.results:
                await self._add_result(trial, model, compute)
            failed = all(result["state"] == "failed" for result in trial.results.values())
            trial.state = "failed" if failed else "done"
        except asyncio.CancelledError:
            trial.state = "cancelled"
        except ERRORS as error:
            trial.state, trial.error = "failed", line_of(error)
        self._publish(trial)

    async def _add_result(
        self, trial: Trial, model: str, compute: Callable[[str], Awaitable[Values]]
    ) -> None:
        result = trial.results[model]
        result["state"] = "running"
        self._publish(trial)
        try:
            result |= await compute(model)
            result["state"] = "done"
        except ERRORS as error:
            result |= {"state": "failed", "error": line_of(error)}

    def _publish(self, trial: Trial) -> None:
        self._events.publish(self._name, trial.as_json(), trial.id)


async def finished(trial: Trial) -> None:
    """Wait until a trial is finished."""
    if trial.task:
        with suppress(asyncio.CancelledError):
            await asyncio.wait([trial.task])


def line_of(error: Exception) -> str:
    """One line about an error."""
    return shown(" ".join(str(error).split())) or type(error).__name__
