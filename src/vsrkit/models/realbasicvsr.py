"""RealBasicVSR (Chan et al., 2022): each frame is cleaned, then BasicVSR upscales the clip."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from vsrkit.models.anatomy import Anatomy, Flow, Switch
from vsrkit.models.basicvsr import BasicVSR, BasicVSRConfig
from vsrkit.models.layers.blocks import Tower, conv3x3
from vsrkit.models.layers.flow import spynet_public_name, spynet_translate
from vsrkit.models.weights import Rules, count_matching, rename

MAX_PASSES = 3  # of the cleaning


@dataclass(frozen=True, slots=True, kw_only=True)
class RealBasicVSRConfig:
    """The networks, when cleaning stops, and the length of segments; the defaults are the paper's.

    threshold: cleaning is repeated, at most three times, until a pass changes the clip by less
        than this on average, in values of 255. With 255 there is always one pass. The authors
        suggest 5 for the weights trained with a discriminator and 1.5 for the others. The decision
        is made for all frames of a call. Calls with `keep`, as the pipeline makes them for pieces
        of a shot, have one pass, because the decision would differ from piece to piece.
    """

    channels: int = 64
    cleaning_blocks: int = 20  # residual blocks of the cleaning network
    blocks: int = 20  # residual blocks per direction
    threshold: float = 255.0
    segment: int = 30  # frames per segment of a long shot
    warmup: int = 10  # frames run and dropped on either side of a segment


class RealBasicVSR(nn.Module):
    """A cleaning network for single frames, and BasicVSR."""

    def __init__(self, config: RealBasicVSRConfig) -> None:
        super().__init__()
        self.config = config
        c = config.channels
        self.image_cleaning = nn.Sequential(Tower(3, c, config.cleaning_blocks), conv3x3(c, 3))
        self.basicvsr = BasicVSR(
            BasicVSRConfig(
                channels=c, blocks=config.blocks, segment=config.segment, warmup=config.warmup
            )
        )
        self.spec = self.basicvsr.spec

    @property
    def anatomy(self) -> Anatomy:
        """Cleaning, then the parts of BasicVSR, whose flow is that of cleaned frames."""
        inner = self.basicvsr.anatomy.within("basicvsr")
        cleaning = Switch("cleaning", "Frames are upscaled as they are.", ("image_cleaning",))
        return replace(
            inner,
            flow=Flow(between=self._flow_between),
            switches=(cleaning, *inner.switches),
        )

    def _flow_between(self, a: Tensor, b: Tensor) -> Tensor:
        return self.basicvsr.spynet(*(frame + self.image_cleaning(frame) for frame in (a, b)))

    def forward(self, clip: Tensor, keep: slice | None = None) -> Tensor:
        """(B, T, 3, H, W) -> (B, T, 3, 4H, 4W), or only the frames in `keep`."""
        return self.basicvsr(self.clean(clip, MAX_PASSES if keep is None else 1), keep=keep)

    def clean(self, clip: Tensor, passes: int = MAX_PASSES) -> Tensor:
        """The cleaned clip (B, T, 3, H, W), after at most `passes` passes over all frames."""
        for _ in range(passes):
            # One frame at a time, to hold the features of one only.
            residues = torch.stack([self.image_cleaning(frame) for frame in clip.unbind(1)], 1)
            clip = clip + residues
            if residues.abs().mean() < self.config.threshold / 255:
                break
        return clip


# Public weight files.

# BasicSR's names of BasicVSR -> mmediting's and mmagic's, in which the public files are.
_RULES: Rules = (
    (r"^basicvsr\.(backward|forward)_trunk\.", r"basicvsr.\1_resblocks."),
    (r"^basicvsr\.upconv([12])\.", r"basicvsr.upsample\1.upsample_conv."),
)


def public_name(name: str) -> str:
    """The name of a vsrkit tensor in mmediting's and mmagic's files."""
    for pattern, replacement in _RULES:
        name = re.sub(pattern, replacement, name.replace(".tail.", "."))
    return spynet_public_name(name)


def translate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename tensors in BasicSR's style as in mmediting; others keep their names."""
    return spynet_translate(rename(tensors, _RULES))


def detect(tensors: Mapping[str, Tensor]) -> RealBasicVSRConfig | None:
    """The configuration of the tensors of an mmediting file; None if it is not RealBasicVSR."""
    last = tensors.get("image_cleaning.1.weight")
    if last is None or "basicvsr.fusion.weight" not in tensors:
        return None
    return RealBasicVSRConfig(
        channels=last.shape[1],
        cleaning_blocks=count_matching(tensors, r"image_cleaning\.0\.main\.2\.\d+\.conv1\.weight"),
        blocks=count_matching(
            tensors, r"basicvsr\.backward_resblocks\.main\.2\.\d+\.conv1\.weight"
        ),
    )
