"""Find the missing parts of a job and compute them, count their frames, and stop on Ctrl-C."""

import logging
import signal
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from vsrkit.errors import StoppedError, VideoError
from vsrkit.hardware.files import file_digest
from vsrkit.upscale.executors import PartQueue, PartTask, local_workers, run_parts
from vsrkit.upscale.options import OnProgress, Progress
from vsrkit.upscale.prepare import PreparedJob
from vsrkit.upscale.produce import (
    FrameDone,
    JobContext,
    JobEvent,
    PartDone,
    PartRecord,
    TileHalved,
    WorkersChanged,
    produce,
)
from vsrkit.upscale.work_folder import Manifest, Part, WorkFolder
from vsrkit.video.seek import PictureReader

log = logging.getLogger("vsrkit")


def missing_parts(
    parts: Sequence[Part], folder: WorkFolder, job: str, *, moved_to: Path | None = None
) -> list[Part]:
    """The parts to be computed: not finished, damaged since, or of another job.

    The records of damaged parts are deleted.

    job: identity of the job.
    moved_to: folder to which some finished images may have been moved already.
    """
    missing: list[Part] = []
    followed = True  # whether the part after this one needs no state, or is finished
    for part in reversed(parts):
        record = _read_record(part, folder, job, moved_to)
        carries = record is not None and part.state_file in record.files
        if record and carries and not followed and not folder.has_state(part.number):
            record = None  # its state was deleted when the next part was finished
        if record is None:
            missing.append(part)
            folder.discard(part.number)
        followed = record is not None or part.pieces[0].begins_shot
    return missing[::-1]


def _read_record(
    part: Part, folder: WorkFolder, job: str, moved_to: Path | None
) -> PartRecord | None:
    """The record of a part whose files are as they were written; None if there is none."""
    try:
        record = PartRecord.model_validate_json((folder.path / part.record).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError):
        record = PartRecord(job="", part=part.number, files={})
    own = {part.file} if not part.names else set(part.images)
    if (record.job, record.part, set(record.files) - {part.state_file}) != (job, part.number, own):
        log.warning("part %d is damaged or of another job; it is computed again", part.number)
        return None
    for name, digest in record.files.items():
        found = _digest(folder, name, moved_to)
        if name == part.state_file:
            if found not in (None, digest):
                (folder.path / name).unlink()
        elif found != digest:
            log.warning("part %d is damaged (%s); it is computed again", part.number, name)
            return None
    return record


def _digest(folder: WorkFolder, name: str, moved_to: Path | None) -> str | None:
    """The hash of a file; None if it cannot be read."""
    path = folder.path / name
    if moved_to is not None and not path.exists():
        path = moved_to / path.name
    with suppress(VideoError):
        return file_digest([path])
    return None


def produce_missing(
    progress: "JobProgress",
    job: JobContext,
    prepared: PreparedJob,
    workers: int,
    executor: Executor | None,
) -> None:
    """Compute the parts that do not exist yet; raises StoppedError after Ctrl-C.

    progress: of the job, with its parts and its work folder.
    workers: processes of this machine, if there is no executor.
    executor: computes the parts in place of those.
    """
    missing, folder, engine = progress.missing, progress.folder, prepared.engine
    if not missing:
        return
    progress.show(missing[0].start)  # speed counts from here: frames of a part may come at once
    with stop_on_interrupt(progress.describe_wait) as stop:
        if executor is None and workers == 1:
            produce(
                _until(missing, stop),
                job,
                engine,
                PictureReader(job.source),
                progress.on_event,
                write=folder.write_file,
                read_state=folder.read_state,
            )
        else:
            _run_elsewhere(progress, job, prepared, workers, executor, stop)
    progress.check_complete()


def _run_elsewhere(
    progress: "JobProgress",
    job: JobContext,
    prepared: PreparedJob,
    workers: int,
    executor: Executor | None,
    stop: threading.Event,
) -> None:
    """Compute the missing parts on an executor, or in processes of this machine."""
    folder, engine, reference = progress.folder, prepared.engine, prepared.reference()
    queue = PartQueue(progress.parts, progress.missing, engine.spec.context)
    task = PartTask(part=progress.missing[0], job=job, engine=reference)
    if executor is not None:
        run_parts(queue, task, executor, progress.on_event, stop, folder=folder)
        return
    task = replace(task, folder=folder)
    with local_workers(engine, reference.digest, workers) as (pool, events):
        run_parts(queue, task, pool, progress.on_event, stop, folder=folder, events=events)


def _until(parts: Sequence[Part], stop: threading.Event) -> Iterator[Part]:
    for part in parts:
        if stop.is_set():
            return
        yield part


class JobProgress:
    """The parts of a job: which exist, what is left of those in progress, and for how long."""

    def __init__(
        self,
        parts: Sequence[Part],
        missing: Sequence[Part],
        manifest: Manifest,
        folder: WorkFolder,
        on_progress: OnProgress,
    ) -> None:
        self.parts, self.folder, self.missing = parts, folder, missing
        self._manifest, self._on_progress = manifest, on_progress
        self._total = len(manifest.index.times)
        self.resumed = self._done = self._total - _frames(self.missing)
        self._in_progress = {part.number: 0 for part in self.missing}  # frames done of each part
        self._begin = time.monotonic()
        self._workers = self._in_flight = self._frame = 0

    def on_event(self, event: JobEvent) -> None:
        """Take account of a frame, a part or a smaller tile."""
        match event:
            case FrameDone(number):
                part = self.parts[bisect_right(self.parts, number, key=lambda p: p.start) - 1]
                self._in_progress[part.number] += 1
                self._done += 1
                self.show(number)
            case PartDone(number):
                del self._in_progress[number]
                self.folder.drop_states(number)
            case WorkersChanged(workers, parts):
                self._workers, self._in_flight = workers, parts
                self.show(self._frame)
            case TileHalved(tile):
                log.warning("out of memory: continuing with tiles of %d pixels", tile)
                smaller = self._manifest.options.with_smaller_tile(tile)
                self.folder.write(self._manifest.model_copy(update={"options": smaller}))

    def show(self, frame: int) -> None:
        """Report the progress after a frame."""
        self._frame = frame
        cuts = self._manifest.index.cuts
        shot = bisect_right(cuts, frame) + 1
        self._on_progress(
            Progress(
                stage="upscale",
                done=self._done,
                total=self._total,
                shot=shot,
                shots=len(cuts) + 1,
                workers=self._workers,
                parts=self._in_flight,
            )
        )

    def describe_wait(self) -> str:
        """What Ctrl-C waits for, and how long that takes."""
        left = [part for part in self.missing if part.number in self._in_progress]
        begun = [part for part in left if self._in_progress[part.number]] or left[:1]
        done = sum(self._in_progress[part.number] for part in begun)
        frames = _frames(begun) - done
        text = f"finishing the current part, {frames} more frames"
        if made := self._done - self.resumed:
            seconds = (time.monotonic() - self._begin) / made * frames
            text += (
                f", about {seconds:.0f} s" if seconds < 100 else f", about {seconds / 60:.0f} min"
            )
        return f"{text}; Ctrl-C again stops at once and discards {done} frames"

    def check_complete(self) -> None:
        """Raise StoppedError if parts are missing."""
        if left := [part for part in self.parts if not self.folder.is_done(part.number)]:
            kept = self._total - _frames(left)
            raise StoppedError(
                f"stopped; {kept} of {self._total} frames are finished, run the same command to "
                "resume"
            )


def _frames(parts: Sequence[Part]) -> int:
    return sum(part.stop - part.start for part in parts)


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
