"""Run the parts of a job on any `concurrent.futures.Executor`; the output does not depend on it."""

import logging
import multiprocessing
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, Queue
from tempfile import gettempdir
from typing import Any

import torch
from torch import nn

from vsrkit.errors import VsrkitError
from vsrkit.hardware.executors import LocalPool, slots_of
from vsrkit.hardware.threads import leave_parent_threads
from vsrkit.inference.engine import Engine
from vsrkit.inference.reference import EngineReference, keep_model
from vsrkit.models.spec import Carried, Context, PiecePlan
from vsrkit.upscale.produce import (
    FrameDone,
    JobContext,
    JobEvent,
    OnEvent,
    PartDone,
    TileHalved,
    WorkersChanged,
    produce,
)
from vsrkit.upscale.work_folder import Part, WorkFolder
from vsrkit.video.read import Source
from vsrkit.video.seek import PictureReader

log = logging.getLogger("vsrkit")

POLL_S = 0.2  # seconds between looks at events and at the number of workers
TRIES = 3  # of a part on workers that may differ from each other


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTask:
    """A part of a job by value: any process with vsrkit, the model and the input computes it.

    folder: where the files of the part are written; None returns them.
    state: recurrent states before the part, if it continues a shot and has no `lead`.
    """

    part: Part
    job: JobContext
    engine: EngineReference
    folder: WorkFolder | None = None
    state: bytes | None = None


@dataclass(frozen=True, slots=True)
class PartAnswer:
    """A computed part: names and contents of its files in the order they must be written in.

    tile: if memory did not suffice, the tile that did.
    """

    files: tuple[tuple[str, bytes], ...]
    tile: int | None


def run_part(task: PartTask) -> PartAnswer:
    """Compute a part, in whichever process this is called."""
    leave_parent_threads()
    files: list[tuple[str, bytes]] = []
    tile: int | None = None

    def keep_file(name: str, content: Iterable[bytes]) -> None:
        whole = b"".join(content)  # the state is appended meanwhile, before its part
        files.append((name, whole))

    def on_event(event: JobEvent) -> None:
        nonlocal tile
        if isinstance(event, TileHalved):
            tile = event.tile
        if _worker.events is not None:
            _worker.events.put(event)

    write = task.folder.write_file if task.folder else keep_file
    reference = task.engine
    if reference.scratch and not task.folder:  # the work folder may be on another machine
        reference = replace(reference, scratch=Path(gettempdir()))
    with _worker.reader(task.job.local_source()) as reader:
        produce(
            [task.part], task.job, _worker.engine(reference), reader, on_event,
            write=write, read_state=lambda _: task.state or b"",
        )  # fmt: skip
    return PartAnswer(tuple(files), tile)


class _Worker(threading.local):
    """What a thread that computes parts keeps from one part to the next."""

    def __init__(self) -> None:
        self.events: Any = None  # queue to the process that owns the job, in a LocalPool
        self._reader: PictureReader | None = None
        self._engine: tuple[EngineReference, Engine] | None = None

    def engine(self, reference: EngineReference) -> Engine:
        """The engine of the last part if it is the same, else a new one."""
        if self._engine is None or self._engine[0] != reference:
            self._engine = (reference, reference.open())
        return self._engine[1]

    @contextmanager
    def reader(self, source: Source) -> Iterator[PictureReader]:
        """The open reader of a source; it is closed if the block raises an error."""
        reader, self._reader = self._reader, None
        if reader is None or reader.source != source:
            reader = PictureReader(source)
        yield reader
        self._reader = reader


_worker = _Worker()


@contextmanager
def local_workers(engine: Engine, digest: str, workers: int) -> Iterator[tuple[LocalPool, Any]]:
    """Processes that have the model of an engine, on all GPUs in turn, and the queue of events."""
    queues = multiprocessing.get_context("spawn")
    devices: Any = queues.Queue()
    events: Any = queues.Queue()
    count = torch.cuda.device_count() if engine.device == "cuda" else 0
    for number in range(workers):
        devices.put(f"cuda:{number % count}" if count > 1 else engine.device)
    with LocalPool(workers, _start_worker, digest, engine.model, devices, events) as pool:
        yield pool, events


def _start_worker(digest: str, model: nn.Module, devices: Any, events: Any) -> None:
    keep_model(digest, model, devices.get())
    _worker.events = events


class PartQueue:
    """The parts that are not begun, in order, and what those of a recurrent model wait for.

    A part that continues a shot needs the state after the part before it, so the parts of a shot
    are computed one after the other. Shots are independent: a shot that began inside the part
    before can be run again from its first frame, so that other workers need not wait.
    """

    def __init__(self, parts: Sequence[Part], missing: Sequence[Part], context: Context) -> None:
        self._parts = parts
        self._waiting = list(missing)
        self._carried = isinstance(context, Carried)

    def take(self, folder: WorkFolder) -> tuple[Part, bytes | None] | None:
        """The next part that can be computed, with the state before it; None if there is none."""
        for part in self._waiting:
            if not self._carried or part.pieces[0].begins_shot:
                return self._taken(part), None
            if folder.has_state(part.number - 1):
                return self._taken(part), folder.read_state(part.number - 1)
        for part in self._waiting:
            if lead := self._lead(part):
                return replace(self._taken(part), lead=lead), None
        return None

    def put_back(self, part: Part) -> None:
        """Add a part that was taken and failed."""
        self._waiting = sorted([*self._waiting, part], key=lambda part: part.number)

    def _taken(self, part: Part) -> Part:
        self._waiting.remove(part)
        return replace(part, lead=())

    def _lead(self, part: Part) -> tuple[PiecePlan, ...]:
        """The pieces from the start of the shot, if that is inside the part before.

        If it is the first frame of that part, to wait for the part takes no longer.
        """
        before = self._parts[part.number - 1].pieces
        starts = [place for place, piece in enumerate(before) if piece.begins_shot]
        return before[starts[-1] :] if any(starts) else ()


def run_parts(
    queue: PartQueue,
    task: PartTask,
    executor: Executor,
    on_event: OnEvent,
    stop: threading.Event,
    *,
    folder: WorkFolder,
    events: Any = None,
) -> None:
    """Compute all parts of a queue; no part begins after `stop` is set.

    As many parts are in flight as the executor runs at once. The files that workers return are
    written by this process. A part that fails is computed again, three times at most; then its
    error is raised when the other parts in flight are finished.

    task: of any part, whose own values replace the part and the state in it.
    on_event: called in this thread for the events of all parts.
    folder: of the job.
    events: queue from workers that write into the work folder themselves; their first error is
        raised at once.
    """
    run = _Run(queue, task, executor, on_event, stop, folder=folder, events=events)
    try:
        run.all()
    except BrokenExecutor as error:
        if isinstance(error, VsrkitError):
            raise
        if not stop.is_set():  # else the caller reports what is missing
            raise VsrkitError(
                "a worker process was killed, perhaps because memory ran out; run the same "
                "command again with fewer --workers to resume"
            ) from error


class _Run:
    """One call of `run_parts`."""

    def __init__(
        self,
        queue: PartQueue,
        task: PartTask,
        executor: Executor,
        on_event: OnEvent,
        stop: threading.Event,
        *,
        folder: WorkFolder,
        events: Any,
    ) -> None:
        self._queue, self._task, self._executor = queue, task, executor
        self._on_event, self._stop, self._folder = on_event, stop, folder
        self._local = events is not None
        # Holds events of workers, and None for each call that has ended.
        self._events: Any = events if self._local else Queue()
        self._running: dict[Future[PartAnswer], Part] = {}
        self._unreported = 0  # parts that are computed and whose events are still on their way
        self._failures: Counter[int] = Counter()
        self._error: VsrkitError | None = None
        self._reported: WorkersChanged | None = None

    def all(self) -> None:
        while True:
            self._begin()
            self._report_workers()
            if not self._running and not self._unreported:
                break
            with suppress(Empty):  # the timeout lets Ctrl-C through and counts workers again
                event = self._events.get(timeout=POLL_S)
                if event is not None:
                    self._unreported -= isinstance(event, PartDone)
                    self._on_event(event)
            for future in [future for future in self._running if future.done()]:
                self._end(self._running.pop(future), future)
        if self._error:
            raise self._error

    def _begin(self) -> None:
        """Submit parts until as many are in flight as the executor runs at once."""
        while not (self._stop.is_set() or self._error):
            if len(self._running) >= slots_of(self._executor):
                return
            if (taken := self._queue.take(self._folder)) is None:
                return
            part, state = taken
            future = self._executor.submit(run_part, replace(self._task, part=part, state=state))
            self._running[future] = part
            future.add_done_callback(lambda _: self._events.put(None))

    def _report_workers(self) -> None:
        """Report how many workers and parts there are, if that has changed."""
        workers = getattr(self._executor, "workers", slots_of(self._executor))
        change = WorkersChanged(workers, len(self._running))
        if change != self._reported:
            self._reported = change
            self._on_event(change)

    def _end(self, part: Part, future: Future[PartAnswer]) -> None:
        try:
            answer = future.result()
        except BrokenExecutor:
            raise
        except Exception as error:
            if self._local:
                raise
            self._fail(part, error)
            return
        if answer.tile is not None and answer.tile != self._task.engine.tile:
            self._task = replace(self._task, engine=replace(self._task.engine, tile=answer.tile))
            if not self._local:
                self._on_event(TileHalved(answer.tile))
        if self._local:
            self._unreported += 1
            return
        for name, content in answer.files:
            self._folder.write_file(name, [content])
        for number in range(part.start, part.stop):
            self._on_event(FrameDone(number))
        self._on_event(PartDone(part.number))

    def _fail(self, part: Part, error: Exception) -> None:
        self._failures[part.number] += 1
        reason = f"part {part.number} (frames {part.start} to {part.stop - 1}) failed"
        text = " ".join(str(error).split()) or type(error).__name__
        if self._failures[part.number] < TRIES:
            log.warning("%s and is computed again: %s", reason, text)
            self._queue.put_back(part)
            return
        self._error = VsrkitError(
            f"{reason} {TRIES} times: {text}; the other finished parts are kept, run the same "
            "command to resume"
        )
        self._error.__cause__ = error
