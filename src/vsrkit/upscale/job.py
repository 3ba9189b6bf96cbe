"""`upscale_video`: a whole job, from the source file to the output file."""

import logging
import os
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import av
import torch

from vsrkit import __version__
from vsrkit.cluster.executor import DaskExecutor
from vsrkit.cluster.files import SharedFiles
from vsrkit.errors import VideoError
from vsrkit.hardware.files import is_address
from vsrkit.models.weights import model_digest
from vsrkit.upscale.options import (
    DEFAULT_OPTIONS,
    OnProgress,
    Progress,
    ResolvedOptions,
    UpscaleOptions,
    stride_of,
)
from vsrkit.upscale.prepare import PreparedJob, open_input, prepare
from vsrkit.upscale.produce import (
    JobContext,
    fingerprint,
    plan_parts,
    scan,
)
from vsrkit.upscale.run import JobProgress, missing_parts, produce_missing
from vsrkit.upscale.work_folder import (
    Index,
    Manifest,
    Part,
    Target,
    WorkFolder,
    finish_images,
    image_names,
    is_pattern,
    open_target,
    remove_leftovers,
)
from vsrkit.video.codecs import Encoding
from vsrkit.video.mux import assemble, check_times
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
    executor: Executor | None = None,
) -> Upscaled:
    """Upscale a video, or a folder or pattern of images, into a video or a folder of images.

    Audio, subtitles, chapters, attachments, metadata and times are kept. Finished parts are stored
    in a hidden work folder beside the target until the output is complete; the same call after a
    crash continues from them and gives the same bytes.

    source: path of a video, folder of images, pattern such as `frames/%04d.png`, or an address of a
        video for fsspec, such as `https://host/film.mkv`.
    target: path of a video, folder for PNG files, or pattern such as `out/%04d.png`.
    options: what to make of the source, and which resources to use.
    on_progress: called for every frame, in the thread of the caller; with an executor, for all
        frames of a part when it is finished.
    executor: computes the parts in place of `options.workers` processes, here or on other
        machines. Its workers need vsrkit, the weights of the model and the input; this process
        writes what they return.
    """
    begin = time.monotonic()
    video = open_input(source, options)
    place = Path(target).parent if is_pattern(Path(target)) else Path(target)
    cleanup_only = not options.restart and WorkFolder.beside(place).only_cleanup_remains(place)
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
            cluster=executor if isinstance(executor, DaskExecutor) else None,
        )
        for line in prepared.notes:
            log.warning("%s", line)
        resolved = _resolve_options(
            video, prepared, options, output=goal.kind, input_hash=input_hash, earlier=kept
        )
        spec = prepared.engine.spec
        stride = stride_of(spec, options.quality)
        manifest = _manifest(folder, earlier, resolved, video, on_progress)
        index = manifest.index
        check_times(goal.path.suffix.lower(), index.clock(video))
        names = image_names(goal, video, len(index.times)) if goal.images else ()
        parts = list(
            plan_parts(
                index.shots, spec.context, stride=stride, names=names, seek_table=index.seek_table
            )
        )
        job = _context(video, goal, prepared, manifest.identity)
        if executor:
            job = replace(job, files=_share(source, video, input_hash, executor))
        resumed = len(index.times)
        if not cleanup_only:
            moved_to = goal.path if goal.images and folder.is_finished else None
            missing = missing_parts(parts, folder, job.identity, moved_to=moved_to)
            tracker = JobProgress(parts, missing, manifest, folder, on_progress)
            produce_missing(tracker, job, prepared, options.workers, executor)
            resumed = tracker.resumed
            on_progress(Progress(stage="write", done=0, total=1))
            _finish(goal, job, folder, parts, index)
            on_progress(Progress(stage="write", done=1, total=1))
    folder.remove()
    size = prepared.encoding or prepared  # an encoder may need even sizes, larger by one
    return Upscaled(
        path=goal.path,
        model=prepared.label,
        frames=len(index.times),
        shots=len(index.shots),
        height=size.height,
        width=size.width,
        seconds=time.monotonic() - begin,
        resumed=resumed,
    )


def _resolve_options(
    source: Source,
    job: PreparedJob,
    options: UpscaleOptions,
    *,
    output: str,
    input_hash: str,
    earlier: ResolvedOptions | None,
) -> ResolvedOptions:
    """The values that decide the bytes of a job's output.

    output: kind of the output, see `Target.kind`.
    input_hash: of the content of the source, see `fingerprint`.
    earlier: options of an unfinished run of the same job.
    """
    engine, encoding = job.engine, job.encoding
    tile = engine.tile or 0
    return ResolvedOptions(
        input=input_hash,
        model=job.model,
        weights=model_digest(engine.model),
        sharpness=options.sharpness,
        precision=engine.precision,
        calibration=engine.calibration,
        device=job.device.split(":")[0],
        tile=tile,
        tile_too_large=earlier.tile_too_large if earlier and tile == earlier.tile else None,
        quality=options.quality,
        size=(job.height, job.width),
        start=source.span[0],
        end=source.span[1],
        frame_rate=source.info.frame_rate,
        deinterlaced=_deinterlaced(source),
        output=output,
        codec=encoding.codec if encoding else None,
        encoder_options=encoding.options if encoding else (),
        pix_fmt=encoding.pix_fmt if encoding else None,
        colour=encoding.colour if encoding else None,
        instructions=job.instructions,
        vsrkit=__version__,
        torch=torch.__version__,
        pyav=av.__version__,
    )


def _deinterlaced(source: Source) -> Literal["none", "flagged frames", "all frames"]:
    if source.deinterlace == "always":
        return "all frames"
    return "flagged frames" if source.info.interlaced and source.deinterlace == "auto" else "none"


def _context(source: Source, goal: Target, prepared: PreparedJob, identity: str) -> JobContext:
    return JobContext(
        identity=identity,
        source=source,
        height=prepared.height,
        width=prepared.width,
        chunk=prepared.memory.chunk,
        low_memory=prepared.memory.low_memory,
        encoding=prepared.encoding,
        bits=16 if source.info.bits > 8 else 8,
        turn=source.info.orientation if goal.turns else UPRIGHT,
    )


def _share(source: str | Path, video: Source, digest: str, executor: Executor) -> SharedFiles:
    """The files of the source for workers elsewhere; sent to those of a cluster that lack them."""
    paths = tuple(path.absolute() for path in video.images or (video.path,))
    address = str(source) if is_address(source) else None
    files = SharedFiles(digest, paths, address, with_names=bool(video.images))
    if isinstance(executor, DaskExecutor):
        executor.share(files)
    return files


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


def _finish(
    goal: Target, job: JobContext, folder: WorkFolder, parts: list[Part], index: Index
) -> None:
    """Move the images, or the video that is muxed from the parts, to the output path."""
    if goal.images:
        folder.mark_finished()
        finish_images(goal, folder, [name for part in parts for name in part.names])
        return
    assert job.encoding is not None
    files = [folder.part(part.number) for part in parts]
    mux_parts(goal.path, files, folder, job.encoding, index.clock(job.source), job.source)


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
