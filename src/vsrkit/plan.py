"""What upscaling a video will take, before the hours are spent: time, memory, size, warnings."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

from torch import Tensor

from vsrkit.errors import VideoError
from vsrkit.faults import look_for_faults, warnings
from vsrkit.job.settings import device_at_hand, output_size
from vsrkit.memory import (
    SHARE,
    MemoryPlan,
    frames_at_once,
    free_memory,
    parse_size,
    plan_memory,
    show,
)
from vsrkit.models import best_at_hand, load_model
from vsrkit.models.spec import Carried
from vsrkit.precision import PrecisionName
from vsrkit.resample import fitted
from vsrkit.sampling import count_frames, middle, sample
from vsrkit.tiles import plan_spans
from vsrkit.upscale import Engine, make_engine
from vsrkit.video.encode import Encoder, Encoding, choose_encoding
from vsrkit.video.probe import VideoInfo
from vsrkit.video.read import Source, open_source
from vsrkit.windows import Piece

CROP = 96  # side of the part that is upscaled for the measurement
MADE = 6  # frames upscaled for it, at least: an encoder needs a few to show what it saves
KEYFRAME_EVERY = 250  # frames, at most; what encoders do unless told otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run will do and take; sizes in bytes, estimates rounded by nobody."""

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
    warnings: list[str]


@dataclass(frozen=True, slots=True)
class Measured:
    """What a short run on a small part of the frames took."""

    seconds_per_pixel: float  # of the input, for each frame kept
    encoding_per_pixel: float  # seconds, of the output
    key_bytes: float  # for each pixel of the output
    other_bytes: float


def plan_video(
    source: str | Path,
    target: str | Path = "output.mkv",
    *,
    model: str | Path | None = None,
    scale: int | None = None,
    height: int | None = None,
    codec: str | None = None,
    crf: int | None = None,
    pix_fmt: str | None = None,
    options: Mapping[str, str] | None = None,
    device: str = "auto",
    precision: PrecisionName = "auto",
    tile: int | None = None,
    max_memory: int | str | None = None,
    frame_rate: Fraction = Fraction(25),
) -> Plan:
    """Look at a video, try a small part of it, and say what upscaling it all will take.

    Everything is as in `upscale_video`; of the target only the ending counts, and nothing is
    written. The frames are those that the file speaks of: it is not read to its end.
    """
    opened = open_source(source, frame_rate=frame_rate)
    info = opened.info
    name = str(model or best_at_hand())
    module = load_model(name)
    rows, columns = output_size(info, module, scale=scale, height=height)
    encoding = choose_encoding(
        info,
        suffix=Path(target).suffix.lower(),
        height=rows,
        width=columns,
        codec=codec,
        crf=crf,
        pix_fmt=pix_fmt,
        options=options,
    )
    limit = parse_size(max_memory) if isinstance(max_memory, str) else max_memory
    memory = plan_memory(
        module,
        height=info.height,
        width=info.width,
        limit=limit or round(SHARE * free_memory()),
        tile=tile,
    )
    place = device_at_hand(device)
    engine = make_engine(module, precision=precision, device=place, tile=memory.tile)
    return estimate(opened, engine, encoding, memory, model=name)


def estimate(
    source: Source, engine: Engine, encoding: Encoding, memory: MemoryPlan, *, model: str
) -> Plan:
    """The plan for an engine and an encoding that are chosen already."""
    info = source.info
    frames = count_frames(source)
    if frames == 0:
        raise VideoError(f"{source.path} does not say how long it is; upscale it without a plan")
    measured = measure(source, engine, encoding)
    tiles, area = _tiles(engine, memory, info)
    pixels = encoding.height * encoding.width
    keys = ceil(frames / KEYFRAME_EVERY)
    per_frame = area * measured.seconds_per_pixel + pixels * measured.encoding_per_pixel
    size = pixels * (keys * measured.key_bytes + (frames - keys) * measured.other_bytes)
    kinds = sorted({stream.kind for stream in info.streams} - {"video"})
    return Plan(
        source=str(source.path),
        frames=frames,
        duration_s=info.duration_s,
        size=(info.height, info.width),
        output_size=(encoding.height, encoding.width),
        model=model,
        precision=str(engine.precision),
        codec=encoding.codec,
        pix_fmt=encoding.pix_fmt,
        tile=engine.spec.tile or memory.tile,
        tiles=tiles,
        peak_memory=memory.peak,
        seconds_per_frame=per_frame,
        seconds=frames * per_frame,
        file_size=round(size),
        streams={kind: sum(s.kind == kind for s in info.streams) for kind in kinds},
        warnings=warnings(info, look_for_faults(source), (encoding.height, encoding.width)),
    )


def measure(source: Source, engine: Engine, encoding: Encoding) -> Measured:
    """Upscale the middle of a few frames in a row from the middle of the video, and encode it."""
    side = engine.spec.tile or CROP
    seen, kept = frames_at_once(engine.spec.context)
    clip = middle(sample(source, seen + MADE), side, side)
    runs = _runs(engine, clip, seen, kept)
    next(runs)  # the first prepares: libraries choose their kernels, memory is fetched
    begin = time.perf_counter()
    made = [frame for frames in runs for frame in frames]
    spent = time.perf_counter() - begin
    height, width = clip.shape[-2:]
    wanted = [
        round(side * new / old)
        for side, new, old in (
            (height, encoding.height, source.info.height),
            (width, encoding.width, source.info.width),
        )
    ]
    made = [fitted(frame, *wanted) for frame in made]
    encoding_s, key_bytes, other_bytes = _encode(made, encoding)
    return Measured(
        seconds_per_pixel=spent / len(made) / (height * width),
        encoding_per_pixel=encoding_s,
        key_bytes=key_bytes,
        other_bytes=other_bytes,
    )


def _runs(engine: Engine, clip: Tensor, seen: int, kept: int) -> Iterator[list[Tensor]]:
    """Upscaled frames, run by run, of a clip inside a shot: first a run to warm up."""
    if isinstance(engine.spec.context, Carried):
        carried = engine.carry(clip)
        yield [next(carried)]
        yield from ([frame] for frame in carried)
        return
    skip = (seen - kept) // 2
    places = range(max(1, min(MADE // kept, len(clip) - seen + 1)))
    for start in (0, *places):
        piece = Piece(clip[start : start + seen], slice(skip, skip + kept))
        yield list(engine.run(piece))


def _encode(frames: list[Tensor], encoding: Encoding) -> tuple[float, float, float]:
    """Seconds, bytes of a key frame and bytes of another one, for each pixel of the output."""
    high, wide = (side - side % 2 for side in frames[0].shape[-2:])
    encoder = Encoder(replace(encoding, height=high, width=wide))
    begin = time.perf_counter()
    packets = [packet for frame in frames for packet in encoder.encode(frame[:, :high, :wide])]
    packets += encoder.finish()
    spent = time.perf_counter() - begin
    keys = [len(packet.data) for packet in packets if packet.keyframe]
    others = [len(packet.data) for packet in packets if not packet.keyframe]
    key = sum(keys) / max(1, len(keys))
    other = sum(others) / len(others) if others else key
    pixels = high * wide
    return spent / len(frames) / pixels, key / pixels, other / pixels


def _tiles(engine: Engine, memory: MemoryPlan, info: VideoInfo) -> tuple[int, int]:
    """How many tiles a frame has, and the pixels of the input that they hold together."""
    tile = engine.spec.tile or memory.tile
    if tile is None:
        return 1, info.height * info.width
    overlap = engine.overlap or min(32, tile // 4)
    counts, sides = [], []
    for length in (info.height, info.width):
        size = min(tile, max(length, engine.spec.tile or 0))
        spans = plan_spans(max(length, size), size, min(overlap, size // 2))
        counts.append(len(spans))
        sides.append(len(spans) * size)
    return counts[0] * counts[1], sides[0] * sides[1]


def as_json(plan: Plan) -> dict[str, Any]:
    """The same as plain values."""
    return asdict(plan)


def describe(plan: Plan) -> str:
    """A few lines for people."""
    (height, width), (high, wide) = plan.size, plan.output_size
    length = f", {_clock(plan.duration_s)}" if plan.duration_s else ""
    streams = ", ".join(f"{count} {kind}" for kind, count in plan.streams.items()) or "none"
    tiles = f"{plan.tiles} tiles of {plan.tile} a frame" if plan.tiles > 1 else "whole frames"
    facts = {
        "input": f"{plan.source}: {plan.frames} frames of {width}x{height}{length}",
        "output": f"{wide}x{high}, {plan.codec} {plan.pix_fmt}, about {show(plan.file_size)}",
        "kept": streams,
        "model": f"{plan.model}, {plan.precision}, {tiles}",
        "memory": f"at most {show(plan.peak_memory)}",
        "time": f"about {_clock(plan.seconds)} ({plan.seconds_per_frame:.2f} s a frame)",
    }
    lines = [f"{name:<8} {text}" for name, text in facts.items()]
    return "\n".join([*lines, *(f"warning  {line}" for line in plan.warnings)])


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=ceil(seconds)))
