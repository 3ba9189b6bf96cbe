"""Console output of the commands: progress bars, log lines and tables."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from vsrkit.data.check import SetCheck
from vsrkit.data.clips import OnProgress

WIDE = 160  # columns, if the output is a file or a pipe


def output_console() -> Console:
    """Standard output; in a file or a pipe wide enough for whole tables."""
    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, WIDE))


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar on standard error during the block; yields `on_progress(what, done, total)`."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(
        *columns,
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("")

        def show(what: str, done: int, total: int) -> None:
            progress.update(task, description=what, completed=done, total=total)

        yield show


@contextmanager
def report_to_console() -> Iterator[OnProgress]:
    """Print log messages on standard error; yields `on_progress` for the decoding of videos."""
    console = Console(stderr=True)
    log = logging.getLogger("vsrkit")
    handler, level = _LogLines(console), log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    bar = Progress(console=console, transient=True)
    task: TaskID | None = None

    def on_progress(name: str, done: int, total: int) -> None:
        nonlocal task
        if task is None:
            task = bar.add_task("decoding")
            bar.start()
        bar.update(task, description=f"decoding {name}", completed=done, total=total)
        if done == total:
            bar.stop()
            bar.remove_task(task)
            task = None

    try:
        yield on_progress
    finally:
        bar.stop()
        log.removeHandler(handler)
        log.setLevel(level)


class _LogLines(logging.Handler):
    """A log handler that prints each message as one line."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        _print_line(self._console, record.getMessage())


def print_check(check: SetCheck, console: Console) -> None:
    """Print the result of `vsrkit data check`: the set, its clips and its problems."""
    frames = sum(clip.frames for clip in check.clips)
    _print_line(console, f"{check.root}: {check.set}, {len(check.clips)} clips, {frames} frames")
    if check.clips:
        console.print(_clips(check))
        _print_line(console, f"LR frames: {check.lr_place or 'none, they are made from HR'}")
    problems = [f"{clip.name}: {text}" for clip in check.clips for text in clip.problems]
    for problem in [*check.problems, *problems]:
        _print_line(console, f"problem: {problem}")
    for note in [*check.notes, *(note for clip in check.clips for note in clip.notes)]:
        _print_line(console, note)
    _print_line(console, "no problems found" if check.sound else "problems found, see above")


def _clips(check: SetCheck) -> Table:
    """A table of the clips; of more than 40, only of those with problems."""
    table = Table("clip", "frames", "size", "LR size", "state")
    shown = check.clips if len(check.clips) <= 40 else [c for c in check.clips if c.problems]
    for clip in shown[:40]:
        lr = f"{clip.lr_size[1]}x{clip.lr_size[0]}" if clip.lr_size else "-"
        state = f"{len(clip.problems)} problems" if clip.problems else "ok"
        size = f"{clip.size[1]}x{clip.size[0]}"
        table.add_row(escape(clip.name), str(clip.frames), size, lr, state)
    return table


def _print_line(console: Console, text: str) -> None:
    """Print text as it is: names may contain brackets, which are markup for rich."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
