"""What is tried before a job: a region of a frame, and a plan. Runs in a worker process."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vsrkit.hardware.device import PrecisionName, resolve_device
from vsrkit.hardware.files import write_atomically
from vsrkit.inference.calibration import find_calibration
from vsrkit.inference.engine import Engine, make_engine
from vsrkit.inference.memory import plan_memory
from vsrkit.inference.shots import mark_cuts
from vsrkit.models.layers.resample import fitted
from vsrkit.models.spec import Carried, Context, Piece, Segments, plan_pieces
from vsrkit.models.zoo import load_model
from vsrkit.studio.media import open_file, pictures_around
from vsrkit.upscale.options import UpscaleOptions, stride_of
from vsrkit.upscale.plan import plan_video
from vsrkit.upscale.prepare import configure_input
from vsrkit.video.images import encode_png
from vsrkit.video.read import WHOLE_VIDEO, Source, orient

MARGIN = 32  # pixels around a region that the model sees; the overlap of tiles
CARRIED = 12  # frames from which the state of a recurrent model is computed
MODELS_KEPT = 3


@dataclass(frozen=True, slots=True)
class Region:
    """A rectangle in pixels of the displayed source."""

    x: int
    y: int
    width: int
    height: int

    def inside(self, width: int, height: int) -> "Region":
        """The same rectangle, moved and cut so that it is inside of a frame."""
        wide, high = min(self.width, width), min(self.height, height)
        x, y = min(max(0, self.x), width - wide), min(max(0, self.y), height - high)
        return Region(x, y, wide, high)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A region of the frame at a time, as PNG.

    seconds: from the first frame of the video.
    factor: of the sizes of the picture and the region.
    options: of the job; its model is the one to run.
    """

    path: Path
    seconds: float
    region: Region
    factor: float
    options: UpscaleOptions


def draw_source(wanted: Wanted, target: Path) -> None:
    """Write the region enlarged by bicubic interpolation."""
    clip = _read_clip(wanted, before=0, after=0, margin=MARGIN, multiple=1)
    _write(clip.frames[clip.centre], 1, clip, wanted, target)


def draw_result(wanted: Wanted, target: Path) -> float:
    """Write the region as the model upscales it; returns the seconds that the model took.

    The model sees the frames of the shot around the wanted one, as many as it warms up with, and
    MARGIN pixels around the region. With all of the frame, the result is that of a job, except that
    recurrent models may remember more of a long shot.
    """
    options = wanted.options
    engine = _engine(str(options.model), options.sharpness, options.precision, options.device)
    spec = engine.spec
    before, after = _reach(spec.context)
    clip = _read_clip(wanted, before=before, after=after, margin=MARGIN, multiple=spec.multiple)
    height, width = clip.frames.shape[-2:]
    memory = plan_memory(
        engine.model, height=height, width=width, limit=options.memory_limit, tile=options.tile
    )
    caches = engine.window_caches if memory.window_cache else None
    engine = replace(engine, tile=memory.tile, window_caches=caches)
    begin = time.perf_counter()
    frame = _upscale(engine, clip.frames, clip.centre, stride_of(spec, options.quality))
    spent = time.perf_counter() - begin
    _write(frame, spec.scale, clip, wanted, target)
    return spent


def estimate(path: Path, options: UpscaleOptions) -> dict[str, Any]:
    """The plan of a job as the page shows it."""
    plan = plan_video(path, options=options)
    height, width = plan.output_size
    return {
        "seconds": plan.seconds,
        "seconds_per_frame": plan.seconds_per_frame,
        "frames": plan.frames,
        "file_size": plan.file_size,
        "peak_memory": plan.peak_memory,
        "width": width,
        "height": height,
        "codec": plan.codec,
        "pix_fmt": plan.pix_fmt,
        "notes": plan.notes,
        "warnings": plan.warnings,
    }


@dataclass(frozen=True, slots=True)
class _Clip:
    """Crops (T, 3, H, W) of the frames of a shot, as stored, and where the region is in them."""

    source: Source
    frames: Tensor
    centre: int  # the wanted frame
    rows: slice
    columns: slice


def _read_clip(wanted: Wanted, *, before: int, after: int, margin: int, multiple: int) -> _Clip:
    """Read the region with a margin from some frames before and after the wanted one."""
    options = replace(wanted.options, start=0, end=None)
    source = configure_input(open_file(wanted.path), options, warn=False)
    assert source.span == WHOLE_VIDEO
    rows, columns = _stored(wanted.region, source)
    crop_rows = _with_margin(rows, source.info.height, margin, multiple)
    crop_columns = _with_margin(columns, source.info.width, margin, multiple)
    pictures, centre = pictures_around(source, wanted.seconds, before, after)
    crops: list[Tensor] = []

    def frames() -> Iterator[Tensor]:
        for picture in pictures:
            frame = picture.rgb()
            crops.append(frame[:, crop_rows, crop_columns].clone())
            yield frame.clamp_(0, 1)

    cuts = [number for number, (_, begins) in enumerate(mark_cuts(frames())) if begins]
    first = max((cut for cut in cuts if cut <= centre), default=0)
    stop = min((cut for cut in cuts if cut > centre), default=len(crops))
    return _Clip(
        source,
        torch.stack(crops[first:stop]),
        centre - first,
        slice(rows.start - crop_rows.start, rows.stop - crop_rows.start),
        slice(columns.start - crop_columns.start, columns.stop - crop_columns.start),
    )


def _stored(region: Region, source: Source) -> tuple[slice, slice]:
    """The rows and columns of a region in the picture as it is stored, before any rotation."""
    info = source.info
    if not info.orientation:
        rows, columns = (region.y, region.height), (region.x, region.width)
        return slice(rows[0], sum(rows)), slice(columns[0], sum(columns))
    numbers = torch.arange(info.height * info.width).view(1, info.height, info.width)
    shown = orient(numbers, info.orientation)[0]
    found = shown[region.y : region.y + region.height, region.x : region.x + region.width]
    y, x = found // info.width, found % info.width
    return slice(int(y.min()), int(y.max()) + 1), slice(int(x.min()), int(x.max()) + 1)


def _with_margin(span: slice, length: int, margin: int, multiple: int) -> slice:
    # At a multiple, so that what the model divides into blocks is divided as in the whole frame.
    start = max(0, span.start - margin) // multiple * multiple
    return slice(start, min(length, span.stop + margin))


def _reach(context: Context) -> tuple[int, int]:
    """Frames before and after the wanted one that the model sees."""
    match context:
        case Segments(warmup=warmup):
            return warmup, warmup
        case Carried(look_ahead=look_ahead):
            return CARRIED, look_ahead
        case _:
            return context.size, context.size


def _upscale(engine: Engine, frames: Tensor, centre: int, stride: int) -> Tensor:
    """The output (3, sH, sW) for one frame of a clip."""
    context = engine.spec.context
    if isinstance(context, Carried):
        outputs = engine.carry(frames)
        return [next(outputs) for _ in range(centre + 1)][-1]
    if isinstance(context, Segments):
        piece = Piece(frames, slice(centre, centre + 1), begins_shot=centre == 0)
        return next(engine.run(piece))
    for plan in plan_pieces(0, len(frames), context, stride=stride):
        if centre in plan.kept:
            outputs = engine.run(Piece(frames[list(plan.frames)], plan.keep, plan.begins_shot))
            return list(outputs)[plan.kept.index(centre)]
    raise AssertionError("every frame is kept by a piece")


def _write(frame: Tensor, scale: int, clip: _Clip, wanted: Wanted, target: Path) -> None:
    """Cut the region out of an upscaled crop, and write it at the size of all pictures."""
    rows, columns = (
        slice(scale * span.start, scale * span.stop) for span in (clip.rows, clip.columns)
    )
    height = round(wanted.factor * (clip.rows.stop - clip.rows.start))
    width = round(wanted.factor * (clip.columns.stop - clip.columns.start))
    if (height, width) != (rows.stop - rows.start, columns.stop - columns.start):
        whole = [round(wanted.factor * side) for side in clip.frames.shape[-2:]]
        frame = fitted(frame, *whole)  # with the margin, which the interpolation needs
        top, left = (round(wanted.factor * span.start) for span in (clip.rows, clip.columns))
        rows, columns = slice(top, top + height), slice(left, left + width)
    info = clip.source.info
    picture = orient(frame[:, rows, columns], info.orientation)
    write_atomically(target, encode_png(picture, bits=16 if info.bits > 8 else 8))


@lru_cache(maxsize=MODELS_KEPT)
def _engine(model: str, sharpness: float | None, precision: PrecisionName, device: str) -> Engine:
    loaded = load_model(model, sharpness=sharpness)
    if precision.startswith("int8") and find_calibration(loaded) is None:
        precision = "auto"  # the job takes ranges from its first frames
    return make_engine(loaded, precision=precision, device=resolve_device(device))
