"""The settings of the loss: the weight of each term, and the options of the terms."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat
from pydantic.dataclasses import dataclass

from vsrkit.train.settings import SETTINGS, ConfigError, Validated

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
    """Weight of each dB by which the grids of `scale` pixels in output and HR differ."""
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
