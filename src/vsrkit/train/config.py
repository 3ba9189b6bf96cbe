"""Everything that decides a training run, in frozen dataclasses that refuse unknown keys."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, get_args, get_type_hints

from vsrkit.errors import VsrkitError
from vsrkit.hardware.precision import PrecisionName

T = TypeVar("T")


class ConfigError(VsrkitError):
    """A recipe names an unknown key or gives a value that cannot be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One data set: a video file, a folder of videos, or a folder of folders of frames."""

    path: str
    weight: float = 1.0  # how often it is drawn, relative to the other sources
    degradation: str = ""  # how its LR frames are made; empty: as the run says
    max_frames: int = 3000  # taken from each video: the cache holds them uncompressed

    def __post_init__(self) -> None:
        if not 0 <= self.weight < math.inf or self.max_frames < 1:
            raise ConfigError(
                f"{self.path}: weight must be 0 or more and max_frames at least 1, "
                f"got {self.weight} and {self.max_frames}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """Everything that decides a training run; saved next to its checkpoints.

    One step of one process draws `batch_size` clips, `accumulate` times.
    """

    run_dir: str
    data: tuple[Source, ...] = ()
    degradation: str = "bi"  # bi, bd, bd-matlab12, crf25, crf15-35, realistic, bi+crf15-35
    model: str = "vsrt-s"  # a name or a weight file
    warm_start: tuple[str, ...] = ()  # weight files; "flow=FILE" fills only the part called flow
    teacher: str = ""  # a trained BasicVSR
    # Of the teacher's features, beside its frames: the model, one of our presets, is narrowed from
    # it. 0: its frames alone; it answers the first `teacher_frames` of every clip once, clean.
    teacher_weight: float = 0.3
    teacher_frames: int = 20  # the others are not learnt from: a second each, or more
    teacher_hr_share: float = 0.0  # of HR in what frames are held against, the rest is the teacher
    distinct_clips: int = 0  # drawn again and again, so that their features are kept; 0: no end
    # Held-out clips: patterns of their names, else about this share of the clips, whole series.
    validation: tuple[str, ...] = ()
    validation_share: float = 0.1
    validation_overlaps: bool = False  # learn from the held-out clips too: to see it overfit
    cache_dir: str = ""  # of decoded frames; empty: the system's cache directory
    unreadable_limit: int = 20  # frames that may be skipped before the run refuses the data

    steps: int = 10_000
    batch_size: int = 4
    accumulate: int = 1
    frames: int = 7
    crop: int = 64  # side of the LR crop
    flips: bool = True  # horizontal, vertical and transposition, each with one half
    reversal: bool = True  # in time, with one half

    loss: Literal["charbonnier", "psnr"] = "charbonnier"  # psnr: log of each clip's square error
    steadiness: float = 0.0  # with "psnr": weight of change along the motion, beside error
    loss_reduction: Literal["mean", "sum"] = "mean"  # the release adds up, over all pixels
    optimizer: Literal["adam", "muon"] = "adam"
    learning_rate: float = 2e-4
    flow_learning_rate_scale: float = 1.0
    flow_frozen_steps: int = 0  # the flow network rests while what uses it settles
    betas: tuple[float, float] = (0.9, 0.99)
    schedule: Literal["cosine", "linear", "restarts", "constant"] = "cosine"
    warmup_steps: int = 0
    minimum_learning_rate: float = 1e-7
    periods: tuple[int, ...] = ()  # steps of each cosine with `schedule="restarts"`
    restart_weights: tuple[float, ...] = ()  # of the learning rate in each
    clip_gradients: float = 0.0  # largest norm; 0: no clipping
    ema_decay: float = 0.0  # 0: no average
    refit: str = ""  # after the last step the last convolution is fitted to HR; how LR is made then

    precision: PrecisionName = "auto"
    activation_checkpointing: bool = False  # a third of the memory for a third more time
    device: str = "cpu"
    workers: int = 1  # processes that prepare batches; 0: in the training process itself
    seed: int = 0

    log_every: int = 20
    validate_every: int = 500
    validation_frames: int = 9  # of each held-out clip, the two at either end not scored
    validation_crop: int = 0  # LR pixels of its middle along each side; 0: whole frames
    save_every: int = 500
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "accumulate", "frames", "crop",
                     "teacher_frames", "log_every", "validate_every", "validation_frames",
                     "save_every"):  # fmt: skip
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("unreadable_limit", "teacher_weight", "learning_rate", "warmup_steps",
                     "steadiness", "minimum_learning_rate", "flow_learning_rate_scale",
                     "flow_frozen_steps", "clip_gradients", "workers", "seed", "validation_crop",
                     "distinct_clips"):  # fmt: skip
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{name} must be 0 or more, got {getattr(self, name)}")
        for name in ("ema_decay", "validation_share"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} must be in [0, 1), got {getattr(self, name)}")
        if not 0 <= self.teacher_hr_share <= 1:
            raise ConfigError(f"teacher_hr_share must be from 0 to 1, got {self.teacher_hr_share}")
        if self.steadiness and self.loss != "psnr":
            raise ConfigError('steadiness is a part of loss = "psnr"; set that, or steadiness to 0')
        if self.teacher_hr_share and self.teacher_weight:
            raise ConfigError(
                "teacher_hr_share is for frames alone: set teacher_weight to 0, or the share"
            )
        if self.teacher and not self.teacher_weight and self.frames > self.teacher_frames:
            raise ConfigError(
                f"clips of {self.frames} frames cannot be cut from the {self.teacher_frames} that "
                "the teacher answers; raise teacher_frames or lower frames"
            )
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError(f"betas must be in [0, 1), got {list(self.betas)}")
        if self.schedule == "restarts" and len(self.periods) != len(self.restart_weights):
            raise ConfigError(
                f"each of the {len(self.periods)} periods needs a restart weight, "
                f"got {len(self.restart_weights)}"
            )
        if self.schedule == "restarts" and sum(self.periods) < self.steps:
            raise ConfigError(
                f"the periods add up to {sum(self.periods)} steps, steps is {self.steps}"
            )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """A config from plain values, as TOML and JSON have them; unknown keys are errors."""
        return from_dict(cls, values)


def from_dict(cls: type[T], values: Mapping[str, Any]) -> T:
    """Build a config dataclass from plain values; unknown keys and wrong types are errors."""
    hints = get_type_hints(cls)
    known = {f.name for f in fields(cls)}  # type: ignore[arg-type]
    if unknown := sorted(values.keys() - known):
        raise ConfigError(f"unknown keys {unknown}; known keys are {sorted(known)}")
    try:
        return cls(**{key: _convert(key, hints[key], value) for key, value in values.items()})
    except TypeError as error:  # a key that has no default was not given
        raise ConfigError(f"{cls.__name__}: {str(error).split('() ')[-1]}") from error


def with_overrides(config: T, overrides: list[str]) -> T:
    """The config with `key=value` strings put in; lists are separated by commas."""
    hints = get_type_hints(type(config))
    changes: dict[str, Any] = {}
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            raise ConfigError(f"expected key=value, got {override!r}")
        if key not in hints:
            raise ConfigError(f"unknown keys [{key!r}]; known keys are {sorted(hints)}")
        changes[key] = _convert(key, hints[key], _parse(key, hints[key], text))
    return replace(config, **changes)  # type: ignore[type-var]


def to_dict(config: Any) -> dict[str, Any]:
    """Plain values for JSON; `from_dict` makes the same config of them."""
    return json.loads(json.dumps(asdict(config)))


def _parse(key: str, hint: Any, text: str) -> Any:
    if getattr(hint, "__origin__", None) is tuple:
        return [_parse(key, get_args(hint)[0], part) for part in text.split(",") if part]
    if hint is bool:
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{key} must be true or false, got {text!r}")
        return text.lower() == "true"
    if hint in (int, float):
        try:
            return hint(text)
        except ValueError as error:
            kind = "whole number" if hint is int else "number"
            raise ConfigError(f"{key} must be a {kind}, got {text!r}") from error
    return text


def _convert(key: str, hint: Any, value: Any) -> Any:
    """`value` as the type that the field `key` has, or an error that says what was wanted."""
    origin, arguments = getattr(hint, "__origin__", None), get_args(hint)
    if origin is tuple:
        if isinstance(value, (str, Path, Mapping)) or is_dataclass(value):
            value = [value]
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"{key} must be a list, got {value!r}")
        if Ellipsis not in arguments and len(value) != len(arguments):
            raise ConfigError(f"{key} must be {len(arguments)} numbers, got {list(value)}")
        return tuple(_convert(key, arguments[0], item) for item in value)
    if is_dataclass(hint):
        if isinstance(value, (str, Path)):
            return hint(path=str(value))  # type: ignore[operator, call-arg]
        if not isinstance(value, (Mapping, hint)):  # type: ignore[arg-type]
            raise ConfigError(f"{key} must name paths or tables, got {value!r}")
        return value if isinstance(value, hint) else from_dict(hint, value)  # type: ignore[arg-type]
    if origin is Literal:
        if value not in arguments:
            raise ConfigError(f"{key} must be one of {list(arguments)}, got {value!r}")
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is str and isinstance(value, Path):
        return str(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise ConfigError(f"{key} must be a {hint.__name__}, got {value!r}")
    return value
