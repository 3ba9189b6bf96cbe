"""Run models over a set and score them frame by frame, with few frames in memory at once."""

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from torch import nn

from vsrkit.data.clips import OnProgress
from vsrkit.data.sets import FrameSet, detect_sets, find_root, open_set, set_named
from vsrkit.errors import DataError, VsrkitError, WeightsError
from vsrkit.evaluate.executors import RemoteModel
from vsrkit.evaluate.measure import ClipResult, Stopwatch, measure_clip, with_tiles
from vsrkit.evaluate.metrics import DEFAULT_METRICS, METRICS, Metric, smallest_side
from vsrkit.evaluate.protocol import DEFAULTS, Protocol, metrics_named, protocol_named
from vsrkit.hardware.device import PrecisionName, resolve_device
from vsrkit.hardware.memory import PeakMemory
from vsrkit.inference.engine import Engine, make_engine
from vsrkit.models.ensemble import Ensemble
from vsrkit.models.spec import Window
from vsrkit.models.weights import file_sha256
from vsrkit.models.zoo import MODELS, build_model, load_model, local_weights
from vsrkit.models.zoo.fetch import weights_hint

PRECISIONS: tuple[PrecisionName, ...] = get_args(PrecisionName)


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
    device: str = "auto",
    on_progress: OnProgress | None = None,
    executor: Executor | None = None,
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
        executor: its workers measure the clips; they need vsrkit and the weights of the models.
    """
    chosen: PrecisionName | None = next((p for p in PRECISIONS if p == precision), None)
    if chosen is None:
        raise VsrkitError(f"no precision called {precision!r}; use {', '.join(PRECISIONS)}")
    place = "cpu" if executor else resolve_device(device)
    rules, frame_set = open_evaluation(data, set_name, protocol, clips)
    chosen_metrics = metrics_named(metrics)
    loaded = [trained_model(name, untrained=untrained) for name in models]  # fail before measuring
    names, results = display_names(models), []
    if views > 1:
        names = [f"{name}-ensemble-{views}" for name in names]
    for name, path, model in zip(names, models, loaded, strict=True):
        result = evaluate(
            make_engine(
                Ensemble(model, views) if views > 1 else model, precision=chosen, device=place
            ),
            frame_set,
            rules,
            name=name,
            metrics=chosen_metrics,
            save_frames=save_frames / name if save_frames else None,
            on_progress=_with_model(on_progress, name),
            remote=RemoteModel.open(executor, path, model, chosen, device, views)
            if executor
            else None,
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
    remote: RemoteModel | None = None,
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
        remote: the same model on the workers of an executor, which measure in place of this
            process.
    """
    engine = model if isinstance(model, Engine) else make_engine(model, precision="float32")
    engine = with_tiles(engine, protocol)
    protocol = protocol.at_scale(engine.spec.scale)
    check_clips(engine, frame_set, protocol, metrics)
    memory, watch = PeakMemory(engine.device), Stopwatch()
    if remote:
        clips, peak = remote.measure(frame_set, protocol, metrics, watch, save_frames, on_progress)
    else:
        clips = tuple(
            measure_clip(engine, clip, protocol, metrics, watch, save_frames, on_progress)
            for clip in frame_set.clips
        )
        peak = memory.peak_mb()
    return Result(
        model=name,
        set=frame_set.name,
        protocol=protocol,
        lr=_lr_origin(frame_set, protocol),
        clips=clips,
        seconds_per_frame=watch.seconds / max(watch.frames, 1),
        peak_memory_mb=peak,
        precision=str(remote.reference.precision if remote else engine.precision),
        device=remote.reference.device if remote else engine.device,
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
