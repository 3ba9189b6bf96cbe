"""The zoo: how to build, load and save a model; models/table.py says which there are."""

import logging
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from torch import nn

from vsrkit.errors import UnknownModelError, VsrkitError, WeightsError
from vsrkit.hardware.cache import cache_directory
from vsrkit.models.layers.flow import SPyNet, spynet_public_name, spynet_translate
from vsrkit.models.weights import Checkpoint, fill, read_checkpoint, write_checkpoint
from vsrkit.models.zoo.table import ARCHITECTURES, MODELS, Architecture, Entry

__all__ = [
    "ARCHITECTURES",
    "MODELS",
    "SHIPPED",
    "Architecture",
    "Entry",
    "build_model",
    "default_model",
    "list_models",
    "load_checkpoint",
    "load_model",
    "load_spynet",
    "local_weights",
    "save_model",
    "with_options",
]

log = logging.getLogger("vsrkit")

SHIPPED = Path(__file__).parents[2] / "weights"  # those that are part of the package
PREFERRED = ("vsrt-s-web", "vsrt-s")  # what to upscale with, the best first


def list_models() -> list[str]:
    """The names that `load_model` knows."""
    return list(MODELS)


def build_model(name: str, *, frames: int | None = None) -> nn.Module:
    """A named model with fresh weights; `frames` overrides the length of its window."""
    if name not in MODELS:
        raise _unknown(name)
    return _build(MODELS[name].architecture, MODELS[name].config, frames=frames)


def load_model(
    name_or_path: str | Path, frames: int | None = None, *, heads: int | None = None
) -> nn.Module:
    """A model ready to run, from a name, one of our own files, or a public checkpoint.

    frames: length of the window, where the model leaves it open (no weight file tells).
    heads: of attention, which no tensor's shape tells; 1 in everything the authors released.

    A name without weights at hand gives fresh, untrained ones, and says so in the log.
    """
    name = str(name_or_path)
    if name in MODELS:
        return _load_entry(name, frames, heads)
    path = Path(name_or_path)
    if not path.exists() and not path.suffix:
        raise _unknown(name)
    return load_checkpoint(path, frames=frames, heads=heads)


def _load_entry(name: str, frames: int | None, heads: int | None) -> nn.Module:
    entry = MODELS[name]
    model = _build(entry.architecture, entry.config, frames=frames, heads=heads).eval()
    if path := local_weights(name):
        fill(model, read_checkpoint(path).tensors, source=str(path))
    elif any(True for _ in model.parameters()):
        log.warning(
            "no trained weights for %s are at hand; it starts untrained "
            "(`vsrkit weights list` says where there are any)",
            name,
        )
    return model


def _build(architecture: str, config: Any, **options: int | None) -> nn.Module:
    """A model with fresh weights, its config changed by what the caller asked for."""
    try:
        return ARCHITECTURES[architecture].build(with_options(config, **options))
    except ValueError as error:
        raise VsrkitError(f"{architecture} cannot be built so: {error}") from error


def local_weights(name: str) -> Path | None:
    """The weight file of a named model, if it lies in the package or the cache directory."""
    if not MODELS[name].weights:
        return None
    shipped = SHIPPED / f"{name}.safetensors"
    if shipped.is_file():
        return shipped
    cached = cache_directory() / "weights" / shipped.name
    return cached if cached.is_file() else None


def default_model() -> str:
    """The first of our models whose weights are there; bicubic if none are."""
    at_hand = (name for name in PREFERRED if name in MODELS and local_weights(name))
    return next(at_hand, "bicubic")


def load_checkpoint(
    path: Path, *, frames: int | None = None, heads: int | None = None
) -> nn.Module:
    """A model from a file: ours says what it is, a public one is recognised by its tensors."""
    checkpoint = read_checkpoint(path)
    if "architecture" in checkpoint.about:
        return _load_own(path, checkpoint, frames, heads)
    for name, architecture in ARCHITECTURES.items():
        tensors = architecture.translate(checkpoint.tensors)
        try:
            config = architecture.detect(tensors)
            if config is None:
                continue
            model = architecture.build(with_options(config, frames=frames, heads=heads)).eval()
        except (IndexError, ValueError, ZeroDivisionError) as error:
            raise WeightsError(
                f"{path} has the tensor names of {name}, but not its shapes ({error})"
            ) from error
        fill(model, tensors, source=str(path), public_name=architecture.public_name)
        return model
    first = next(iter(checkpoint.tensors))
    raise WeightsError(
        f"{path} is not a model that vsrkit knows: {len(checkpoint.tensors)} tensors, "
        f"the first is {first!r}; `vsrkit models` lists the known ones"
    )


def _load_own(
    path: Path, checkpoint: Checkpoint, frames: int | None, heads: int | None
) -> nn.Module:
    about = checkpoint.about
    if about["architecture"] not in list(ARCHITECTURES):
        raise WeightsError(
            f"{path} is a {about['architecture']!r}, unknown to this version; update vsrkit"
        )
    architecture = ARCHITECTURES[about["architecture"]]
    try:
        config = architecture.config(**_with_tuples(about.get("config", {})))
        config = with_options(config, frames=frames, heads=heads)
        model = architecture.build(config).eval()
    except (TypeError, ValueError, RuntimeError) as error:
        raise WeightsError(f"{path} describes itself wrongly: {error}") from error
    fill(model, checkpoint.tensors, source=str(path))
    return model


def _with_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no tuples; configs have no lists."""
    return {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}


def load_spynet(path: str | Path) -> SPyNet:
    """A SPyNet from a file of its own, in either public style of names."""
    tensors = spynet_translate(read_checkpoint(Path(path)).tensors)
    flow = SPyNet()
    buffers = {name: value for name, value in flow.named_buffers() if name not in tensors}
    fill(flow, tensors | buffers, source=str(path), public_name=spynet_public_name)
    return flow.eval()


def save_model(path: Path, model: nn.Module, *, half: bool = False, **about: Any) -> None:
    """Write a model to a safetensors file that says what it is; `about` may say more.

    `half` stores it in half precision, as the weights inside the package are.
    """
    config: Any = model.config
    name = next(name for name, a in ARCHITECTURES.items() if a.config is type(config))
    about = {"architecture": name, "config": asdict(config), **about}
    write_checkpoint(path, model, about, half=half)


def with_options(config: Any, **options: Any) -> Any:
    """The config with the options that are not None; an error names one that it does not have."""
    given = {key: value for key, value in options.items() if value is not None}
    known = {f.name for f in fields(config)}
    if unknown := given.keys() - known:
        raise VsrkitError(
            f"{type(config).__name__} has no option {sorted(unknown)[0]!r}; it has {sorted(known)}"
        )
    return replace(config, **given)


def _unknown(name: str) -> UnknownModelError:
    nearest = get_close_matches(name.lower(), MODELS, n=1, cutoff=0)[0]
    return UnknownModelError(
        f"no model called {name!r}; did you mean {nearest!r}? `vsrkit models` lists all"
    )
