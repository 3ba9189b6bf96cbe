"""Build, load and save the models that `zoo/table.py` lists."""

import logging
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from torch import nn

from vsrkit.errors import UnknownModelError, VsrkitError, WeightsError
from vsrkit.hardware.files import cache_directory
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

SHIPPED = Path(__file__).parents[2] / "weights"  # weight files in the package
PREFERRED = ("vsrt-s-web", "vsrt-s")  # defaults of `upscale`, best first
PREFERRED_X2 = "vsrt-s-x2"  # for factors up to 2, at a quarter of the cost


def list_models() -> list[str]:
    """The names that `load_model` accepts."""
    return list(MODELS)


def build_model(name: str, *, frames: int | None = None) -> nn.Module:
    """A named model with initial weights.

    name: one of `list_models()`
    frames: length of the window, if not the default
    """
    if name not in MODELS:
        raise _unknown(name)
    return _build(MODELS[name].architecture, MODELS[name].config, frames=frames)


def load_model(
    name_or_path: str | Path, frames: int | None = None, *, heads: int | None = None
) -> nn.Module:
    """Load a model in evaluation mode.

    name_or_path: one of `list_models()`, a vsrkit weight file, or a public checkpoint
    frames: length of the window, for models that accept several; files do not store it
    heads: of attention; tensor shapes do not determine it, 1 in all files of the authors

    A named model without installed weights gets initial, untrained ones, and a warning is logged.
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
            "no trained weights for %s are installed; it is untrained (see `vsrkit weights list`)",
            name,
        )
    return model


def _build(architecture: str, config: Any, **options: int | None) -> nn.Module:
    """A model with initial weights; options that are not None replace fields of its config."""
    try:
        return ARCHITECTURES[architecture].build(with_options(config, **options))
    except ValueError as error:
        raise VsrkitError(f"invalid configuration of {architecture}: {error}") from error


def local_weights(name: str) -> Path | None:
    """The weight file of a named model in the package or the cache directory, None if missing."""
    if not MODELS[name].weights:
        return None
    shipped = SHIPPED / f"{name}.safetensors"
    if shipped.is_file():
        return shipped
    cached = cache_directory() / "weights" / shipped.name
    return cached if cached.is_file() else None


def default_model(factor: float | None = None) -> str:
    """The model that `upscale` uses by default; bicubic if no weights are installed.

    factor: of the sizes of output and input; None for the largest that the models have
    """
    if factor is not None and factor <= 2 and local_weights(PREFERRED_X2):
        return PREFERRED_X2
    installed = (name for name in PREFERRED if name in MODELS and local_weights(name))
    return next(installed, "bicubic")


def load_checkpoint(
    path: Path, *, frames: int | None = None, heads: int | None = None
) -> nn.Module:
    """Load a model from a file; public files are recognised by their tensor names.

    frames, heads: as for `load_model`
    """
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
                f"{path} has the tensor names of {name}, but other shapes ({error})"
            ) from error
        fill(model, tensors, source=str(path), public_name=architecture.public_name)
        return model
    first = next(iter(checkpoint.tensors))
    raise WeightsError(
        f"{path} is not a supported model: {len(checkpoint.tensors)} tensors, "
        f"the first is {first!r}; `vsrkit models` lists the supported ones"
    )


def _load_own(
    path: Path, checkpoint: Checkpoint, frames: int | None, heads: int | None
) -> nn.Module:
    about = checkpoint.about
    if about["architecture"] not in list(ARCHITECTURES):
        raise WeightsError(
            f"{path} is a {about['architecture']!r}, which this version does not support; "
            "update vsrkit"
        )
    architecture = ARCHITECTURES[about["architecture"]]
    try:
        config = architecture.config(**_with_tuples(about.get("config", {})))
        config = with_options(config, frames=frames, heads=heads)
        model = architecture.build(config).eval()
    except (TypeError, ValueError, RuntimeError) as error:
        raise WeightsError(f"{path} has invalid metadata: {error}") from error
    fill(model, checkpoint.tensors, source=str(path))
    return model


def _with_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """Lists, as JSON stores tuples, turned back into tuples."""
    return {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}


def load_spynet(path: str | Path) -> SPyNet:
    """Load a SPyNet from a file, in either public naming style."""
    tensors = spynet_translate(read_checkpoint(Path(path)).tensors)
    flow = SPyNet()
    buffers = {name: value for name, value in flow.named_buffers() if name not in tensors}
    fill(flow, tensors | buffers, source=str(path), public_name=spynet_public_name)
    return flow.eval()


def save_model(path: Path, model: nn.Module, *, half: bool = False, **about: Any) -> None:
    """Write a model and its configuration to a safetensors file.

    half: store in half precision, as the weights in the package are
    about: further metadata
    """
    config: Any = model.config
    name = next(name for name, a in ARCHITECTURES.items() if a.config is type(config))
    about = {"architecture": name, "config": asdict(config), **about}
    write_checkpoint(path, model, about, half=half)


def with_options(config: Any, **options: Any) -> Any:
    """The config with fields replaced by the options that are not None."""
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
