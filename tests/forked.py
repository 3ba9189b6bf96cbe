"""Run work in a fork of this process, which has everything imported, with limits and a deadline."""

import os
import resource
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

import psutil

POLL_S = 0.005
CRASHED = 70  # exit code of work that raised


@dataclass(frozen=True)
class Ended:
    """How a fork ended: `code` is None after a signal; `errors` is its standard error."""

    code: int | None
    signal: int | None
    timed_out: bool
    cpu_s: float
    output: str
    errors: str


def run_forked(
    work,
    folder,
    *,
    cpu_s=30,
    wall_s=180,
    memory=3 << 30,
    file_size=1 << 30,
    stdin=None,
    during=None,
):
    """Call `work` in a fork; its return value, or that of SystemExit, is the exit code.

    folder: for the files with its standard output and error.
    cpu_s, wall_s: seconds of processor time and of time until it is killed.
    memory: bytes it may allocate beyond what this process has; None for no limit.
    file_size: bytes of the largest file it may write.
    stdin: file for its standard input.
    during: called with the process id until the fork ends.
    """
    output, errors = Path(folder) / "stdout", Path(folder) / "stderr"
    pid = os.fork()
    if pid == 0:
        code = CRASHED
        try:
            _redirect(output, errors, stdin)
            _limit(cpu_s, memory, file_size)
            code = _exit_code(work)
        finally:
            os._exit(code)
    status, usage, timed_out = _wait(pid, time.monotonic() + wall_s, during)
    exited = os.WIFEXITED(status)
    return Ended(
        code=os.WEXITSTATUS(status) if exited else None,
        signal=None if exited else os.WTERMSIG(status),
        timed_out=timed_out,
        cpu_s=usage.ru_utime + usage.ru_stime,
        output=output.read_text(errors="replace"),
        errors=errors.read_text(errors="replace"),
    )


def _redirect(output, errors, stdin):
    for path, descriptor, flags in (
        (stdin or os.devnull, 0, os.O_RDONLY),
        (output, 1, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        (errors, 2, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
        opened = os.open(path, flags, 0o644)
        os.dup2(opened, descriptor)
        os.close(opened)
    # Not those of pytest, which would write into its own files.
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def _limit(cpu_s, memory, file_size):
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 5))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
    if memory is not None:
        most = psutil.Process().memory_info().vms + memory
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _exit_code(work):
    try:
        code = work() or 0
    except SystemExit as stop:
        code = stop.code or 0
    except BaseException:  # noqa: BLE001  printed, as Python does at the end of a program
        traceback.print_exc()
        code = CRASHED
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _wait(pid, deadline, during):
    timed_out = False
    while True:
        found, status, usage = os.wait4(pid, os.WNOHANG)
        if found:
            return status, usage, timed_out
        if time.monotonic() > deadline:
            timed_out = True
            os.kill(pid, signal.SIGKILL)
        elif during:
            during(pid)
        time.sleep(POLL_S)
