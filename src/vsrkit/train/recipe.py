"""Recipes: a Python file with functions that return a config, or a TOML file with its keys."""

import importlib.util
import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from pydantic import TypeAdapter

from vsrkit.errors import VsrkitError
from vsrkit.train.config import FlowConfig, TrainConfig
from vsrkit.train.settings import ConfigError

AnyConfig: TypeAlias = TrainConfig | FlowConfig
T = TypeVar("T", bound=AnyConfig)
KIND = "Kind of network to train: a super-resolution model or the light flow network."


def load_recipe(recipe: str, overrides: list[str] | None = None) -> AnyConfig:
    """The config that a recipe describes.

    Args:
        recipe: a .toml file; the `config.json` of a run; or a .py file, whose function `config()`
            is called ("FILE.py:paper" calls `paper()` instead). A TOML file with `kind = "flow"`
            trains the flow network.
        overrides: `key=value` texts that replace values of the recipe; see `with_overrides`.
    """
    file, _, function = recipe.partition(".py:")
    path = Path(f"{file}.py" if function else recipe)
    readers: dict[str, Callable[[], AnyConfig]] = {
        ".py": lambda: _from_python(path, function or "config"),
        ".toml": lambda: _from_toml(path),
        ".json": lambda: from_saved(json.loads(path.read_text(encoding="utf-8"))),
    }
    if not path.is_file():
        raise ConfigError(f"{path} does not exist; a recipe is a .py or a .toml file")
    if path.suffix not in readers:
        raise ConfigError(f"{path} is not a recipe; expected a .py or a .toml file")
    try:
        config = readers[path.suffix]()
    except (VsrkitError, ValueError) as error:  # ValueError: not TOML, JSON or text
        raise ConfigError(f"{path}: {error}") from error
    return with_overrides(config, overrides or [])


def _from_toml(path: Path) -> AnyConfig:
    values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    kind = values.pop("kind", "model")
    if kind not in ("model", "flow"):
        raise ConfigError(f'kind must be "model" or "flow", got {kind!r}')
    return FlowConfig(**values) if kind == "flow" else TrainConfig(**values)


def _from_python(path: Path, function: str) -> AnyConfig:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        config = getattr(module, function)() if hasattr(module, function) else None
    except VsrkitError:
        raise
    except Exception as error:  # a recipe is a program that can fail in any way
        raise ConfigError(f"{type(error).__name__}: {error}") from error
    if not isinstance(config, (TrainConfig, FlowConfig)):
        raise ConfigError(f"the recipe needs a function {function}() that returns a TrainConfig")
    return config


def from_saved(values: Any) -> AnyConfig:
    """The config of a run's `config.json`, also of one that an earlier version saved.

    Earlier versions had `teacher_weight = 0` instead of `teacher_mode = "frames"`, and two unused
    keys of flow runs.
    """
    if not isinstance(values, Mapping):
        raise ConfigError(f"expected an object with the keys of a config, got {values!r}")
    values = dict(values)
    if "stills" in values:
        return FlowConfig(
            **{k: v for k, v in values.items() if k not in ("periods", "restart_weights")}
        )
    if "teacher_mode" not in values and values.get("teacher_weight") == 0:
        values["teacher_mode"] = "frames"
        del values["teacher_weight"]
    return TrainConfig(**values)


def with_overrides(config: T, overrides: list[str]) -> T:
    """The config with `key=value` texts applied, `table.key=value` for a table such as losses.

    The values of a list are separated by commas.
    """
    lists = {f.name for f in fields(config) if isinstance(getattr(config, f.name), tuple)}
    tables = {f.name for f in fields(config) if is_dataclass(getattr(config, f.name))}
    changes: dict[str, Any] = {}
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            raise ConfigError(f"--set expects key=value, got {override!r}")
        table, _, inner = key.partition(".")
        if table in tables:
            changes.setdefault(table, asdict(getattr(config, table)))[inner] = text
        else:
            changes[key] = [part for part in text.split(",") if part] if key in lists else text
    values = {f.name: getattr(config, f.name) for f in fields(config)}
    # Not strict: the numbers of the command line are texts.
    for table in tables & changes.keys():
        kind = type(getattr(config, table))
        changes[table] = TypeAdapter(kind).validate_python(changes[table], strict=False)
    return TypeAdapter(type(config)).validate_python(values | changes, strict=False)


def json_schema() -> dict[str, Any]:
    """The JSON schema of TOML recipes, for editors that complete and check them."""
    schemas, shared = TypeAdapter.json_schemas(
        [
            ("model", "validation", TypeAdapter(TrainConfig)),
            ("flow", "validation", TypeAdapter(FlowConfig)),
        ],
        title="Training recipe of vsrkit",
    )
    definitions: dict[str, Any] = shared["$defs"]
    for kind, cls in (("model", TrainConfig), ("flow", FlowConfig)):
        definitions[cls.__name__]["properties"]["kind"] = {"const": kind, "description": KIND}
    definitions["FlowConfig"]["required"].append("kind")
    return {**shared, "anyOf": list(schemas.values())}
