"""Progress of an upscaling job: a bar in a terminal, or lines of JSON."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from vsrkit.upscale.options import Progress

STAGES = {"scan": "looking for cuts", "upscale": "upscaling", "write": "writing the file"}


@contextmanager
def show_progress(as_json: bool, *, pipe: bool) -> Iterator[Callable[[Progress], None]]:
    """Yields a function that shows progress.

    as_json: print lines of JSON in place of a bar.
    pipe: standard output carries the video, so lines go to standard error.
    """
    if as_json:
        yield _json_lines(pipe)
        return
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bar(
        *columns,
        TextColumn("{task.fields[speed]}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("", speed="")
        pace = Pace()

        def show(progress: Progress) -> None:
            what = STAGES[progress.stage]
            if progress.shots:
                what += f", shot {progress.shot} of {progress.shots}"
            if progress.workers:
                what += f", {progress.parts} parts on {progress.workers} workers"
            speed = pace.frames_per_second(progress)
            left = seconds_left(progress, speed)
            words = f"{speed:.2f} fps" if speed else ""
            if left is not None:
                words += f", {timedelta(seconds=round(left))} left"
            bar.update(
                task,
                description=what,
                completed=progress.done,
                total=progress.total,
                speed=words,
            )

        yield show


class Pace:
    """Speed of a stage, counted from its first report in this run."""

    def __init__(self) -> None:
        self._stage, self._done, self._begin = "", 0, 0.0

    def frames_per_second(self, progress: Progress) -> float | None:
        """Mean speed of the stage so far; None at its first report."""
        now = time.monotonic()
        if progress.stage != self._stage:
            self._stage, self._done, self._begin = progress.stage, progress.done, now
            return None
        return (progress.done - self._done) / max(now - self._begin, 1e-6)


def seconds_left(progress: Progress, frames_per_second: float | None) -> float | None:
    """Time until the stage is done at this speed; None if that is unknown."""
    if not frames_per_second or not progress.total:
        return None
    return (progress.total - progress.done) / frames_per_second


def _json_lines(pipe: bool) -> Callable[[Progress], None]:
    pace = Pace()

    def show(progress: Progress) -> None:
        speed = pace.frames_per_second(progress)
        left = seconds_left(progress, speed)
        line = {
            "stage": progress.stage,
            "done": progress.done,
            "total": progress.total,
            "shot": progress.shot,
            "shots": progress.shots,
            "workers": progress.workers,
            "parts": progress.parts,
            "fps": round(speed, 3) if speed else None,
            "eta_s": None if left is None else round(left, 1),
        }
        typer.echo(json.dumps(line), err=pipe)

    return show
