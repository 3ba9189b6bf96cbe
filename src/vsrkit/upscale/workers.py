"""Run the parts of a job, in this process or shared among several, until done or Ctrl-C.

The bytes of the output do not depend on the number of processes.
"""

import copy
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.queues import Queue
from queue import Empty
from typing import Any

import torch

from vsrkit.errors import VsrkitError
from vsrkit.hardware.memory import keep_freed_memory
from vsrkit.inference.engine import Engine
from vsrkit.models.spec import Carried
from vsrkit.upscale.parts import Part
from vsrkit.upscale.produce import FrameDone, JobContext, JobEvent, OnEvent, PartDone, produce

log = logging.getLogger("vsrkit")


class PartsInProgress:
    """The parts that are being computed: how much of them is left, and for how long."""

    def __init__(self, missing: Sequence[Part]) -> None:
        self._missing = {part.number: part for part in missing}
        self._done = {part.number: 0 for part in missing}
        self._begin = time.monotonic()

    def count(self, event: JobEvent) -> None:
        """Take account of a frame or a part."""
        match event:
            case FrameDone(number):
                part = next(p for p in self._missing.values() if p.start <= number < p.stop)
                self._done[part.number] += 1
            case PartDone(number):
                del self._missing[number]

    def describe_wait(self) -> str:
        """What Ctrl-C waits for, and how long that takes."""
        begun = [part for part in self._missing.values() if self._done[part.number]]
        begun = begun or list(self._missing.values())[:1]
        done = sum(self._done[part.number] for part in begun)
        left = sum(part.stop - part.start for part in begun) - done
        all_done = sum(self._done.values())
        text = f"finishing the current part, {left} more frames"
        if all_done:
            seconds = (time.monotonic() - self._begin) / all_done * left
            text += (
                f", about {seconds:.0f} s" if seconds < 100 else f", about {seconds / 60:.0f} min"
            )
        return f"{text}; Ctrl-C again stops at once and discards {done} frames"


@contextmanager
def stop_on_interrupt(describe_wait: Callable[[], str]) -> Iterator[threading.Event]:
    """An event that Ctrl-C sets, with a warning; a second Ctrl-C raises KeyboardInterrupt."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # only the main thread can handle signals
        return
    before = signal.getsignal(signal.SIGINT)

    def on_interrupt(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        log.warning("%s", describe_wait())

    signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def engines_for(engine: Engine, workers: int) -> list[Engine]:
    """One engine for each process, distributed over all GPUs."""
    if isinstance(engine.spec.context, Carried) and workers > 1:
        raise VsrkitError(
            "this model passes a state from frame to frame and runs in one process; use --workers 1"
        )
    if workers == 1:
        return [engine]
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
    if len(engines) == 1:
        produce(_until(parts, stop), job, engines[0], on_event)
        return
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


def _until(parts: Sequence[Part], stop: threading.Event) -> Iterator[Part]:
    for part in parts:
        if stop.is_set():
            return
        yield part


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
