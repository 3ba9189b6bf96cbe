"""`upscale_video`: the whole job, from the file that is there to the file that is wanted."""

import logging
import os
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vsrkit.errors import StoppedError, VideoError
from vsrkit.inference.engine import Engine
from vsrkit.upscale.interrupt import AtHand, stopping
from vsrkit.upscale.options import DEFAULT_OPTIONS, ResolvedOptions, UpscaleOptions
from vsrkit.upscale.parts import Index, Part, fingerprint, plan_parts, scan
from vsrkit.upscale.prepare import (
    PreparedJob,
    open_input,
    prepare,
    resolve_options,
    stride_of,
)
from vsrkit.upscale.produce import Recipe
from vsrkit.upscale.target import Target, finish_images, image_names, open_target
from vsrkit.upscale.work_folder import Manifest, WorkFolder, remove_leftovers
from vsrkit.upscale.workers import engines_for, run_parts
from vsrkit.video.encode import Encoding
from vsrkit.video.mux import Clock, assemble
from vsrkit.video.probe import UPRIGHT
from vsrkit.video.read import EVERYTHING, Source

log = logging.getLogger("vsrkit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a job is. `shot` is the one of the frame that was finished last, from 1."""

    stage: Literal["scan", "upscale", "write"]
    done: int
    total: int | None  # not known while a source is scanned that does not say
    shot: int = 0
    shots: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Upscaled:
    """What a job has made."""

    path: Path
    model: str
    frames: int
    shots: int
    height: int
    width: int
    seconds: float
    resumed: int  # frames that an earlier run had finished


OnProgress = Callable[[Progress], None]


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
        recipe = _recipe(video, goal, folder, prepared, len(index.times))
        resumed = len(index.times)
        if not cleanup_only:
            resumed = _make_missing(parts, recipe, engines, manifest, on_progress)
            on_progress(Progress(stage="write", done=0, total=1))
            _finish(goal, recipe, parts, index)
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


def _recipe(
    source: Source, goal: Target, folder: WorkFolder, prepared: PreparedJob, frames: int
) -> Recipe:
    return Recipe(
        source=source,
        folder=folder,
        height=prepared.height,
        width=prepared.width,
        chunk=prepared.memory.chunk,
        frugal=prepared.memory.frugal,
        encoding=prepared.encoding,
        names=image_names(goal, source, frames) if goal.images else (),
        bits=16 if source.info.bits > 8 else 8,
        turn=source.info.turn if goal.turns else UPRIGHT,
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
    """The manifest of the earlier run, if this is the same job; else a new one."""
    if earlier:
        if changed := earlier.options.differences(options):
            raise VideoError(
                f"{folder.path} holds an unfinished job with other options "
                f"({'; '.join(changed)}); repeat those to resume it, or add --restart to discard it"
            )
        return earlier
    folder.clear()
    total = source.info.frames if source.span == EVERYTHING else None
    index = scan(source, lambda n: on_progress(Progress(stage="scan", done=n, total=total)))
    manifest = Manifest(options=options, index=index)
    folder.write(manifest)
    return manifest


def _make_missing(
    parts: list[Part],
    recipe: Recipe,
    engines: list[Engine],
    manifest: Manifest,
    on_progress: OnProgress,
) -> int:
    """Make the parts that are not there; how many frames were."""
    missing = [part for part in parts if not recipe.folder.part(part.number).exists()]
    total = len(manifest.index.times)
    resumed = done = total - sum(part.stop - part.start for part in missing)
    shot_of, shots = _shot_numbers(manifest.index), len(manifest.index.shots)

    def show(frame: int) -> None:
        shot = shot_of(frame)
        on_progress(Progress(stage="upscale", done=done, total=total, shot=shot, shots=shots))

    at_hand = AtHand(missing)

    def tell(what: str, value: int) -> None:
        nonlocal done
        at_hand.count(what, value)
        if what == "frame":
            done += 1
            show(value)
        elif what == "tile":
            log.warning("memory did not suffice: goes on in tiles of %d pixels", value)
            smaller = manifest.options.with_smaller_tile(value)
            recipe.folder.write(manifest.model_copy(update={"options": smaller}))

    if missing:
        show(missing[0].start)  # the clock starts here: frames of a part may come all at once
    with stopping(at_hand.describe) as stop:
        run_parts(missing, recipe, engines, tell, stop)
    left = [part for part in parts if not recipe.folder.part(part.number).exists()]
    if left:
        kept = total - sum(part.stop - part.start for part in left)
        raise StoppedError(
            f"stopped; {kept} of {total} frames are finished, the same command goes on from there"
        )
    return resumed


def _shot_numbers(index: Index) -> Callable[[int], int]:
    return lambda frame: bisect_right(index.cuts, frame) + 1


def _finish(goal: Target, recipe: Recipe, parts: list[Part], index: Index) -> None:
    """Put the whole together and give it its name."""
    if goal.images:
        recipe.folder.mark_finished()
        finish_images(goal, recipe.folder, recipe.names)
        return
    assert recipe.encoding is not None
    files = [recipe.folder.part(part.number) for part in parts]
    clock = index.clock(recipe.source)
    put_together(goal.path, files, recipe.folder, recipe.encoding, clock, recipe.source)


def put_together(
    target: Path,
    parts: list[Path],
    folder: WorkFolder,
    encoding: Encoding,
    clock: Clock,
    source: Source,
) -> None:
    """Write the whole file beside its parts, then give it its name."""
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
    """Wait until a new name is on the disk, where the system knows how."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
