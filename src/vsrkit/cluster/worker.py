"""What runs on a worker of Dask: facts about its machine, and calls in processes of their own.

Models run in child processes of the Dask worker, not in its threads: a thread that holds the
interpreter's lock for minutes looks like a dead worker to the scheduler, instruction sets can be
chosen only before PyTorch is loaded, and a process can be ended when its job is cancelled.
"""

import asyncio
import multiprocessing
import os
import platform
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import av
import torch
from torch.cuda import device_count

from vsrkit import __version__
from vsrkit.cluster.files import Block, SharedFiles, complete, is_here, receive
from vsrkit.errors import VsrkitError
from vsrkit.hardware.device import (
    Precision,
    describe_processor,
    largest_convolution,
    measure_speeds,
)
from vsrkit.hardware.executors import LocalPool
from vsrkit.hardware.instructions import instruction_level
from vsrkit.hardware.int8 import int8_fault
from vsrkit.hardware.memory import free_memory
from vsrkit.inference.reference import EngineReference, use_device

POLL_S = 0.5  # seconds between checks whether a call was cancelled
IDLE_S = 120.0  # seconds after which an idle process ends; the next call starts another


def usable_cores() -> int:
    """Cores that this process may use; a batch system or a container has only some of them."""
    return int(import_module("dask.system").cpu_count())  # not in the core


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """What a job must know of a worker before it sends work there."""

    vsrkit: str = __version__
    torch: str = torch.__version__
    pyav: str = av.__version__
    machine: str = field(default_factory=platform.node)  # addresses of one machine can differ
    processor: str = field(default_factory=lambda: describe_processor(torch.device("cpu")))
    instructions: str = field(default_factory=instruction_level)
    cores: int = field(default_factory=usable_cores)
    all_cores: int = field(default_factory=lambda: os.cpu_count() or 1)  # of the machine
    memory: int = field(default_factory=free_memory)  # bytes that are free
    gpus: int = field(default_factory=device_count)


class ProcessDiedError(VsrkitError):
    """The process of a call ended without an answer, perhaps because memory ran out."""


@dataclass(frozen=True, slots=True)
class CallSettings:
    """How a call runs: with which variables of the environment, on how many cores."""

    environment: tuple[tuple[str, str], ...]
    threads: int


async def describe() -> WorkerFacts:
    """Facts about this worker."""
    return await asyncio.to_thread(WorkerFacts)


async def rate(
    reference: EngineReference, candidates: Sequence[Precision], settings: CallSettings
) -> dict[Precision, float]:
    """Load a model and measure its speed; 0 for a precision that this processor does not have.

    Raises WeightsError if the weights are others here.
    """
    return await asyncio.to_thread(_children.call, settings, _rate, (reference, candidates))


def _rate(reference: EngineReference, candidates: Sequence[Precision]) -> dict[Precision, float]:
    convolution = largest_convolution(reference.load())  # an engine would change its layout
    if convolution is None:
        return dict.fromkeys(candidates, 1.0)
    floats = [candidate.floats for candidate in candidates]
    speeds = measure_speeds(convolution, torch.device(reference.device), floats)
    return {c: 0.0 if c.int8 and int8_fault() else speeds[c.floats] for c in candidates}


def run_call(settings: CallSettings, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Run a call in a child process; the function of each task that Dask runs."""
    import distributed  # noqa: PLC0415  not in the core

    worker = distributed.get_worker()
    key = worker.get_current_task()

    def is_cancelled() -> bool:
        task = worker.state.tasks.get(key)
        return task is None or task.state == "cancelled"

    return _children.call(settings, call, arguments, is_cancelled)


async def has_files(files: SharedFiles) -> bool:
    """Whether this machine has files or can fetch them itself."""
    return await asyncio.to_thread(is_here, files)


async def receive_block(files: SharedFiles, block: Block) -> None:
    """Store a block of files that are sent to this machine."""
    await asyncio.to_thread(receive, files, block)


async def complete_files(files: SharedFiles) -> bool:
    """Check files that were sent to this machine; returns True."""
    return await asyncio.to_thread(complete, files)


async def end_idle_processes() -> None:
    """End the processes that are kept for the next call."""
    await asyncio.to_thread(_children.end_idle)


@dataclass
class _Child:
    """A process, the environment it was started with, and its place among those of this worker."""

    pool: LocalPool
    environment: tuple[tuple[str, str], ...]
    number: int
    timer: threading.Timer | None = None


class _Children:
    """The child processes of a worker, started when they are needed and kept for a while."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Child] = []
        self._numbers: set[int] = set()

    def call(
        self,
        settings: CallSettings,
        call: Callable[..., Any],
        arguments: tuple[Any, ...],
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> Any:
        """The result of a call in a child process, which is ended if the call is cancelled."""
        child = self._borrow(settings)
        try:
            future = child.pool.submit(_run_in_child, settings.threads, call, arguments)
            while not wait([future], timeout=POLL_S).done:
                if is_cancelled():
                    raise CancelledError
            result = future.result()
        except BrokenExecutor as error:
            self._end(child)
            raise ProcessDiedError(
                "a process was killed, perhaps because memory ran out"
            ) from error
        except CancelledError:
            self._end(child)
            raise
        except Exception:
            self._give_back(child)
            raise
        self._give_back(child)
        return result

    def _borrow(self, settings: CallSettings) -> _Child:
        with self._lock:
            for child in self._idle:
                if child.environment == settings.environment:
                    self._idle.remove(child)
                    break
            else:
                number = next(n for n in range(len(self._numbers) + 1) if n not in self._numbers)
                self._numbers.add(number)
                with _variables(dict(settings.environment)), _children_allowed():
                    pool = LocalPool(1, _start_child, number)
                    pool.submit(os.getpid)  # starts the process with these variables
                child = _Child(pool, settings.environment, number)
        if child.timer:
            child.timer.cancel()
        return child

    def _give_back(self, child: _Child) -> None:
        child.timer = threading.Timer(IDLE_S, self._expire, (child,))
        child.timer.daemon = True
        child.timer.start()
        with self._lock:
            self._idle.append(child)

    def _expire(self, child: _Child) -> None:
        with self._lock:
            if child not in self._idle:
                return
            self._idle.remove(child)
        self._end(child)

    def _end(self, child: _Child) -> None:
        child.pool.terminate()
        with self._lock:
            self._numbers.discard(child.number)

    def end_idle(self) -> None:
        """End the processes that wait for a call."""
        with self._lock:
            idle, self._idle = self._idle, []
        for child in idle:
            if child.timer:
                child.timer.cancel()
            self._end(child)


_children = _Children()


def _start_child(number: int) -> None:
    """Give each process of a worker its own GPU."""
    if count := device_count():
        use_device(f"cuda:{number % count}")


def _run_in_child(threads: int, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    torch.set_num_threads(threads)
    try:
        return call(*arguments)
    except VsrkitError:
        raise
    except Exception as error:  # noqa: BLE001  not all exceptions can be sent to another process
        raise RuntimeError(f"{type(error).__name__}: {error}") from None


@contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment for processes that are started inside."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _children_allowed() -> Iterator[None]:
    """Let this process start others.

    Dask runs workers as daemonic processes, which Python forbids to have children, because these
    would stay behind. Those of a LocalPool end with their parent.
    """
    config = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    daemon = config.get("daemon", False)
    config["daemon"] = False
    try:
        yield
    finally:
        config["daemon"] = daemon
