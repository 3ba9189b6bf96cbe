"""`upscale_video`: a whole job, from the source file to the output file."""

import logging
import os
import signal
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vsrkit.errors import StoppedError, VideoError
from vsrkit.inference.engine import Engine
from vsrkit.upscale.options import (
    DEFAULT_OPTIONS,
    OnProgress,
    Progress,
    ResolvedOptions,
    UpscaleOptions,
)
from vsrkit.upscale.prepare import (
    PreparedJob,
    open_input,
    prepare,
    resolve_options,
    stride_of,
)
from vsrkit.upscale.produce import (
    FrameDone,
    JobContext,
    JobEvent,
    PartDone,
    TileHalved,
    fingerprint,
    plan_parts,
    produce,
    scan,
)
from vsrkit.upscale.work_folder import (
    Index,
    Manifest,
    Part,
    Target,
    WorkFolder,
    finish_images,
    image_names,
    open_target,
    remove_leftovers,
)
from vsrkit.upscale.workers import engines_for, run_parts
from vsrkit.video.codecs import Encoding
from vsrkit.video.mux import assemble
from vsrkit.video.probe import UPRIGHT
from vsrkit.video.read import Source
from vsrkit.video.timestamps import Clock

log = logging.getLogger("vsrkit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Upscaled:
    """The result of a job."""

    path: Path
    model: str
    frames: int
    shots: int
    height: int
    width: int
    seconds: float
    resumed: int  # frames that an earlier run of the job had finished


def upscale_video(
    source: str | Path,
    target: str | Path,
    *,
    options: UpscaleOptions = DEFAULT_OPTIONS,
    on_progress: OnProgress = lambda _: None,
) -> Upscaled:
    """Upscale a video, or a folder or pattern of images, into a video or a folder of images.

    Audio, subtitles, chapters, attachments, metadata and times are kept. Finished parts are stored
    in a hidden work folder beside the target until the output is complete; the same call after a
    crash continues from them and gives the same bytes.

    source: path of a video, folder of images, or pattern such as `frames/%04d.png`.
    target: path of a video, folder for PNG files, or pattern such as `out/%04d.png`.
    options: what to make of the source, and which resources to use.
    on_progress: called after every frame, in the thread of the caller.
    """
    begin = time.monotonic()
    video = open_input(source, options)
    cleanup_only = not options.restart and WorkFolder.beside(Path(target)).only_cleanup_remains(
        Path(target)
    )
    goal = open_target(target, video, overwrite=options.overwrite or cleanup_only)
    folder = WorkFolder.beside(goal.path)
    with _locked(folder, goal):
        if options.restart:
            folder.clear()
        earlier = folder.read()
        input_hash = fingerprint(video)
        same_input = earlier is not None and earlier.options.input == input_hash
        kept = earlier.options if earlier and same_input else None
        prepared = prepare(
            video,
            options,
            suffix=None if goal.images else goal.path.suffix.lower(),
            earlier=kept,
            scratch=folder.path,
        )
        for line in prepared.notes:
            log.warning("%s", line)
        resolved = resolve_options(
            video, prepared, options, output=goal.kind, input_hash=input_hash, earlier=kept
        )
        spec = prepared.engine.spec
        stride = stride_of(spec, options.quality)
        manifest = _manifest(folder, earlier, resolved, video, on_progress)
        index = manifest.index
        parts = list(plan_parts(index.shots, spec.context, stride=stride))
        job = _context(video, goal, folder, prepared, len(index.times))
        resumed = len(index.times)
        if not cleanup_only:
            resumed = _make_missing(
                parts, job, prepared.engine, options.workers, manifest, on_progress
            )
            on_progress(Progress(stage="write", done=0, total=1))
            _finish(goal, job, parts, index)
            on_progress(Progress(stage="write", done=1, total=1))
    folder.remove()
    size = prepared.encoding or prepared  # an encoder may need even sizes, larger by one
    return Upscaled(
        path=goal.path,
        model=prepared.model,
        frames=len(index.times),
        shots=len(index.shots),
        height=size.height,
        width=size.width,
        seconds=time.monotonic() - begin,
        resumed=resumed,
    )


def _context(
    source: Source, goal: Target, folder: WorkFolder, prepared: PreparedJob, frames: int
) -> JobContext:
    return JobContext(
        source=source,
        folder=folder,
        height=prepared.height,
        width=prepared.width,
        chunk=prepared.memory.chunk,
        low_memory=prepared.memory.low_memory,
        encoding=prepared.encoding,
        names=image_names(goal, source, frames) if goal.images else (),
        bits=16 if source.info.bits > 8 else 8,
        turn=source.info.orientation if goal.turns else UPRIGHT,
    )


@contextmanager
def _locked(folder: WorkFolder, goal: Target) -> Iterator[None]:
    try:
        with folder.locked():
            remove_leftovers(folder.path)
            yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise VideoError(f"cannot write {goal.path}: {reason}") from error


def _manifest(
    folder: WorkFolder,
    earlier: Manifest | None,
    options: ResolvedOptions,
    source: Source,
    on_progress: OnProgress,
) -> Manifest:
    """The manifest of the earlier run if this is the same job, else a new one."""
    if earlier:
        if changed := earlier.options.differences(options):
            raise VideoError(
                f"{folder.path} holds an unfinished job with other options "
                f"({'; '.join(changed)}); repeat those to resume it, or add --restart to discard it"
            )
        return earlier
    folder.clear()
    manifest = Manifest(options=options, index=scan(source, on_progress))
    folder.write(manifest)
    return manifest


def _make_missing(
    parts: list[Part],
    job: JobContext,
    engine: Engine,
    workers: int,
    manifest: Manifest,
    on_progress: OnProgress,
) -> int:
    """Compute the parts that do not exist yet; returns how many frames existed."""
    missing = [part for part in parts if not job.folder.part(part.number).exists()]
    cuts, total = manifest.index.cuts, len(manifest.index.times)
    resumed = done = total - sum(part.stop - part.start for part in missing)
    in_progress = PartsInProgress(missing)

    def show(frame: int) -> None:
        shot = bisect_right(cuts, frame) + 1
        on_progress(
            Progress(stage="upscale", done=done, total=total, shot=shot, shots=len(cuts) + 1)
        )

    def on_event(event: JobEvent) -> None:
        nonlocal done
        in_progress.count(event)
        match event:
            case FrameDone(number):
                done += 1
                show(number)
            case TileHalved(tile):
                log.warning("out of memory: continuing with tiles of %d pixels", tile)
                smaller = manifest.options.with_smaller_tile(tile)
                job.folder.write(manifest.model_copy(update={"options": smaller}))

    if missing:
        show(missing[0].start)  # speed is measured from here: frames of a part may come at once
    with stop_on_interrupt(in_progress.describe_wait) as stop:
        if workers == 1:
            produce(_until(missing, stop), job, engine, on_event)
        else:
            run_parts(missing, job, engines_for(engine, workers), on_event, stop)
    left = [part for part in parts if not job.folder.part(part.number).exists()]
    if left:
        kept = total - sum(part.stop - part.start for part in left)
        raise StoppedError(
            f"stopped; {kept} of {total} frames are finished, run the same command to resume"
        )
    return resumed


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


def _until(parts: Sequence[Part], stop: threading.Event) -> Iterator[Part]:
    for part in parts:
        if stop.is_set():
            return
        yield part


def _finish(goal: Target, job: JobContext, parts: list[Part], index: Index) -> None:
    """Move the images, or the video that is muxed from the parts, to the output path."""
    if goal.images:
        job.folder.mark_finished()
        finish_images(goal, job.folder, job.names)
        return
    assert job.encoding is not None
    files = [job.folder.part(part.number) for part in parts]
    mux_parts(goal.path, files, job.folder, job.encoding, index.clock(job.source), job.source)


def mux_parts(
    target: Path,
    parts: list[Path],
    folder: WorkFolder,
    encoding: Encoding,
    clock: Clock,
    source: Source,
) -> None:
    """Mux a complete file in the work folder, then move it to the output path."""
    whole = folder.whole(target.suffix)
    assemble(
        whole,
        parts,
        suffix=target.suffix.lower(),
        encoding=encoding,
        clock=clock,
        source=source,
    )
    folder.mark_finished()
    whole.replace(target)
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Flush a renamed file to disk, on systems that can."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
