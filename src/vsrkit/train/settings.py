"""The base class of settings, which pydantic validates with errors of one line, and `Losses`."""

from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    ValidationError,
    ValidatorFunctionWrapHandler,
    model_validator,
)
from pydantic.dataclasses import dataclass
from pydantic_core import ErrorDetails

from vsrkit.errors import VsrkitError


class ConfigError(VsrkitError):
    """A recipe has an unknown key or an invalid value."""


SETTINGS = ConfigDict(
    extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
)


@dataclass(frozen=True, kw_only=True, config=SETTINGS)
class Validated:
    """Base class of settings: turns pydantic's errors into a `ConfigError`."""

    @model_validator(mode="wrap")
    @classmethod
    def _in_one_line(cls, values: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        try:
            return validate(values)
        except ValidationError as error:
            known = [field.name for field in fields(cls)]
            lines = [_explain(cls.__name__, known, each) for each in error.errors()]
            raise ConfigError("; ".join(lines)) from None


# Texts after "must be" by type of pydantic's error; {} are filled from the error's context.
ALLOWED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "greater_than_equal": "at least {ge:g}",
    "greater_than": "greater than {gt:g}",
    "less_than_equal": "at most {le:g}",
    "less_than": "less than {lt:g}",
    "too_long": "a list of {max_length}",
    "literal_error": "{expected}",
}


def _explain(config: str, known: list[str], error: ErrorDetails) -> str:
    """Explain the error of one key; config: name of the class."""
    kind, (key, *inner) = error["type"], error["loc"]
    if kind == "unexpected_keyword_argument":
        near = get_close_matches(str(key), known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known keys are {', '.join(known)}"
        return f"unknown key {key!r} of {config}; {hint}"
    if kind == "missing" and not inner:
        return f"{key} of {config} is missing"
    if kind == "missing":
        return f"{key} must have more values, got {list(error['input'])}"
    if key == "teacher_weight" and kind == "greater_than":
        return (
            f"teacher_weight must be greater than 0, got {error['input']!r}; to learn from the "
            'frames of the teacher alone, set teacher_mode = "frames"'
        )
    allowed = ALLOWED[kind].format(**error.get("ctx", {})) if kind in ALLOWED else error["msg"]
    return f"{key} must be {allowed}, got {error['input']!r}"


VGG16_LAYERS = tuple(
    f"conv{stage}_{number}"
    for stage, count in enumerate((2, 2, 3, 3, 3), start=1)
    for number in range(1, count + 1)
)
# Features before the activation, compared by their absolute difference. The papers use VGG19, whose
# last layer of each stage takes the place of VGG16's.
NAMED_LAYERS: dict[str, dict[str, float]] = {
    "esrgan": {"conv5_3": 1.0},
    "real-esrgan": {
        "conv1_2": 0.1, "conv2_2": 0.1, "conv3_3": 1.0, "conv4_3": 1.0, "conv5_3": 1.0
    },
}  # fmt: skip


def _as_layers(value: Any) -> Any:
    """The text "conv3_3:1 conv4_3:0.5" of the command line as a table."""
    if isinstance(value, str) and ":" in value:
        pairs = (part.partition(":") for part in value.split())
        return {name: float(weight) for name, _, weight in pairs}
    return value


Layers: TypeAlias = Annotated[
    Literal["lpips", "esrgan", "real-esrgan"] | dict[str, PositiveFloat],
    BeforeValidator(_as_layers),
]


@dataclass(frozen=True, kw_only=True, config=SETTINGS)
class Losses(Validated):
    """Weights of the terms of the loss, which are added up, and their options."""

    pixel: NonNegativeFloat = 1.0
    """Weight of the difference of the pixels, as `loss` of the run says."""
    perceptual: NonNegativeFloat = 0.0
    """Weight of the difference of VGG16's features; needs `vsrkit weights get lpips`."""
    gan: NonNegativeFloat = 0.0
    """Weight of the adversarial term; the discriminator trains along."""
    steadiness: NonNegativeFloat = 0.0
    """Weight of the root mean square change along the motion, outside of occlusions; needs the
    flow of a preset. Another `steadiness`, of the run, is inside of loss = "psnr"."""
    grid: NonNegativeFloat = 0.0
    """Weight of the mean square of the mean errors of the subpixels of an LR pixel, of 255: where
    some are brighter than others, flat areas show a pattern."""
    spectrum: NonNegativeFloat = 0.0
    """Weight of each dB of power that the output has in excess of HR, mean over frequencies."""
    colour: NonNegativeFloat = 0.0
    """Weight of the difference of mean colours in squares of 16 pixels."""

    perceptual_layers: Layers = "lpips"
    """lpips: normalised features of five layers with the weights of LPIPS. esrgan, real-esrgan: the
    layers of these papers. Or a table of layers, conv1_1 to conv5_3, with their weights."""
    window: NonNegativeInt = 0
    """Side in HR pixels of the window that VGG16 and the discriminator see, at a random place in
    each step; 0: whole crops, shifted by up to 15 pixels. Fixed places leave a grid."""
    gan_kind: Literal["relativistic", "hinge"] = "relativistic"
    """relativistic: HR should look more real than the output of the same place. hinge: each is
    judged for itself."""
    gan_frames: Annotated[
        Literal[1, 3], BeforeValidator(lambda value: {"1": 1, "3": 3}.get(value, value))
    ] = 1
    """Frames that the discriminator sees at once; 3: with both neighbours along the flow of a
    preset, so that it can recognise shimmer."""
    gan_from: NonNegativeInt = 0
    """Step from which the adversarial term counts; the discriminator trains from the first one."""
    discriminator_channels: Annotated[int, Field(ge=8, multiple_of=8)] = 32
    """Channels of the discriminator's first layer; deeper ones have up to four times as many."""
    discriminator_learning_rate: PositiveFloat = 2e-4
    """Peak learning rate of the discriminator; it rises and falls as that of the model."""
    discriminator: str = ""
    """File of a trained discriminator to start from, `discriminator.safetensors` of a run."""

    def __post_init__(self) -> None:
        if not any((self.pixel, self.perceptual, self.gan)):
            raise ConfigError("losses need a weight for pixel, perceptual or gan")
        if isinstance(self.perceptual_layers, Mapping):
            unknown = sorted(set(self.perceptual_layers) - set(VGG16_LAYERS))
            if unknown or not self.perceptual_layers:
                raise ConfigError(
                    f"perceptual_layers must name some of {', '.join(VGG16_LAYERS)}, got "
                    f"{', '.join(unknown) or 'none'}"
                )
        if 0 < self.window < 32:
            raise ConfigError(f"window must be 0 or at least 32 pixels, got {self.window}")

    @property
    def pixels_only(self) -> bool:
        """Whether all terms but `pixel` are off."""
        others = (self.perceptual, self.gan, self.steadiness, self.grid, self.spectrum, self.colour)
        return not any(others)
