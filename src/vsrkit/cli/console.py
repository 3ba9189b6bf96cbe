"""Console output of the commands: progress bars, log lines and tables."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest

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
from vsrkit.evaluate.benchmark import Result
from vsrkit.evaluate.metrics import DEFAULT_METRICS
from vsrkit.evaluate.tables import DECIMALS, Published, describe, pair, published_for, sources

MOST_COLUMNS = 6  # clips shown as columns; more than that are shown as rows
MOST_ROWS = 60  # clips shown as rows; the others are only in the JSON
TITLES = {
    "psnr": "PSNR",
    "ssim": "SSIM",
    "ms_ssim": "MS-SSIM",
    "warping_error": "warping error x1000",
    "warped_flicker": "warped flicker x1000",
    "tof": "tOF px",
    "flicker": "flicker",
    "consistency": "consistency dB",
    "grid": "grid dB",
    "lpips": "LPIPS",
    "lpips_vgg": "LPIPS (VGG)",
    "tlpips": "tLPIPS x1000",
    "dists": "DISTS",
    "niqe": "NIQE",
    "vmaf": "VMAF",
}
THOUSANDTHS = ("warping_error", "warped_flicker", "tlpips")
MOST_CHECKED = 40  # clips that `data check` shows as rows
MOST_NAMES = 300  # clips whose names `data check` prints
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
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)
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
        if len(check.clips) > MOST_CHECKED:
            _print_line(console, f"clips: {_names([clip.name for clip in check.clips])}")
        if check.validation:
            names = _names(check.validation)
            _print_line(console, f"{len(check.validation)} clips for validation: {names}")
        _print_line(console, f"LR frames: {check.lr_place or 'none, they are made from HR'}")
    problems = [f"{clip.name}: {text}" for clip in check.clips for text in clip.problems]
    for problem in [*check.problems, *problems]:
        _print_line(console, f"problem: {problem}")
    for note in [*check.notes, *(note for clip in check.clips for note in clip.notes)]:
        _print_line(console, note)
    _print_line(console, "no problems found" if check.sound else "problems found, see above")


def _names(names: Sequence[str]) -> str:
    """All names of a set such as REDS; of a longer list, the first ones and their number."""
    if len(names) <= MOST_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[:8])} and {len(names) - 8} more, as listed"


def _clips(check: SetCheck) -> Table:
    """A table of the clips; of more than 40, only of those with problems."""
    table = Table("clip", "frames", "size", "LR size", "state")
    many = len(check.clips) > MOST_CHECKED
    shown = [clip for clip in check.clips if clip.problems or not many]
    for clip in shown[:MOST_CHECKED]:
        lr = f"{clip.lr_size[1]}x{clip.lr_size[0]}" if clip.lr_size else "-"
        state = f"{len(clip.problems)} problems" if clip.problems else "ok"
        size = f"{clip.size[1]}x{clip.size[0]}"
        table.add_row(escape(clip.name), str(clip.frames), size, lr, state)
    return table


def print_results(results: Sequence[Result], console: Console) -> None:
    """Print the scores of all results, the comparable published ones and the settings.

    Args:
        results: of one or more models on the same set and protocol.
        console: where to print.
    """
    first = results[0]
    published = published_for(first.set, first.protocol)  # type: ignore[arg-type]
    names = [clip.name for clip in first.clips]
    if len(names) <= MOST_COLUMNS:
        console.print(_methods_table(results, published, names))
    else:
        console.print(_clips_table(results, names))
        console.print(_methods_table(results, published, []))
    if set(first.average) - set(DEFAULT_METRICS):
        console.print(_metrics_table(results))
    for line in describe(results):
        _print_line(console, line)
    for line in sources(published):
        _print_line(console, line)


def _methods_table(
    results: Sequence[Result], published: Sequence[Published], names: list[str]
) -> Table:
    table = Table(title=f"{results[0].set}, {results[0].protocol.name}: PSNR/SSIM")
    table.add_column("method")
    for name in [*names, "average"]:
        table.add_column(escape(name), justify="right", no_wrap=True)
    table.add_column("ms/frame", justify="right", no_wrap=True)
    table.add_column("peak MB", justify="right", no_wrap=True)
    for row, after in zip_longest(published, published[1:]):
        cells = ["/".join(row.clips[n]) if n in row.clips else "-" for n in names]
        table.add_row(
            escape(f"{row.title} [{row.label}]"), *cells, "/".join(row.average), "", "",
            style="dim", end_section=after is None or after.label != row.label,
        )  # fmt: skip
    for result in results:
        scores = {clip.name: clip for clip in result.clips}
        cells = [pair(scores[n].metrics) + ("*" if scores[n].partial else "") for n in names]
        average = pair(result.average) + ("*" if result.partial else "")
        table.add_row(
            escape(result.model), *cells, average,
            f"{result.seconds_per_frame * 1000:.1f}", f"{result.peak_memory_mb:.0f}",
            style="bold",
        )  # fmt: skip
    if any(result.partial for result in results):
        table.caption = "* partial"
    return table


def _clips_table(results: Sequence[Result], names: list[str]) -> Table:
    table = Table(title="PSNR/SSIM per clip")
    table.add_column("clip")
    for result in results:
        table.add_column(escape(result.model), justify="right", no_wrap=True)
    for place, name in enumerate(names[:MOST_ROWS]):
        clips = [result.clips[place] for result in results]
        table.add_row(escape(name), *(pair(c.metrics) + ("*" if c.partial else "") for c in clips))
    if len(names) > MOST_ROWS:
        table.caption = f"{len(names) - MOST_ROWS} more clips: written by --json"
    return table


def _metrics_table(results: Sequence[Result]) -> Table:
    names = list(results[0].average)
    table = Table(title="all metrics")
    table.add_column("method")
    table.add_column("clip")
    for name in names:
        table.add_column(TITLES[name], justify="right")
    for result in results:
        rows = [(clip.name, clip.metrics) for clip in result.clips[:MOST_ROWS]]
        for clip, metrics in [*rows, ("average", result.average)]:
            cells = [_number(name, metrics[name]) if name in metrics else "-" for name in names]
            table.add_row(escape(result.model), escape(clip), *cells, end_section=clip == "average")
    return table


def _number(name: str, value: float) -> str:
    return f"{value * (1000 if name in THOUSANDTHS else 1):.{DECIMALS.get(name, 2)}f}"


def _print_line(console: Console, text: str) -> None:
    """Print text as it is: names may contain brackets, which are markup for rich."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
