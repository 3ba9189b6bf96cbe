"""Build, load and save the models that `zoo/table.py` lists."""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError
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
    name_or_path: str | Path,
    frames: int | None = None,
    *,
    heads: int | None = None,
    sharpness: float | None = None,
) -> nn.Module:
    """Load a model in evaluation mode.

    name_or_path: one of `list_models()`, a vsrkit weight file, or a public checkpoint
    frames: length of the window, for models that accept several; files do not store it
    heads: of attention; tensor shapes do not determine it, 1 in all files of the authors
    sharpness: from 0 to 1, weights between those of a model and of its sharper companion, for the
        names of either; None for the weights of the name

    A named model without installed weights gets initial, untrained ones, and a warning is logged.
    """
    name = str(name_or_path)
    if sharpness is not None:
        return _load_between(name, sharpness, frames, heads)
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


def _load_between(name: str, sharpness: float, frames: int | None, heads: int | None) -> nn.Module:
    """The model whose weights are those of a pair, weighted by 1 - sharpness and sharpness."""
    pairs = {soft: (soft, entry.sharper) for soft, entry in MODELS.items() if entry.sharper}
    pairs |= {pair[1]: pair for pair in pairs.values()}
    if name not in pairs:
        known = ", ".join(pairs) or "no model of this version"
        raise VsrkitError(f"{name} has no sharper companion; a sharpness is for {known}")
    if not 0 <= sharpness <= 1:
        raise VsrkitError(f"a sharpness is a number from 0 to 1, not {sharpness}")
    for needed in pairs[name]:
        if local_weights(needed) is None:
            raise WeightsError(
                f"a sharpness of {name} needs the weights of {needed}, which are not installed; "
                "`vsrkit weights list` says where they come from"
            )
    soft, sharp = (_load_entry(each, frames, heads) for each in pairs[name])
    if sharpness in (0, 1):  # a sum would turn -0.0 into 0.0, and the digest would be another
        return sharp if sharpness else soft
    # Two products and a sum, each rounded to float32: the same on every processor, unlike a fused
    # operation.
    with torch.no_grad():
        for key, weights in soft.named_parameters():
            weights.copy_(weights * (1 - sharpness) + sharp.get_parameter(key) * sharpness)
    return soft


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
        except (LookupError, ValueError, ZeroDivisionError) as error:
            raise WeightsError(
                f"{path} has the tensor names of {name}, but lacks some, or has other shapes "
                f"({error})"
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
        config = _checked(architecture.config(**_with_tuples(about.get("config", {}))), checkpoint)
        config = with_options(config, frames=frames, heads=heads)
        model = architecture.build(config).eval()
    except (TypeError, ValueError, RuntimeError) as error:
        raise WeightsError(f"{path} has invalid metadata: {error}") from error
    fill(model, checkpoint.tensors, source=str(path))
    return model


def _checked(config: Any, checkpoint: Checkpoint) -> Any:
    """The config of a file, of which every value has the right type and a possible size."""
    # From JSON, where strict types leave lists as tuples.
    try:
        TypeAdapter(type(config)).validate_json(json.dumps(asdict(config)), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    tensors = checkpoint.tensors
    # Blocks, channels and windows are all counted by the tensors; a damaged number of a billion
    # would take hours to build.
    most = max(1024, len(tensors), *(side for value in tensors.values() for side in value.shape))
    for name, value in asdict(config).items():
        if isinstance(value, int | float) and abs(value) > most:
            raise ValueError(f"{name} = {value} does not fit the tensors")
    return config


def _with_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """Lists, as JSON stores tuples, turned back into tuples."""
    return {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}


def load_spynet(path: str | Path) -> SPyNet:
    """Load a SPyNet from a file, in either public naming style."""
    tensors = spynet_translate(read_checkpoint(Path(path)).tensors)
    flow = SPyNet()
    fill(flow, tensors, source=str(path), public_name=spynet_public_name)
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
    near = get_close_matches(name.lower(), MODELS, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return UnknownModelError(f"no model called {name!r}; {hint}`vsrkit models` lists all")
