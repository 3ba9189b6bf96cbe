"""What the evaluation commands show: a progress bar, and tables that are never cut short."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from vsrkit.data.check import SetCheck

WIDE = 160  # columns in a file or a pipe, where nothing has a width


def output_console() -> Console:
    """Standard output; a table in a pipe keeps its columns whole."""
    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, WIDE))


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on standard error, gone when done; yields `on_progress(what, done, total)`."""
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


def print_check(check: SetCheck, console: Console) -> None:
    """Which set it is, its clips, and what is wrong with it."""
    frames = sum(clip.frames for clip in check.clips)
    console.print(f"{check.root}: {check.set}, {len(check.clips)} clips, {frames} frames")
    if check.clips:
        console.print(_clips(check))
        lr = f"LR frames: {check.lr_place}" if check.lr_place else "LR frames: none, made from HR"
        console.print(lr, soft_wrap=True)
    for problem in check.problems:
        console.print(f"wrong: {problem}", soft_wrap=True, markup=False)
    for clip in check.clips:
        for problem in clip.problems:
            console.print(f"wrong: {clip.name}: {problem}", soft_wrap=True, markup=False)
    for note in [*check.notes, *(note for clip in check.clips for note in clip.notes)]:
        console.print(note, soft_wrap=True, markup=False)
    console.print("nothing is wrong" if check.sound else "something is wrong, see above")


def _clips(check: SetCheck) -> Table:
    table = Table()
    for title in ("clip", "frames", "size", "LR size", "state"):
        table.add_column(title)
    shown = (
        [clip for clip in check.clips if clip.problems] if len(check.clips) > 40 else check.clips
    )
    for clip in shown[:40]:
        lr = f"{clip.lr_size[1]}x{clip.lr_size[0]}" if clip.lr_size else "-"
        state = f"{len(clip.problems)} problems" if clip.problems else "sound"
        table.add_row(clip.name, str(clip.frames), f"{clip.size[1]}x{clip.size[0]}", lr, state)
    return table
