"""`upscale_video`: the whole job, from the file that is there to the file that is wanted."""

import logging
import os
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Literal

from torch import nn

from vsrkit.errors import StoppedError, VideoError
from vsrkit.hardware.precision import PrecisionName
from vsrkit.inference.engine import Engine
from vsrkit.upscale.folder import Manifest, WorkFolder, differences, remove_leftovers
from vsrkit.upscale.interrupt import AtHand, stopping
from vsrkit.upscale.manifest import describe_settings
from vsrkit.upscale.parts import Part, plan_parts
from vsrkit.upscale.prepare import Prepared, Wishes, prepare, whole_frames
from vsrkit.upscale.produce import Recipe
from vsrkit.upscale.scan import Index, fingerprint, scan
from vsrkit.upscale.settings import Choices, Quality, engines_for, stride_of, with_smaller_tile
from vsrkit.upscale.target import Target, finish_images, image_names, open_target
from vsrkit.upscale.workers import run_parts
from vsrkit.video.encode import Encoding
from vsrkit.video.mux import Clock, assemble
from vsrkit.video.probe import UPRIGHT
from vsrkit.video.read import EVERYTHING, Source, exact_span, open_source

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
    model: str | Path | nn.Module | None = None,
    scale: int | None = None,
    height: int | None = None,
    codec: str | None = None,
    crf: int | None = None,
    pix_fmt: str | None = None,
    options: Mapping[str, str] | None = None,
    quality: Quality = "best",
    device: str = "auto",
    precision: PrecisionName = "auto",
    tile: int | None = None,
    chunk: int | None = None,
    max_memory: int | str | None = None,
    workers: int = 1,
    span: tuple[Fraction | float, Fraction | float | None] = EVERYTHING,
    frame_rate: Fraction = Fraction(25),
    deinterlace: bool = True,
    overwrite: bool = False,
    restart: bool = False,
    on_progress: OnProgress = lambda _: None,
) -> Upscaled:
    """Upscale a video (or a folder or pattern of images) into a file or a folder of images.

    Everything but the pictures is kept. What is finished lies in a hidden folder beside the target
    until all is; the same call after a crash goes on from there, to the same bytes.

    scale, height: of the result; the model's own factor if neither is given.
    tile: side in LR pixels, 0 for whole frames, None to choose by memory.
    max_memory: bytes, or text such as "2G", for all processes together.
    span: seconds from the first frame: begin and end.
    restart: throw away what an earlier run with other settings has finished.
    """
    begin = time.monotonic()
    wishes = Wishes(
        model=model,
        scale=scale,
        height=height,
        codec=codec,
        crf=crf,
        pix_fmt=pix_fmt,
        options=options or {},
        quality=quality,
        device=device,
        precision=precision,
        tile=tile,
        chunk=chunk,
        max_memory=max_memory,
        workers=workers,
    )
    opened = open_source(source, frame_rate=frame_rate)
    wanted = replace(opened, span=exact_span(*span), deinterlace=deinterlace)
    left = WorkFolder.beside(Path(target))
    tidying = not restart and left.only_tidying_remains(Path(target))
    goal = open_target(target, wanted, overwrite=overwrite or tidying)
    wanted = whole_frames(wanted)
    folder = WorkFolder.beside(goal.path)
    with _held(folder, goal):
        if restart:
            folder.clear()
        earlier = folder.read()
        chosen = _choices(earlier, wanted)
        prepared = prepare(
            wanted,
            wishes,
            suffix=None if goal.images else goal.path.suffix.lower(),
            chosen=chosen,
            scratch=folder.path,
        )
        for line in prepared.notes:
            log.warning("%s", line)
        spec = prepared.engine.spec
        stride, engines = stride_of(spec, quality), engines_for(prepared.engine, workers)
        settings = describe_settings(wanted, prepared, goal, quality, chosen)
        manifest = _manifest(folder, earlier, settings, wanted, on_progress)
        index = manifest.index
        parts = list(plan_parts(index.shots, spec.context, stride=stride))
        recipe = _recipe(wanted, goal, folder, prepared, len(index.times))
        resumed = len(index.times)
        if not tidying:
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


def _choices(earlier: Manifest | None, source: Source) -> Choices:
    """What an earlier run decided; one of another video has nothing to say about this one."""
    if earlier is None or earlier.settings.get("input") != fingerprint(source):
        return Choices()
    return Choices.of(earlier.settings)


def _recipe(
    source: Source, goal: Target, folder: WorkFolder, prepared: Prepared, frames: int
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
def _held(folder: WorkFolder, goal: Target) -> Iterator[None]:
    try:
        with folder.held():
            remove_leftovers(folder.path)
            yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise VideoError(f"cannot write {goal.path}: {reason}") from error


def _manifest(
    folder: WorkFolder,
    earlier: Manifest | None,
    settings: Mapping[str, str],
    source: Source,
    on_progress: OnProgress,
) -> Manifest:
    """The manifest of the earlier run, if this is the same job; else a new one."""
    if earlier:
        if changed := differences(earlier.settings, settings):
            raise VideoError(
                f"unfinished work of other settings lies in {folder.path} "
                f"({'; '.join(changed)}); run with those again, or --restart to begin anew"
            )
        return earlier
    folder.clear()
    total = source.info.frames if source.span == EVERYTHING else None
    index = scan(source, lambda n: on_progress(Progress(stage="scan", done=n, total=total)))
    manifest = Manifest(settings, index)
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
            recipe.folder.write(
                replace(manifest, settings=with_smaller_tile(manifest.settings, value))
            )

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
