"""Share the parts of a job among processes; the output does not depend on their number."""

import copy
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.queues import Queue
from queue import Empty
from typing import Any

import torch

from vsrkit.errors import VsrkitError
from vsrkit.hardware.memory import keep_freed_memory
from vsrkit.inference.engine import Engine
from vsrkit.upscale.produce import JobContext, OnEvent, produce
from vsrkit.upscale.work_folder import Part


def engines_for(engine: Engine, workers: int) -> list[Engine]:
    """One engine for each process, distributed over all GPUs."""
    count = torch.cuda.device_count() if engine.device == "cuda" else 0
    if count < 2:
        return [engine] * workers
    devices = [f"cuda:{number % count}" for number in range(workers)]
    return [
        replace(engine, model=copy.deepcopy(engine.model).to(device), device=device)
        for device in devices
    ]


def run_parts(
    parts: Sequence[Part],
    job: JobContext,
    engines: Sequence[Engine],
    on_event: OnEvent,
    stop: threading.Event,
) -> None:
    """Compute all parts, with one process for each engine; no part begins after `stop` is set.

    on_event: called in this process for the events of all processes.
    """
    context = multiprocessing.get_context("spawn")
    # Each worker takes the next part from one queue, so that each moves forward in the video.
    todo: Any = context.Queue()
    events: Any = context.Queue()
    for part in parts:
        todo.put(part)
    for _ in engines:
        todo.put(None)
    threads = max(1, (os.cpu_count() or 1) // len(engines))
    processes = [
        context.Process(target=_work, args=(todo, events, job, engine, threads), daemon=True)
        for engine in engines
    ]
    with _interrupts_blocked():
        for process in processes:
            process.start()
    try:
        _listen(processes, todo, events, on_event, stop)
    finally:
        for process in processes:
            process.terminate()
            process.join()


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
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


def _listen(
    processes: Sequence[Any],
    todo: "Queue[Any]",
    events: "Queue[Any]",
    on_event: OnEvent,
    stop: threading.Event,
) -> None:
    """Handle the events of worker processes until all have ended."""
    working = len(processes)
    while working:
        if stop.is_set():
            _drain(todo, len(processes))
        try:
            event = events.get(timeout=0.5)
        except Empty:
            if any(process.exitcode not in (None, 0) for process in processes):
                if stop.is_set():
                    return  # the caller reports what is missing
                raise VsrkitError(
                    "a worker process was killed, perhaps because memory ran out; run the same "
                    "command again with fewer --workers to resume"
                ) from None
            continue
        if event is None:
            working -= 1
        elif isinstance(event, Exception):
            raise event
        else:
            on_event(event)


def _drain(todo: "Queue[Any]", workers: int) -> None:
    """Remove the parts that no worker has begun."""
    try:
        while True:
            todo.get_nowait()
    except Empty:
        for _ in range(workers):
            todo.put(None)


def _work(
    todo: "Queue[Any]", events: "Queue[Any]", job: JobContext, engine: Engine, threads: int
) -> None:
    """Main function of a worker process; sends events, then None or the error that ended it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process decides when to stop
    keep_freed_memory()
    torch.set_num_threads(threads)
    try:
        produce(iter(todo.get, None), job, engine, events.put)
        events.put(None)
    except Exception as error:  # noqa: BLE001  raised again in the parent
        events.put(error)
