"""The process of a job: started, followed by its lines of progress, stopped, found again."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from vsrkit.studio.job import Job

LONGEST_LINE = 1 << 16  # bytes
MEMORY_S = 2.0  # seconds between measurements of memory
INTERRUPTS, INTERRUPT_S = 10, 1.0  # how often and at which interval, before it is killed
END_S = 10.0  # seconds that a killed process may take to disappear
TAIL = 1 << 16  # bytes at the end of a log in which the error is


class JobProcess:
    """A running job.

    The process ends with the server, also if that is killed: the pipe of its progress breaks.
    """

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process, self._log = process, log
        self._interrupted = False
        self._ending: asyncio.Task[None] | None = None
        self.memory: int | None = None

    @classmethod
    async def start(cls, job: Job, folder: Path) -> "JobProcess":
        """Start the command of a job.

        job: the job.
        folder: of the job; the current folder of the process, and the place of its log.
        """
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "log.txt"
        # A session of its own: Ctrl-C in the terminal of the server must not reach it.
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *job.process,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                cwd=folder,
                start_new_session=sys.platform != "win32",
                limit=LONGEST_LINE,
            )
        return cls(process, log)

    async def follow(self, on_progress: Callable[[dict[str, Any]], None]) -> int:
        """Wait until the process ends; returns its exit code.

        on_progress: called with the value of every line that the command prints.
        """
        assert self._process.stdout is not None
        measuring = asyncio.create_task(self._measure())
        try:
            async for line in self._process.stdout:
                with suppress(ValueError):
                    on_progress(json.loads(line))
            return await self._process.wait()
        finally:
            measuring.cancel()
            if self._ending:
                self._ending.cancel()

    async def _measure(self) -> None:
        while True:
            self.memory = await asyncio.to_thread(memory_of, self._process.pid)
            await asyncio.sleep(MEMORY_S)

    def interrupt(self, *, now: bool) -> None:
        """Ask the process to stop after the current part or at once; then kill it if needed."""
        if not now and not self._interrupted:
            self._interrupt()
        elif now and self._ending is None:
            self._ending = asyncio.create_task(self._end())

    def _interrupt(self) -> None:
        self._interrupted = True
        with suppress(ProcessLookupError):
            if sys.platform == "win32":  # has no such signal for a process without a console
                self._process.terminate()
            else:
                self._process.send_signal(signal.SIGINT)

    async def _end(self) -> None:
        """Interrupt the process until it ends: the second time stops it at once.

        Interrupts that arrive during one operation count as one, so they are repeated.
        """
        for _ in range(INTERRUPTS):
            self._interrupt()
            await asyncio.sleep(INTERRUPT_S)
        await asyncio.to_thread(kill_tree, self._process.pid)

    async def stop(self) -> None:
        """Stop the process at once, and wait until it has ended."""
        self.interrupt(now=True)
        await self._process.wait()

    def error(self, code: int) -> str:
        """The line in which the command said why it failed.

        code: its exit code.
        """
        if line := last_error(self._log):
            return line
        if code < 0:
            name = signal.Signals(-code).name
            return (
                f"the process was ended by {name}, perhaps because memory ran out; "
                "retry to continue from the finished parts"
            )
        return f"the command ended with exit code {code}; see its log"


def last_error(log: Path) -> str | None:
    """The last line of a log if it is an error of the command."""
    lines = read_end(log, TAIL).strip().splitlines()
    if not lines or not lines[-1].startswith("vsrkit: "):
        return None
    return lines[-1].removeprefix("vsrkit: ")


def read_end(path: Path, length: int) -> str:
    """The last bytes of a file as text; empty if there is no such file."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - length))
        return file.read(length).decode(errors="replace")
    return ""


def memory_of(pid: int) -> int | None:
    """Resident bytes of a process and all it has started."""
    try:
        process = psutil.Process(pid)
        return sum(each.memory_info().rss for each in (process, *process.children(recursive=True)))
    except psutil.Error:
        return None


def kill_tree(pid: int) -> None:
    """Kill a process and all it has started, and wait until they are gone."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        each = [process, *process.children(recursive=True)]
        for one in each:
            with suppress(psutil.Error):
                one.kill()
        psutil.wait_procs(each, END_S)


def kill_leftovers(jobs: Sequence[Job]) -> None:
    """Kill the processes that an earlier server has started for these jobs, if any still run."""
    lines = [tuple(job.process[1:]) for job in jobs]
    for process in psutil.process_iter(["cmdline"]):
        if tuple((process.info["cmdline"] or [""])[1:]) in lines:
            kill_tree(process.pid)
