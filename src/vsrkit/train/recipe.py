"""Recipes: a Python file with functions that return a config, or a TOML file."""

import importlib.util
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

from vsrkit.data.clips import OnProgress
from vsrkit.errors import VsrkitError
from vsrkit.train.config import ConfigError, TrainConfig, from_dict, with_overrides
from vsrkit.train.flow.train_flow import FlowConfig, train_flow
from vsrkit.train.loop import train


def run_recipe(
    recipe: str,
    overrides: list[str],
    *,
    resume: bool = False,
    on_progress: OnProgress | None = None,
) -> None:
    """Train what a recipe describes, with `key=value` overrides put in."""
    config = with_overrides(load_recipe(recipe), overrides)
    if isinstance(config, FlowConfig):
        train_flow(config, resume=resume, on_progress=on_progress)
    else:
        train(config, resume=resume, on_progress=on_progress)


def load_recipe(recipe: str) -> TrainConfig | FlowConfig:
    """The config of a recipe file; "FILE.py:paper" is what `paper()` returns, not `config()`.

    A TOML file trains flow if it says `kind = "flow"`.
    """
    file, _, function = recipe.partition(".py:")
    path = Path(f"{file}.py" if function else recipe)
    if not path.is_file():
        raise ConfigError(f"{path} does not exist; a recipe is a .py or a .toml file")
    if path.suffix == ".toml":
        return _from_toml(path)
    if path.suffix == ".py":
        return _from_python(path, function or "config")
    raise ConfigError(f"{path} is no recipe: expected a .py or a .toml file")


def _from_toml(path: Path) -> TrainConfig | FlowConfig:
    try:
        values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # no TOML, or no text at all
        raise ConfigError(f"{path}: {error}") from error
    kind = values.pop("kind", "model")
    if kind not in ("model", "flow"):
        raise ConfigError(f'{path}: kind must be "model" or "flow", got {kind!r}')
    try:
        if kind == "flow":
            return from_dict(FlowConfig, values)
        return from_dict(TrainConfig, values)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _from_python(path: Path, function: str) -> TrainConfig | FlowConfig:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        config = getattr(module, function)() if hasattr(module, function) else None
    except VsrkitError as error:
        raise ConfigError(f"{path}: {error}") from error
    except Exception as error:  # a recipe is a program, and its mistakes are its author's
        raise ConfigError(f"{path}: {type(error).__name__}: {error}") from error
    if not isinstance(config, (TrainConfig, FlowConfig)):
        raise ConfigError(f"{path} needs a function {function}() that returns a TrainConfig")
    # Python does not look at types: `data="my-videos"` is to mean what it means in TOML.
    values = {f.name: getattr(config, f.name) for f in fields(config)}
    try:
        return from_dict(type(config), values)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
