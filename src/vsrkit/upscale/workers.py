"""Share the parts of a job among processes; the bytes do not depend on how many there are."""

import copy
import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.queues import Queue
from queue import Empty
from threading import Event
from typing import Any

import torch

from vsrkit.errors import VsrkitError
from vsrkit.hardware.memory import keep_freed_memory
from vsrkit.inference.engine import Engine
from vsrkit.models.spec import Carried
from vsrkit.upscale.parts import Part
from vsrkit.upscale.produce import Recipe, Tell, produce


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
    recipe: Recipe,
    engines: Sequence[Engine],
    tell: Tell,
    stop: Event,
) -> None:
    """Make all parts, with one process for each engine; after `stop` no further one is begun."""
    if len(engines) == 1:
        produce(_until(parts, stop), recipe, engines[0], tell)
        return
    context = multiprocessing.get_context("spawn")
    # Each worker takes the next part that nobody has, so that each goes forward in the video.
    todo: Any = context.Queue()
    said: Any = context.Queue()
    for part in parts:
        todo.put(part)
    for _ in engines:
        todo.put(None)
    threads = max(1, (os.cpu_count() or 1) // len(engines))
    processes = [
        context.Process(target=_work, args=(todo, said, recipe, engine, threads), daemon=True)
        for engine in engines
    ]
    with _sparing_children():
        for process in processes:
            process.start()
    try:
        _listen(processes, todo, said, tell, stop)
    finally:
        for process in processes:
            process.terminate()
            process.join()


@contextmanager
def _sparing_children() -> Iterator[None]:
    """Inside, processes are started that never get Ctrl-C.

    It reaches all processes of a terminal, and one that has just begun cannot handle it yet.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _until(parts: Sequence[Part], stop: Event) -> Any:
    for part in parts:
        if stop.is_set():
            return
        yield part


def _listen(
    processes: Sequence[Any], todo: "Queue[Any]", said: "Queue[Any]", tell: Tell, stop: Event
) -> None:
    working = len(processes)
    while working:
        if stop.is_set():
            _drain(todo, len(processes))
        try:
            what, value = said.get(timeout=0.5)
        except Empty:
            if any(process.exitcode not in (None, 0) for process in processes):
                if stop.is_set():
                    return  # what is missing is told as after any stop
                raise VsrkitError(
                    "a worker process was killed, perhaps for want of memory; run the same "
                    "command again to go on, with fewer --workers"
                ) from None
            continue
        if what == "end":
            working -= 1
        elif what == "error":
            raise value
        else:
            tell(what, value)


def _drain(todo: "Queue[Any]", workers: int) -> None:
    """Take back what nobody has begun."""
    try:
        while True:
            todo.get_nowait()
    except Empty:
        for _ in range(workers):
            todo.put(None)


def _work(
    todo: "Queue[Any]", said: "Queue[Any]", recipe: Recipe, engine: Engine, threads: int
) -> None:
    """The life of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent decides
    keep_freed_memory()
    torch.set_num_threads(threads)

    def tell(what: str, value: int) -> None:
        said.put((what, value))

    try:
        produce(iter(todo.get, None), recipe, engine, tell)
        said.put(("end", None))
    except Exception as error:  # noqa: BLE001  raised again in the parent
        said.put(("error", error))
