"""What the paper's ablations take away, of a small model of its shape and of one of our own."""

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from torch import nn

from vsrkit.models.vsrt import VSRT, VSRTConfig
from vsrkit.models.vsrt_small import SMALL as SHIPPED
from vsrkit.models.vsrt_small import SmallConfig, VSRTSmall

THREE_FRAMES = "VSR-Transformer trained w/ 3 frames"
OURS_FRAMES = 7
Family: TypeAlias = Literal["vsrt", "vsrt-s", "vsrt-s-trained"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A model in an ablation; `published` is its row in the paper's ablation table."""

    name: str
    config: VSRTConfig | SmallConfig
    frames: int  # of a training clip
    published: str = ""

    def build(self) -> nn.Module:
        """The model with fresh weights."""
        if isinstance(self.config, VSRTConfig):
            return VSRT(self.config)
        return VSRTSmall(self.config)

    @property
    def slug(self) -> str:
        """Its name as a folder's."""
        return self.name.replace("w/o", "without").replace(",", "").replace(" ", "-").lower()


# Every layer of the paper's net, few of each; one normalisation weight per channel, any size.
SMALL_VSRT = VSRTConfig(
    depth=2,
    channels=32,
    extract_blocks=1,
    tower_blocks=2,
    reconstruct_blocks=2,
    size=None,
    token_width=64,
)

# Every layer of our presets at half of their channels, for the same reason: a few hundred steps
# of each variant must fit into minutes.
SMALL = SmallConfig(channels=32, attention_channels=16)


def variants_of(family: Family, frames: int = OURS_FRAMES) -> list[Variant]:
    """The full model first; frames: of a clip that one of ours learns from."""
    match family:
        case "vsrt":
            return _vsrt()
        case "vsrt-s":
            return _ours(SMALL, frames)
        case "vsrt-s-trained":  # the preset itself, from the weights that ship with it
            return _ours(SHIPPED, frames)


def _vsrt() -> list[Variant]:
    full = Variant(name="full", config=SMALL_VSRT, frames=5, published="VSR-Transformer")
    return [
        full,
        _but(full, "w/o STCSA", published="VSR-Transformer w/o STCSA", attention="none"),
        _but(full, "w/o BOFF", published="VSR-Transformer w/o BOFF", feed_forward="towers"),
        _but(full, "w/o flow", flow=False),
        _but(full, "plain Transformer block", attention="linear", feed_forward="token"),
        replace(_but(full, "3 frames", published=THREE_FRAMES, frames=3), frames=3),
        replace(_but(full, "1 frame", frames=1), frames=1),
    ]


def _ours(config: SmallConfig, frames: int) -> list[Variant]:
    full = Variant(name="full", config=config, frames=frames, published="VSR-Transformer")
    return [
        full,
        _but(full, "w/o STCSA", published="VSR-Transformer w/o STCSA", attention=False),
        _but(full, "w/o flow", flow="none"),
        _but(full, "w/o BOFF", published="VSR-Transformer w/o BOFF", propagation="none"),
        _but(full, "hop, not carried", propagation="hop"),
        # Every output frame is made from these many frames, in training and in use.
        replace(_but(full, "3 frames", published=THREE_FRAMES, segment=1, warmup=1), frames=3),
        # The same clips, each of their frames by itself. As many single frames of different clips
        # would teach more, whatever the net: a step of ten times the clips is less noisy.
        _but(full, "1 frame", propagation="none", reach=0),
    ]


def _but(full: Variant, name: str, *, published: str = "", **changes: Any) -> Variant:
    """The full model with other settings."""
    config = replace(full.config, **changes)
    return replace(full, name=name, config=config, published=published)
