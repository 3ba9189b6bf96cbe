"""What `vsrkit train` shows: log lines, and a bar while videos are decoded."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, TaskID

from vsrkit.data.clips import OnProgress


@contextmanager
def report_to_console() -> Iterator[OnProgress]:
    """Show the log on stderr; yields what draws the bar of decoding."""
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
    """One line of the console for each record."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        """Print without markup: names may hold brackets."""
        text = record.getMessage()
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
