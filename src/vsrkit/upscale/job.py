"""`upscale_video`: a whole job, from the source file to the output file."""

import logging
import os
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vsrkit.errors import StoppedError, VideoError
from vsrkit.inference.engine import Engine
from vsrkit.upscale.options import DEFAULT_OPTIONS, ResolvedOptions, UpscaleOptions
from vsrkit.upscale.parts import (
    Index,
    OnProgress,
    Part,
    Progress,
    fingerprint,
    plan_parts,
    scan,
)
from vsrkit.upscale.prepare import (
    PreparedJob,
    open_input,
    prepare,
    resolve_options,
    stride_of,
)
from vsrkit.upscale.produce import FrameDone, JobContext, JobEvent, TileHalved
from vsrkit.upscale.target import Target, finish_images, image_names, open_target
from vsrkit.upscale.work_folder import Manifest, WorkFolder, remove_leftovers
from vsrkit.upscale.workers import PartsInProgress, engines_for, run_parts, stop_on_interrupt
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
        engines = engines_for(prepared.engine, options.workers)
        manifest = _manifest(folder, earlier, resolved, video, on_progress)
        index = manifest.index
        parts = list(plan_parts(index.shots, spec.context, stride=stride))
        job = _context(video, goal, folder, prepared, len(index.times))
        resumed = len(index.times)
        if not cleanup_only:
            resumed = _make_missing(parts, job, engines, manifest, on_progress)
            on_progress(Progress(stage="write", done=0, total=1))
            _finish(goal, job, parts, index)
            on_progress(Progress(stage="write", done=1, total=1))
    folder.remove()
    return Upscaled(
        path=goal.path,
        model=prepared.model,
        frames=len(index.times),
        shots=len(index.shots),
        height=prepared.height,
        width=prepared.width,
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
    engines: list[Engine],
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
        run_parts(missing, job, engines, on_event, stop)
    left = [part for part in parts if not job.folder.part(part.number).exists()]
    if left:
        kept = total - sum(part.stop - part.start for part in left)
        raise StoppedError(
            f"stopped; {kept} of {total} frames are finished, run the same command to resume"
        )
    return resumed


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
