"""Upscale and score one clip, in this process or on a worker of an executor."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice, tee
from pathlib import Path
from time import perf_counter
from typing import TypeVar

import torch
from torch import Tensor

from vsrkit.data.clips import OnProgress
from vsrkit.data.degrade import degrade_frames
from vsrkit.data.sets import PairedClip
from vsrkit.errors import DataError
from vsrkit.evaluate.metrics import Metric
from vsrkit.evaluate.protocol import ClipScores, Protocol
from vsrkit.hardware.threads import single_thread
from vsrkit.inference.engine import Engine, upscale_frames
from vsrkit.models.layers.resample import fitted
from vsrkit.models.spec import Piece, Window, plan_piece
from vsrkit.video.images import write_image

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClipResult:
    """Scores of one clip."""

    name: str
    frames: int  # number of scored frames
    partial: bool
    metrics: dict[str, float]
    notes: tuple[str, ...] = ()


def measure_clip(
    engine: Engine,
    clip: PairedClip,
    protocol: Protocol,
    metrics: Sequence[Metric],
    watch: "Stopwatch",
    save_frames: Path | None,
    on_progress: OnProgress | None,
) -> ClipResult:
    """Upscale a clip and score it; arguments as in `evaluate`.

    watch: counts the time of the model.
    """
    length, scale = min(len(clip.hr), protocol.length or len(clip.hr)), protocol.degradation.scale
    to_model, to_scores = tee(lr_frames(clip, protocol))  # buffers the model's look-ahead
    outputs = watch.outer(_upscaled(engine, watch.inner(to_model), protocol, length))
    with ClipScores(protocol, metrics) as scores:
        truth, names = islice(clip.hr.read(), length), clip.hr.names[:length]
        pairs = zip(at_scale(outputs, engine, protocol), truth, to_scores, names, strict=True)
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
            notes.append(f"{width}x{height} was cropped to {cut}, a multiple of {scale}")
        return ClipResult(clip.name, scores.frames, clip.partial, scores.means(), tuple(notes))


def with_tiles(engine: Engine, protocol: Protocol) -> Engine:
    """The engine on the tiles that a protocol prescribes, with hard edges; unchanged without."""
    return replace(engine, tile=protocol.tile, stitch="paste") if protocol.tile else engine


def lr_frames(clip: PairedClip, protocol: Protocol) -> Iterator[Tensor]:
    """Read the LR frames of a clip that the protocol uses, or make them from its HR frames."""
    frames = (clip.lr or clip.hr).read()
    used = frames if protocol.length is None else islice(frames, protocol.length)
    return iter(used) if clip.lr else degrade_frames(used, protocol.degradation)


def at_scale(
    outputs: Iterable[Tensor | None], engine: Engine, protocol: Protocol
) -> Iterator[Tensor | None]:
    """The outputs of a model at the protocol's scale, resampled if the model has another one."""
    ratio = Fraction(protocol.degradation.scale, engine.spec.scale)
    for frame in outputs:
        if frame is None or ratio == 1:
            yield frame
        else:
            yield fitted(frame, *(int(side * ratio) for side in frame.shape[-2:]))


def fit_to_lr(hr: Tensor, lr: Tensor, scale: int, clip: str, frame: str) -> Tensor:
    """Crop a ground-truth frame (3, H, W) to `scale` times the size of its LR frame."""
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
    """Yield an output for each frame, None for frames that are not scored and were not run."""
    context = engine.spec.context
    if protocol.scored != "centre" or not isinstance(context, Window):
        yield from upscale_frames(lr, engine, padding=protocol.padding)
        return
    frames = list(lr)  # such clips are short: seven frames in Vimeo-90K
    for number in range(length):
        if not protocol.counts(number, length):
            yield None
            continue
        plan = plan_piece(number, length, context, padding=protocol.padding)
        yield next(engine.run(Piece(torch.stack([frames[i] for i in plan.frames]), plan.keep)))


@dataclass
class Stopwatch:
    """Time spent in `outer` iterators, excluding the `inner` ones they read from."""

    seconds: float = 0.0
    frames: int = 0

    def outer(self, items: Iterator[Tensor | None]) -> Iterator[Tensor | None]:
        """Add the time of each item, and count those that are not None."""
        for item in self._timed(items, 1):
            self.frames += item is not None
            yield item

    def inner(self, items: Iterator[Tensor]) -> Iterator[Tensor]:
        """Subtract the time of each item."""
        return self._timed(items, -1)

    def _timed(self, items: Iterator[T], sign: int) -> Iterator[T]:
        while True:
            start = perf_counter()
            try:
                item = next(items)
            except StopIteration:
                return
            finally:
                self.seconds += sign * (perf_counter() - start)
            yield item
