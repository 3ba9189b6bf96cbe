"""Run a model over a set and score it, frame by frame, holding only the frames it needs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import tee
from pathlib import Path
from time import perf_counter
from typing import TypeAlias

import torch
from torch import Tensor, nn

from vsrkit.data.degrade import degrade_frames
from vsrkit.data.sets import FrameSet, PairedClip
from vsrkit.errors import DataError
from vsrkit.evaluate.metrics import MS_SMALLEST, SSIM_SIZE
from vsrkit.evaluate.protocol import Protocol
from vsrkit.evaluate.scores import METRICS, USUAL, Metric, Scores
from vsrkit.hardware.memory import PeakMemory
from vsrkit.hardware.threads import single_thread
from vsrkit.inference.engine import Engine, make_engine, upscale_frames
from vsrkit.inference.windows import Piece, window_indices
from vsrkit.models.spec import Window
from vsrkit.video.images import write_image

OnProgress: TypeAlias = Callable[[str, int, int], None]  # clip, frames done, frames in all


@dataclass(frozen=True, slots=True)
class ClipResult:
    """Scores of one clip."""

    name: str
    frames: int  # that were scored
    partial: bool
    metrics: dict[str, float]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Scores of one model on one set under one protocol."""

    model: str
    set: str
    protocol: Protocol
    lr: str  # where the LR frames came from, in words
    clips: tuple[ClipResult, ...]
    seconds_per_frame: float  # of the model alone: not reading, reducing or scoring
    peak_memory_mb: float
    precision: str
    device: str
    left_out: tuple[str, ...] = ()  # clips of the set that were not asked for
    notes: tuple[str, ...] = ()
    weights: str | None = None  # sha256 of the weight file

    @property
    def average(self) -> dict[str, float]:
        """Mean over clips of each metric that every clip has."""
        names = [n for n in METRICS if all(n in clip.metrics for clip in self.clips)]
        return {n: sum(c.metrics[n] for c in self.clips) / len(self.clips) for n in names}

    @property
    def partial(self) -> bool:
        """Whether this is less than the full set, so that its average stands for itself only."""
        return bool(self.left_out) or any(clip.partial for clip in self.clips)


def evaluate(
    model: nn.Module | Engine,
    frame_set: FrameSet,
    protocol: Protocol,
    *,
    name: str = "model",
    metrics: Sequence[Metric] = USUAL,
    save_frames: Path | None = None,
    on_progress: OnProgress | None = None,
) -> Result:
    """Measure a model on every clip of a set.

    save_frames: a folder for the upscaled frames, `<clip>/<frame>.png`.
    """
    engine = model if isinstance(model, Engine) else make_engine(model, precision="float32")
    if protocol.tile:
        engine = replace(engine, tile=protocol.tile, stitch="paste")
    protocol = protocol.at_scale(engine.spec.scale)
    check_clips(engine, frame_set, protocol, metrics)
    memory, watch = PeakMemory(engine.device), Stopwatch()
    clips = tuple(
        _measure_clip(engine, clip, protocol, metrics, watch, save_frames, on_progress)
        for clip in frame_set.clips
    )
    return Result(
        model=name,
        set=frame_set.name,
        protocol=protocol,
        lr=_where_lr_came_from(frame_set, protocol),
        clips=clips,
        seconds_per_frame=watch.seconds / max(watch.frames, 1),
        peak_memory_mb=memory.peak_mb(),
        precision=str(engine.precision),
        device=engine.device,
        left_out=frame_set.left_out,
        notes=(*frame_set.notes, *_not_measured(metrics, clips)),
    )


def _not_measured(metrics: Sequence[Metric], clips: Sequence[ClipResult]) -> list[str]:
    lacking = {m: [c.name for c in clips if m not in c.metrics] for m in metrics}
    return [
        f"{metric} needs two scored frames of a clip, {names[0]} has one; it has no average"
        for metric, names in lacking.items()
        if names
    ]


def _where_lr_came_from(frame_set: FrameSet, protocol: Protocol) -> str:
    if frame_set.lr_place is None:
        return f"made from the ground truth by {protocol.degradation}"
    place, root = frame_set.lr_place, frame_set.root
    inside = place.relative_to(root) if place.is_relative_to(root) else Path(place.name)
    return f"read from the set's {inside.as_posix()}"


def check_clips(
    engine: Engine, frame_set: FrameSet, protocol: Protocol, metrics: Sequence[Metric]
) -> None:
    """Find what would fail, or mean something else, before hours are spent."""
    context, scale = engine.spec.context, engine.spec.scale
    smallest = MS_SMALLEST if "ms_ssim" in metrics else SSIM_SIZE
    for clip in frame_set.clips:
        height, width = clip.hr.size
        if (
            isinstance(context, Window)
            and len(clip.hr) < context.size
            and protocol.padding != "replicate"
        ):
            raise DataError(
                f"clip {clip.name} has {len(clip.hr)} frames, fewer than the {context.size} of "
                f"the model's window; {protocol.padding} cannot pad it. Leave it out (--clip names "
                "those to measure)"
            )
        if not any(protocol.counts(n, len(clip.hr)) for n in range(len(clip.hr))):
            raise DataError(
                f"clip {clip.name} has only {len(clip.hr)} frames; the protocol {protocol.name} "
                "scores none of them"
            )
        if min(height, width) - scale + 1 - 2 * protocol.border < smallest:
            raise DataError(
                f"clip {clip.name} is {width}x{height}; the metrics need {smallest} pixels a side "
                f"inside a border of {protocol.border}"
            )
        if protocol.tile and min(height, width) // scale < protocol.tile:
            raise DataError(
                f"clip {clip.name} is {width}x{height}; the protocol {protocol.name} needs LR "
                f"frames of {protocol.tile} pixels a side"
            )
        if clip.lr and clip.lr.size != (height // scale, width // scale):
            lr_height, lr_width = clip.lr.size
            raise DataError(
                f"{clip.lr.place} is {lr_width}x{lr_height}, {clip.hr.place} is {width}x{height}: "
                f"not {scale} times as large, which the model makes of it"
            )


def _measure_clip(
    engine: Engine,
    clip: PairedClip,
    protocol: Protocol,
    metrics: Sequence[Metric],
    watch: "Stopwatch",
    save_frames: Path | None,
    on_progress: OnProgress | None,
) -> ClipResult:
    length, scale = len(clip.hr), engine.spec.scale
    lr = clip.lr.read() if clip.lr else degrade_frames(clip.hr.read(), protocol.degradation)
    to_model, to_scores = tee(lr)  # holds no more than the model's own look-ahead
    outputs = watch.outer(_upscaled(engine, watch.inner(to_model), protocol, length))
    with Scores(protocol, metrics, scale) as scores:
        pairs = zip(outputs, clip.hr.read(), to_scores, clip.hr.names, strict=True)
        for number, (sr, hr, small, name) in enumerate(pairs):
            if on_progress:
                on_progress(clip.name, number, length)
            if sr is None or not protocol.counts(number, length):
                continue
            with single_thread():
                scores.add(sr, fit_to_lr(hr, small, scale, clip.name, name), small)
            if save_frames:
                write_image(save_frames / clip.name / f"{name}.png", sr)
        if on_progress:
            on_progress(clip.name, length, length)
        height, width = clip.hr.size
        notes = list(clip.notes)
        if height % scale or width % scale:
            cut = f"{width - width % scale}x{height - height % scale}"
            notes.append(f"{width}x{height} was cut to {cut}, which divides by {scale}")
        return ClipResult(clip.name, scores.frames, clip.partial, scores.means(), tuple(notes))


def fit_to_lr(hr: Tensor, lr: Tensor, scale: int, clip: str, frame: str) -> Tensor:
    """The ground truth without what the LR frame does not show."""
    height, width = lr.shape[-2] * scale, lr.shape[-1] * scale
    if not (height <= hr.shape[-2] < height + scale and width <= hr.shape[-1] < width + scale):
        raise DataError(
            f"frame {frame} of {clip} is {hr.shape[-1]}x{hr.shape[-2]}, its LR frame "
            f"{lr.shape[-1]}x{lr.shape[-2]}: not {scale} times as large"
        )
    return hr[..., :height, :width]


def _upscaled(
    engine: Engine, lr: Iterable[Tensor], protocol: Protocol, length: int
) -> Iterator[Tensor | None]:
    """One output for each frame; None where it is not scored and need not be made."""
    context = engine.spec.context
    if protocol.scored != "centre" or not isinstance(context, Window):
        yield from upscale_frames(lr, engine, padding=protocol.padding)
        return
    frames = list(lr)  # clips of which one frame counts are short: seven frames in Vimeo-90K
    middle = slice(context.size // 2, context.size // 2 + 1)
    for number in range(length):
        if not protocol.counts(number, length):
            yield None
            continue
        window = window_indices(number, length, context.size, protocol.padding)
        yield next(engine.run(Piece(torch.stack([frames[i] for i in window]), middle)))


@dataclass
class Stopwatch:
    """Time inside `outer` iterators without the time inside the `inner` ones they read from."""

    seconds: float = 0.0
    frames: int = 0

    def outer(self, items: Iterator[Tensor | None]) -> Iterator[Tensor | None]:
        """Count the time that each item takes."""
        while True:
            start = perf_counter()
            try:
                item = next(items)
            except StopIteration:
                return
            finally:
                self.seconds += perf_counter() - start
            self.frames += item is not None
            yield item

    def inner(self, items: Iterator[Tensor]) -> Iterator[Tensor]:
        """Do not count the time that each item takes."""
        while True:
            start = perf_counter()
            try:
                item = next(items)
            except StopIteration:
                return
            finally:
                self.seconds -= perf_counter() - start
            yield item
