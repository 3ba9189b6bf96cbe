"""The settings of an ablation, and the variants of a model that it trains."""

import dataclasses
import logging
import re
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic.dataclasses import dataclass
from torch import nn

from vsrkit.errors import VsrkitError
from vsrkit.hardware.device import FloatName
from vsrkit.models.vsrt import VSRT, VSRTConfig
from vsrkit.models.vsrt_small import SMALL as SHIPPED
from vsrkit.models.vsrt_small import SmallConfig, VSRTSmall
from vsrkit.train.config import Texts
from vsrkit.train.settings import SETTINGS, Validated

log = logging.getLogger("vsrkit")

THREE_FRAMES = "VSR-Transformer trained w/ 3 frames"
PRESET_FRAMES = 7  # of a training clip
Family: TypeAlias = Literal["vsrt", "vsrt-s", "vsrt-s-trained"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A model of an ablation; `published` is its row in the ablation table of the paper."""

    name: str
    config: VSRTConfig | SmallConfig
    frames: int  # of a training clip
    published: str = ""

    def build(self) -> nn.Module:
        """The model with random weights."""
        if isinstance(self.config, VSRTConfig):
            return VSRT(self.config)
        return VSRTSmall(self.config)

    @property
    def slug(self) -> str:
        """The name of its folder."""
        return self.name.replace("w/o", "without").replace(",", "").replace(" ", "-").lower()


# Every kind of layer of the paper's network, few of each; one normalisation weight per channel
# instead of one per pixel, so that it accepts any size.
SMALL_VSRT = VSRTConfig(
    depth=2,
    channels=32,
    extract_blocks=1,
    tower_blocks=2,
    reconstruct_blocks=2,
    size=None,
    token_width=64,
)

# The presets at half of their channels: a few hundred steps of each variant must fit into minutes.
SMALL = SmallConfig(channels=32, attention_channels=16)


def variants_of(family: Family, frames: int = PRESET_FRAMES) -> list[Variant]:
    """All variants of a family, the full model first.

    family: `vsrt` is the paper's network, `vsrt-s` the preset, both small; `vsrt-s-trained` is the
        preset with its shipped weights.
    frames: of a training clip, for the presets.
    """
    match family:
        case "vsrt":
            return _vsrt()
        case "vsrt-s":
            return _preset(SMALL, frames)
        case "vsrt-s-trained":
            return _preset(SHIPPED, frames)


def _vsrt() -> list[Variant]:
    full = Variant(name="full", config=SMALL_VSRT, frames=5, published="VSR-Transformer")
    return [
        full,
        changed(full, "w/o STCSA", published="VSR-Transformer w/o STCSA", attention="none"),
        changed(full, "w/o BOFF", published="VSR-Transformer w/o BOFF", feed_forward="towers"),
        changed(full, "w/o flow", flow=False),
        changed(full, "plain Transformer block", attention="linear", feed_forward="token"),
        dataclasses.replace(changed(full, "3 frames", published=THREE_FRAMES, frames=3), frames=3),
        dataclasses.replace(changed(full, "1 frame", frames=1), frames=1),
    ]


def _preset(config: SmallConfig, frames: int) -> list[Variant]:
    full = Variant(name="full", config=config, frames=frames, published="VSR-Transformer")
    return [
        full,
        changed(full, "w/o STCSA", published="VSR-Transformer w/o STCSA", attention=False),
        changed(full, "w/o flow", flow="none"),
        changed(full, "w/o BOFF", published="VSR-Transformer w/o BOFF", propagation="none"),
        changed(full, "hop, not carried", propagation="hop"),
        # Every output frame depends on this many frames, in training and in use.
        dataclasses.replace(
            changed(full, "3 frames", published=THREE_FRAMES, segment=1, warmup=1), frames=3
        ),
        # The same clips, each frame on its own. As many single frames from different clips would
        # train any network better, because the gradient of a step would be less noisy.
        changed(full, "1 frame", propagation="none", reach=0),
    ]


def changed(full: Variant, name: str, *, published: str = "", **changes: Any) -> Variant:
    """The full model with other settings of its config."""
    config = dataclasses.replace(full.config, **changes)
    return dataclasses.replace(full, name=name, config=config, published=published)


PATCH = SMALL_VSRT.patch
MIN_FRAMES = 3  # the variant `3 frames` needs them
SECONDS = {"s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True, kw_only=True, config=SETTINGS)
class Settings(Validated):
    """The settings of an ablation; a folder holds one ablation."""

    data: str
    model: Family = "vsrt"
    variants: Texts = ()  # names; all if empty
    seeds: int = 1
    budget_seconds: float = 1800.0  # for all variants and seeds, with validation
    steps: int = 0  # of each run; 0 for as many as fit into the budget
    batch_size: int = 2
    crop: int = 32
    frames: int = 0  # of a training clip of the presets; 0 for the usual number
    learning_rate: float = 1e-3
    degradation: str = "bi"
    held_out: float = 0.2  # share of the clips, or the end of a single clip
    validation: Texts = ()  # names of held-out clips, instead of a share
    warm_start: Texts = ()  # weight files, as in a training config
    precision: FloatName = "float32"  # `auto` could differ between variants
    device: str = "cpu"
    workers: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.held_out < 1:
            raise VsrkitError(f"held_out must be a share between 0 and 1, got {self.held_out}")
        if self.frames and (self.model == "vsrt" or self.frames < MIN_FRAMES):
            raise VsrkitError(
                f"frames must be {MIN_FRAMES} or more, and only for the presets (vsrt is trained "
                f"on windows of five); got {self.frames} for {self.model}"
            )
        if self.model == "vsrt" and self.crop % PATCH:
            raise VsrkitError(
                f"crop must be a multiple of {PATCH}, the patch size of vsrt; crop was {self.crop}"
            )


def settings_from(*, data: Path | None, budget: str, **values: Any) -> Settings:
    """Settings from command line options.

    data: a folder of videos; None for the bundled clip.
    budget: such as 90s, 30m or 2h.
    values: the other settings.
    """
    if data is None:
        data = Path(str(files("vsrkit").joinpath("assets", "city.mp4")))
        log.warning(
            "no --data: training on the bundled clip of one second as a demonstration; "
            "its results are not meaningful"
        )
    content = {"data": str(data), "budget_seconds": parse_duration(budget), **values}
    return Settings(**content)


def parse_duration(text: str) -> float:
    """A duration such as 90s, 30m or 2h in seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip().lower())
    if not found:
        raise VsrkitError(f"expected a duration like 90s, 30m or 2h, got {text!r}")
    return float(found[1]) * SECONDS[found[2]]
