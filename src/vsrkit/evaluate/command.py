"""What `vsrkit evaluate` does: open a set, load each model, measure, one result after another."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from torch import nn

from vsrkit.data.layouts import SET_NAMES, SetName
from vsrkit.data.sets import FrameSet, detect_set, open_set
from vsrkit.errors import VsrkitError, WeightsError
from vsrkit.evaluate.benchmark import OnProgress, Result, evaluate
from vsrkit.evaluate.protocol import DEFAULTS, Protocol, protocol_named
from vsrkit.evaluate.scores import METRICS, USUAL, Metric
from vsrkit.evaluate.vmaf import vmaf_at_hand
from vsrkit.hardware.device import resolve_device
from vsrkit.hardware.precision import PrecisionName
from vsrkit.inference.engine import make_engine
from vsrkit.models.ensemble import Ensemble
from vsrkit.models.weights import file_sha256
from vsrkit.models.zoo import MODELS, build_model, load_model, local_weights

PRECISIONS: tuple[PrecisionName, ...] = get_args(PrecisionName)


def evaluate_models(
    models: Sequence[str],
    data: Path,
    *,
    set_name: str | None = None,
    protocol: str | None = None,
    clips: Sequence[str] = (),
    metrics: Sequence[str] = USUAL,
    save_frames: Path | None = None,
    untrained: bool = False,
    views: int = 1,
    precision: str = "float32",
    device: str = "cpu",
    on_progress: OnProgress | None = None,
) -> list[Result]:
    """Measure models (names or checkpoint files) on the set in `data`.

    set_name: found out by looking if None. protocol: the set's usual one if None.
    clips: measure these only, and mark the result as partial.
    views: average every model over so many flipped, transposed and reversed views of a clip.
    """
    chosen: PrecisionName | None = next((p for p in PRECISIONS if p == precision), None)
    if chosen is None:
        raise VsrkitError(f"no precision called {precision!r}; there are {', '.join(PRECISIONS)}")
    device = resolve_device(device)
    rules, frame_set = choose(data, set_name, protocol, clips)
    wanted = choose_metrics(metrics)
    loaded = [trained_model(name, untrained=untrained) for name in models]  # fail before measuring
    names, results = titles(models), []
    if views > 1:
        loaded = [Ensemble(model, views) for model in loaded]
        names = [f"{name}-ensemble-{views}" for name in names]
    for name, model in zip(names, loaded, strict=True):
        result = evaluate(
            make_engine(model, precision=chosen, device=device),
            frame_set,
            rules,
            name=name,
            metrics=wanted,
            save_frames=save_frames / name if save_frames else None,
            on_progress=_with_model(on_progress, name),
        )
        results.append(result)
    return [
        replace(result, weights=weights_sha256(model))
        for result, model in zip(results, models, strict=True)
    ]


def choose(
    data: Path, set_name: str | None, protocol: str | None, clips: Sequence[str]
) -> tuple[Protocol, FrameSet]:
    """The protocol, and the set with the clips that are wanted."""
    if set_name is not None and set_name not in SET_NAMES:
        raise VsrkitError(f"no set called {set_name!r}; there are {', '.join(SET_NAMES)}")
    given: SetName | None = next((n for n in SET_NAMES if n == set_name), None)
    known = given or detect_set(data)
    rules = protocol_named(protocol or DEFAULTS[known])
    return rules, open_set(known, data, rules.lr_kind, clips)


def choose_metrics(names: Sequence[str]) -> list[Metric]:
    """Metrics by name, `all` for every one that can be measured here."""
    if "all" in names:
        return [metric for metric in METRICS if metric != "vmaf" or vmaf_at_hand()]
    spelt = [name.strip().lower().replace("-", "_") for name in names]
    if unknown := [name for name in spelt if name not in METRICS]:
        raise VsrkitError(
            f"no metric called {unknown[0]!r}; there are {', '.join(METRICS)} and all"
        )
    if "vmaf" in spelt and not vmaf_at_hand():
        raise VsrkitError("VMAF needs an ffmpeg of its own: pip install imageio-ffmpeg")
    return [metric for metric in METRICS if metric in spelt]


def trained_model(name: str, *, untrained: bool = False) -> nn.Module:
    """A model whose numbers mean something; fresh weights only where that is asked for."""
    if name in MODELS and local_weights(name) is None and not untrained:
        model = build_model(name).eval()
        if any(True for _ in model.parameters()):
            raise WeightsError(
                f"no trained weights for {name} are at hand, and untrained numbers mean nothing; "
                f"try `vsrkit weights get {name}`, give a checkpoint file, or add --untrained"
            )
        return model
    return load_model(name)


def weights_sha256(name: str) -> str | None:
    """Digest of the file that a model's weights came from."""
    path = local_weights(name) if name in MODELS else Path(name)
    return file_sha256(path) if path else None


def titles(models: Sequence[str]) -> list[str]:
    """Names as given; a file goes by its own name, with its folder's where two are the same."""
    short = [name if name in MODELS else Path(name).stem for name in models]
    return [
        title if short.count(title) == 1 else f"{Path(name).parent.name}-{title}"
        for name, title in zip(models, short, strict=True)
    ]


def _with_model(on_progress: OnProgress | None, model: str) -> OnProgress | None:
    if on_progress is None:
        return None
    return lambda clip, done, total: on_progress(f"{model}: {clip}", done, total)
