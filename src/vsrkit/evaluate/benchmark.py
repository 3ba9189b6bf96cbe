"""Run models over a set and score them frame by frame, with few frames in memory at once."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice, tee
from pathlib import Path
from time import perf_counter
from typing import TypeVar, get_args

import torch
from torch import Tensor, nn

from vsrkit.data.clips import OnProgress
from vsrkit.data.degrade import degrade_frames
from vsrkit.data.sets import FrameSet, PairedClip, detect_sets, find_root, open_set, set_named
from vsrkit.errors import DataError, VsrkitError, WeightsError
from vsrkit.evaluate.metrics import DEFAULT_METRICS, METRICS, Metric, smallest_side
from vsrkit.evaluate.protocol import DEFAULTS, ClipScores, Protocol, metrics_named, protocol_named
from vsrkit.hardware.device import PrecisionName, resolve_device
from vsrkit.hardware.memory import PeakMemory
from vsrkit.hardware.threads import single_thread
from vsrkit.inference.engine import Engine, make_engine, upscale_frames
from vsrkit.models.ensemble import Ensemble
from vsrkit.models.layers.resample import fitted
from vsrkit.models.spec import Piece, Window, plan_piece
from vsrkit.models.weights import file_sha256
from vsrkit.models.zoo import MODELS, build_model, load_model, local_weights
from vsrkit.models.zoo.fetch import weights_hint
from vsrkit.video.images import write_image

PRECISIONS: tuple[PrecisionName, ...] = get_args(PrecisionName)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClipResult:
    """Scores of one clip."""

    name: str
    frames: int  # number of scored frames
    partial: bool
    metrics: dict[str, float]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Scores of one model on one set under one protocol."""

    model: str
    set: str
    protocol: Protocol
    lr: str  # origin of the LR frames, as text
    clips: tuple[ClipResult, ...]
    seconds_per_frame: float  # of the model alone, without reading, degrading and scoring
    peak_memory_mb: float
    precision: str
    device: str
    left_out: tuple[str, ...] = ()  # clips of the set that were not selected
    unlisted: int = 0  # clips of the complete set that the list on disk lacks
    notes: tuple[str, ...] = ()
    weights: str | None = None  # sha256 of the weight file

    @property
    def average(self) -> dict[str, float]:
        """Mean over clips of each metric that all clips have."""
        names = [n for n in METRICS if all(n in clip.metrics for clip in self.clips)]
        return {n: sum(c.metrics[n] for c in self.clips) / len(self.clips) for n in names}

    @property
    def partial(self) -> bool:
        """Whether clips or frames of the full set are missing."""
        return bool(self.left_out or self.unlisted) or any(clip.partial for clip in self.clips)


def evaluate_models(
    models: Sequence[str],
    data: Path,
    *,
    set_name: str | None = None,
    protocol: str | None = None,
    clips: Sequence[str] = (),
    metrics: Sequence[str] = DEFAULT_METRICS,
    save_frames: Path | None = None,
    untrained: bool = False,
    views: int = 1,
    precision: str = "float32",
    device: str = "cpu",
    on_progress: OnProgress | None = None,
) -> list[Result]:
    """Evaluate one or more models on the set in a folder.

    Args:
        models: names of models, or checkpoint files.
        data: folder of the set, or a folder that holds it if `set_name` is given.
        set_name: which set it is; None detects it.
        protocol: name of the protocol; None takes the default of the set.
        clips: names of the clips to evaluate; empty takes all.
        metrics: names of metrics, or `all`.
        save_frames: folder for the upscaled frames, `<model>/<clip>/<frame>.png`.
        untrained: evaluate models without trained weights instead of raising WeightsError.
        views: average each model over this many flipped, transposed and reversed views of a clip.
        precision: float32, bfloat16 or auto.
        device: auto, cpu, cuda, cuda:N or mps.
        on_progress: called with model and clip, the frames done and their total number.
    """
    chosen: PrecisionName | None = next((p for p in PRECISIONS if p == precision), None)
    if chosen is None:
        raise VsrkitError(f"no precision called {precision!r}; use {', '.join(PRECISIONS)}")
    device = resolve_device(device)
    rules, frame_set = open_evaluation(data, set_name, protocol, clips)
    chosen_metrics = metrics_named(metrics)
    loaded = [trained_model(name, untrained=untrained) for name in models]  # fail before measuring
    names, results = display_names(models), []
    if views > 1:
        loaded = [Ensemble(model, views) for model in loaded]
        names = [f"{name}-ensemble-{views}" for name in names]
    for name, model in zip(names, loaded, strict=True):
        result = evaluate(
            make_engine(model, precision=chosen, device=device),
            frame_set,
            rules,
            name=name,
            metrics=chosen_metrics,
            save_frames=save_frames / name if save_frames else None,
            on_progress=_with_model(on_progress, name),
        )
        results.append(result)
    return [
        replace(result, weights=weights_sha256(model))
        for result, model in zip(results, models, strict=True)
    ]


def open_evaluation(
    data: Path, set_name: str | None, protocol: str | None, clips: Sequence[str]
) -> tuple[Protocol, FrameSet]:
    """Open a set with the LR frames that fit a protocol; arguments as in `evaluate_models`."""
    known = set_named(set_name) if set_name else detect_sets(data)[0]
    rules = protocol_named(protocol or DEFAULTS[known])
    return rules, open_set(known, find_root(known, data), rules.lr_kind, clips)


def trained_model(name: str, *, untrained: bool = False) -> nn.Module:
    """Load a model; raise WeightsError if it has no trained weights and `untrained` is False."""
    if name in MODELS and local_weights(name) is None and not untrained:
        model = build_model(name).eval()
        if any(True for _ in model.parameters()):
            raise WeightsError(
                f"no trained weights for {name} on this machine; {weights_hint(name)}, give a "
                "checkpoint file as the model, or add --untrained"
            )
        return model
    return load_model(name)


def weights_sha256(name: str) -> str | None:
    """Return the digest of a model's weight file; None if it has none."""
    path = local_weights(name) if name in MODELS else Path(name)
    return file_sha256(path) if path else None


def display_names(models: Sequence[str]) -> list[str]:
    """Shorten checkpoint files to their stem; equal stems get their folder's name in front."""
    short = [name if name in MODELS else Path(name).stem for name in models]
    return [
        title if short.count(title) == 1 else f"{Path(name).parent.name}-{title}"
        for name, title in zip(models, short, strict=True)
    ]


def _with_model(on_progress: OnProgress | None, model: str) -> OnProgress | None:
    """Put the model's name before the clip's."""
    if on_progress is None:
        return None
    return lambda clip, done, total: on_progress(f"{model}: {clip}", done, total)


def evaluate(
    model: nn.Module | Engine,
    frame_set: FrameSet,
    protocol: Protocol,
    *,
    name: str = "model",
    metrics: Sequence[Metric] = DEFAULT_METRICS,
    save_frames: Path | None = None,
    on_progress: OnProgress | None = None,
) -> Result:
    """Evaluate a model on every clip of a set.

    Args:
        model: a model, run in float32 on the CPU, or an engine.
        frame_set: clips with their ground truth.
        protocol: which frames to score and how.
        name: name of the model in the result.
        metrics: which metrics to compute.
        save_frames: folder for the upscaled frames, `<clip>/<frame>.png`.
        on_progress: called with a clip's name, its frames done and their total number.
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
        lr=_lr_origin(frame_set, protocol),
        clips=clips,
        seconds_per_frame=watch.seconds / max(watch.frames, 1),
        peak_memory_mb=memory.peak_mb(),
        precision=str(engine.precision),
        device=engine.device,
        left_out=frame_set.left_out,
        unlisted=frame_set.unlisted,
        notes=(*frame_set.notes, *_not_measured(metrics, clips)),
    )


def _not_measured(metrics: Sequence[Metric], clips: Sequence[ClipResult]) -> list[str]:
    lacking = {m: [c.name for c in clips if m not in c.metrics] for m in metrics}
    return [
        f"{metric} has no average: it needs two scored frames of each clip, {names[0]} has one"
        for metric, names in lacking.items()
        if names
    ]


def _lr_origin(frame_set: FrameSet, protocol: Protocol) -> str:
    if frame_set.lr_place is None:
        return f"made from the ground truth by {protocol.degradation}"
    place, root = frame_set.lr_place, frame_set.root
    inside = place.relative_to(root) if place.is_relative_to(root) else Path(place.name)
    return f"read from the set's {inside.as_posix()}"


def check_clips(
    engine: Engine, frame_set: FrameSet, protocol: Protocol, metrics: Sequence[Metric]
) -> None:
    """Raise DataError if a clip does not fit the model, the protocol or the metrics."""
    context, scale = engine.spec.context, protocol.degradation.scale
    smallest = smallest_side(metrics, scale)
    for clip in frame_set.clips:
        height, width = clip.hr.size
        if (
            isinstance(context, Window)
            and len(clip.hr) < context.size
            and protocol.padding != "replicate"
        ):
            raise DataError(
                f"clip {clip.name} has {len(clip.hr)} frames, fewer than the {context.size} of "
                f"the model's window, and {protocol.padding} cannot pad it; select other clips "
                "with --clip"
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
                f"not {scale} times as large, the scale of the model"
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
