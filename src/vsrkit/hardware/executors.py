"""Processes of this machine behind the interface of `concurrent.futures`, and how to feed them."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any, ParamSpec, Self, TypeVar

import torch

from vsrkit.hardware.memory import keep_freed_memory

MANY = 32  # calls in flight on an executor that does not say how many it runs at once

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


class LocalPool(ProcessPoolExecutor):
    """Processes of this machine that share the threads of this process and end with it.

    Ctrl-C reaches this process only, which decides when the others stop. As a context manager, it
    waits for what runs; after an exception it ends all processes at once.
    """

    def __init__(self, workers: int, start: Callable[..., None], *arguments: Any) -> None:
        """Start no process yet.

        workers: number of processes.
        start: called in each process before its first call, with `arguments`; an error of it
            breaks the pool.
        arguments: picklable, or a queue of `multiprocessing`.
        """
        threads = max(1, torch.get_num_threads() // workers)
        super().__init__(
            workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start_process,
            initargs=(threads, start, arguments),
        )

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a function in one of the processes, started now if none is idle."""
        with interrupts_blocked():
            return super().submit(fn, *args, **kwargs)

    def terminate(self) -> None:
        """End all processes at once; Python 3.14 has `terminate_workers`."""
        processes = list((self._processes or {}).values())
        self.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is not None:
            self.terminate()
        else:
            self.shutdown()


def _start_process(threads: int, start: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process decides when to stop
    threading.Thread(target=_end_with_parent, daemon=True).start()
    keep_freed_memory()
    torch.set_num_threads(threads)
    start(*arguments)


def _end_with_parent() -> None:
    """Wait for the parent process to end, also by SIGKILL, then end this one."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C for processes that are started inside.

    Ctrl-C is sent to all processes of a terminal, and one that has just started cannot handle it.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def slots_of(executor: Executor) -> int:
    """How many calls an executor runs at once.

    Executors do not share a name for it: `slots` of clusters, which changes as workers come and
    go, `num_workers` of mpi4py, `_max_workers` of the standard library.
    """
    for name in ("slots", "num_workers", "_max_workers"):
        if (count := getattr(executor, name, None)) is not None:
            return int(count)
    return MANY


def map_in_order(executor: Executor, run: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
    """`map(run, items)` on an executor; at most two items for each slot are taken in advance."""
    waiting: deque[Future[T]] = deque()
    for item in items:
        waiting.append(executor.submit(run, item))
        if len(waiting) > 2 * slots_of(executor):
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
