"""Estimate time, memory and file size of upscaling a video, and warn about the source."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from math import ceil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vsrkit.errors import VideoError
from vsrkit.hardware.memory import format_size
from vsrkit.inference.engine import Engine
from vsrkit.inference.memory import frames_at_once
from vsrkit.inference.tiles import overlap_of, plan_spans
from vsrkit.models.layers.resample import fitted, middle
from vsrkit.models.spec import Carried, Piece, Segments, plan_piece
from vsrkit.upscale.batch import targets_of, videos_in
from vsrkit.upscale.options import DEFAULT_OPTIONS, UpscaleOptions, stride_of
from vsrkit.upscale.prepare import PreparedJob, open_input, prepare
from vsrkit.upscale.source_checks import check_source, count_frames, sample, warnings
from vsrkit.upscale.work_folder import is_image_folder
from vsrkit.video.codecs import DEFAULT_CODECS, Encoding
from vsrkit.video.encode import Encoder
from vsrkit.video.images import encode_png
from vsrkit.video.probe import VideoInfo, probe
from vsrkit.video.read import Source

CROP = 96  # side of the crop that is upscaled for the measurement
MADE = 6  # frames to upscale for it, at least: an encoder compresses well after a few
KEYFRAME_EVERY = 250  # frames, at most; the default of the encoders
LONGEST = timedelta(days=1000)  # that is written as a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run will do and take; sizes in bytes, estimates not rounded."""

    source: str
    frames: int
    duration_s: float | None
    size: tuple[int, int]  # (height, width)
    output_size: tuple[int, int]
    model: str
    precision: str
    codec: str
    pix_fmt: str
    tile: int | None
    tiles: int  # for each frame
    peak_memory: int
    seconds_per_frame: float
    seconds: float
    file_size: int
    streams: dict[str, int]  # how many of each kind are kept
    notes: list[str]  # where the encoder differs from the default to save memory
    warnings: list[str]


@dataclass(frozen=True, slots=True)
class Measured:
    """Results of a short run on a crop of a few frames."""

    seconds_per_pixel: float  # of the input, for each frame kept
    encoding_per_pixel: float  # seconds, of the output
    key_bytes: float  # for each pixel of the output
    other_bytes: float


def plan_video(
    source: str | Path,
    target: str | Path | None = None,
    options: UpscaleOptions = DEFAULT_OPTIONS,
) -> Plan:
    """Estimate what upscaling a video will take, from its properties and a run on a small part.

    Nothing is written. If the header has no number of frames, the packets are counted.

    source: as in `upscale_video`.
    target: as in `upscale_video`, or `-` for a pipe; only its suffix is used. None plans a folder
        of PNG files for images, and Matroska for videos.
    options: as in `upscale_video`.
    """
    if str(source) == "-":
        raise VideoError("a pipe can be read only once; plan needs a file")
    if videos_in(Path(source)):
        raise VideoError(f"{source} is a folder of videos; use plan_folder")
    opened = open_input(source, options, warn=False)
    if opened.info.frames is None:
        opened = replace(
            opened, info=probe(opened.path, count=True, follow_references=options.follow_references)
        )
    if target is None:
        target = "output" if opened.images else "output.mkv"
    suffix = ".y4m" if str(target) == "-" else Path(target).suffix.lower()
    images = suffix == ".png" or (suffix not in DEFAULT_CODECS and is_image_folder(Path(target)))
    prepared = prepare(opened, options, suffix=None if images else suffix)
    info, memory = opened.info, prepared.memory
    frames = count_frames(opened)
    if frames == 0:
        raise VideoError(f"{source} has no frames from --start to --end")
    measured = measure(opened, prepared, stride_of(prepared.engine.spec, options.quality))
    tiles, area = _tiles(prepared.engine, info)
    pixels = prepared.height * prepared.width
    keys = ceil(frames / KEYFRAME_EVERY)
    per_frame = area * measured.seconds_per_pixel + pixels * measured.encoding_per_pixel
    size = pixels * (keys * measured.key_bytes + (frames - keys) * measured.other_bytes)
    kept = _kept(info, suffix)
    return Plan(
        source=str(source),
        frames=frames,
        duration_s=float(frames / info.frame_rate),
        size=(info.height, info.width),
        output_size=(prepared.height, prepared.width),
        model=prepared.label,
        precision=str(prepared.engine.precision),
        codec=prepared.encoding.codec if prepared.encoding else "png",
        pix_fmt=prepared.encoding.pix_fmt if prepared.encoding else "rgb",
        tile=prepared.engine.spec.tile or memory.tile,
        tiles=tiles,
        peak_memory=memory.peak * options.workers,
        seconds_per_frame=per_frame,
        seconds=frames * per_frame,
        file_size=round(size),
        streams={kind: kept.count(kind) for kind in sorted(set(kept))},
        notes=list(prepared.notes),
        warnings=warnings(
            info, check_source(opened), (prepared.height, prepared.width), options.deinterlace
        ),
    )


def plan_folder(
    folder: str | Path,
    target: str | Path = "output",
    options: UpscaleOptions = DEFAULT_OPTIONS,
) -> tuple[list[Plan], list[str]]:
    """The plans of all videos of a folder, and a line for each video that cannot be upscaled.

    folder: path of the folder.
    target: folder of the planned outputs.
    options: of every video.
    """
    videos = videos_in(Path(folder))
    plans, failed = [], []
    for video, path in zip(videos, targets_of(videos, Path(target)), strict=True):
        try:
            plans.append(plan_video(video, path, options))
        except Exception as error:  # noqa: BLE001  an error in one video does not stop the others
            failed.append(f"{video}: {str(error) or type(error).__name__}")
    return plans, failed


def _kept(info: VideoInfo, suffix: str) -> list[str]:
    """The kinds of the other streams that a file with this suffix can hold."""
    places = {".mkv": ("attachment", "audio", "subtitle"), ".y4m": (), ".png": (), "": ()}
    return [s.kind for s in info.streams if s.kind in places.get(suffix, ("audio", "subtitle"))]


def measure(source: Source, prepared: PreparedJob, stride: int) -> Measured:
    """Upscale and encode a central crop of consecutive frames from the middle of the video."""
    engine, info = prepared.engine, source.info
    side = engine.spec.tile or CROP
    seen, kept = frames_at_once(engine.spec.context)
    frames = sample(source, seen + MADE)
    clip = torch.stack([middle(frame, side, side) for frame in frames])
    runs = _runs(engine, clip, seen, max(kept, stride))
    next(runs)  # warmup: libraries choose their kernels and allocate memory
    begin = time.perf_counter()
    made = [frame for frames in runs for frame in frames]
    spent = time.perf_counter() - begin
    height, width = clip.shape[-2:]
    rows, columns = (  # of the output, which may be resampled
        round(height * prepared.height / info.height),
        round(width * prepared.width / info.width),
    )
    encoding_s, key_bytes, other_bytes = _encode(
        [fitted(frame, rows, columns) for frame in made], prepared.encoding
    )
    return Measured(
        seconds_per_pixel=spent / len(made) / (height * width),
        encoding_per_pixel=encoding_s,
        key_bytes=key_bytes,
        other_bytes=other_bytes,
    )


def _runs(engine: Engine, clip: Tensor, seen: int, kept: int) -> Iterator[list[Tensor]]:
    """Upscaled frames of a clip inside a shot, run by run; the first run is a warmup."""
    if isinstance(engine.spec.context, Carried):
        carried = engine.carry(clip)
        yield [next(carried)]
        yield from ([frame] for frame in carried)
        return
    context = engine.spec.context
    skip = context.warmup if isinstance(context, Segments) else seen // 2 - kept // 2
    runs = range(max(1, min(MADE // kept, len(clip) - seen + 1)))
    warm = False
    for start in (0, *runs):
        plan = plan_piece(skip + start, len(clip), context, stride=kept)
        frames = clip[list(plan.frames)]
        # The warmup is mirrored, so that nothing of it is in the window cache.
        yield list(engine.run(Piece(frames if warm else frames.flip(-1), plan.keep)))
        warm = True


def _encode(frames: list[Tensor], encoding: Encoding | None) -> tuple[float, float, float]:
    """Encoding time in seconds, bytes of key frames and bytes of others, per output pixel."""
    high, wide = (max(2, side - side % 2) for side in frames[0].shape[-2:])
    pixels = high * wide
    begin = time.perf_counter()
    if encoding is None:
        keys, others = [len(encode_png(frame)) for frame in frames], []
    else:
        encoder = Encoder(replace(encoding, height=high, width=wide))
        packets = [packet for frame in frames for packet in encoder.encode(frame[:, :high, :wide])]
        packets += encoder.finish()
        keys = [len(packet.data) for packet in packets if packet.keyframe]
        others = [len(packet.data) for packet in packets if not packet.keyframe]
    spent = time.perf_counter() - begin
    key = sum(keys) / len(keys)
    other = sum(others) / len(others) if others else key
    return spent / len(frames) / pixels, key / pixels, other / pixels


def _tiles(engine: Engine, info: VideoInfo) -> tuple[int, int]:
    """Number of tiles of a frame, and the sum of their pixels in the input."""
    tile = engine.spec.tile or engine.tile
    if tile is None:
        return 1, info.height * info.width
    overlap = overlap_of(tile)
    counts, sides = [], []
    for length in (info.height, info.width):
        size = min(tile, max(length, engine.spec.tile or 0))
        spans = plan_spans(max(length, size), size, min(overlap, size // 2))
        counts.append(len(spans))
        sides.append(len(spans) * size)
    return counts[0] * counts[1], sides[0] * sides[1]


def as_json(plan: Plan) -> dict[str, Any]:
    """The plan as plain values."""
    return asdict(plan)


def describe(plan: Plan) -> str:
    """The plan as lines of text."""
    (height, width), (high, wide) = plan.size, plan.output_size
    length = f", {_clock(plan.duration_s)}" if plan.duration_s else ""
    streams = ", ".join(f"{count} {kind}" for kind, count in plan.streams.items()) or "none"
    tiles = f"{plan.tiles} tiles of {plan.tile} a frame" if plan.tiles > 1 else "whole frames"
    size = f"{plan.file_size / 1e6:.1f} MB"
    facts = {
        "input": f"{plan.source}: {plan.frames} frames of {width}x{height}{length}",
        "output": f"{wide}x{high}, {plan.codec} {plan.pix_fmt}, about {size}",
        "kept": streams,
        "model": f"{plan.model}, {plan.precision}, {tiles}",
        "memory": f"at most {format_size(plan.peak_memory)}",
        "time": f"about {_clock(plan.seconds)} ({plan.seconds_per_frame:.2f} s a frame)",
    }
    lines = [f"{name:<8} {text}" for name, text in facts.items()]
    lines += [f"note     {line}" for line in plan.notes]
    return "\n".join([*lines, *(f"warning  {line}" for line in plan.warnings)])


def describe_all(plans: Sequence[Plan], failed: Sequence[str]) -> str:
    """The plans of a folder as text, with their total."""
    size = sum(plan.file_size for plan in plans) / 1e6
    wait = _clock(sum(plan.seconds for plan in plans))
    total = f"{len(plans)} videos: about {wait}, about {size:.1f} MB"
    blocks = [*map(describe, plans), *(f"failed   {line}" for line in failed), f"total    {total}"]
    return "\n\n".join(blocks)


def _clock(seconds: float) -> str:
    if seconds > LONGEST.total_seconds():  # a damaged header
        return f"more than {LONGEST.days} days"
    return str(timedelta(seconds=ceil(seconds)))
