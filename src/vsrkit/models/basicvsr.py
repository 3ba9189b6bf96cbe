"""BasicVSR (Chan et al., 2021): features carried through the clip in both directions of time."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.models.anatomy import Anatomy, Flow, Stage, Switch
from vsrkit.models.layers.blocks import Tower, TwoStageTail, joined, upsample_bilinear
from vsrkit.models.layers.flow import SPyNet, spynet_basicsr_name, warp
from vsrkit.models.spec import Segments, Spec
from vsrkit.models.weights import Rules, count_matching, rename


@dataclass(frozen=True, slots=True, kw_only=True)
class BasicVSRConfig:
    """The network, and the length of its segments; the defaults are the paper's."""

    channels: int = 64
    blocks: int = 30  # residual blocks per direction
    segment: int = 30  # frames per segment of a long shot
    warmup: int = 10  # frames run and dropped on either side of a segment


class BasicVSR(nn.Module):
    """Two recurrent passes over the clip, a 1x1 fusion of both, and a x4 tail."""

    def __init__(self, config: BasicVSRConfig) -> None:
        super().__init__()
        self.config = config
        self.spec = Spec(scale=4, context=Segments(config.segment, config.warmup))
        c = config.channels
        self.spynet = SPyNet()
        self.backward_trunk = Tower(c + 3, c, config.blocks)
        self.forward_trunk = Tower(c + 3, c, config.blocks)
        self.fusion = nn.Conv2d(2 * c, c, 1)
        self.tail = TwoStageTail(c)

    @property
    def anatomy(self) -> Anatomy:
        """Flow, two chains, fusion, tail."""
        return Anatomy(
            flow=Flow(between=self.spynet),
            stages=(*Stage.chains("backward_trunk", "forward_trunk"), Stage.fusion(), Stage.tail()),
            switches=(
                Switch.flow("spynet"),
                *Switch.chains(["backward_trunk"], ["forward_trunk"]),
                Switch.tail(),
            ),
        )

    def forward(self, clip: Tensor, keep: slice | None = None) -> Tensor:
        """(B, T, 3, H, W) -> (B, T, 3, 4H, 4W), or only the frames in `keep`.

        The backward pass stops at the first wanted frame, the forward pass at the last one.
        """
        start, stop, _ = (keep or slice(None)).indices(clip.shape[1])
        backward = self._run_backward(clip, start)
        features = self._empty(clip)
        sr = []
        for i in range(stop):
            frame = clip[:, i]
            if i > 0:
                features = warp(features, self.spynet(frame, clip[:, i - 1]))
            features = self.forward_trunk(joined(frame, features))
            if i >= start:
                sr.append(self.reconstruct(frame, backward.pop(), features))
        return torch.stack(sr, 1)

    def _run_backward(self, clip: Tensor, start: int) -> list[Tensor]:
        """Features of the frames from the last one down to `start`, in that order."""
        last = clip.shape[1] - 1
        features = self._empty(clip)
        every = []
        for i in range(last, start - 1, -1):
            frame = clip[:, i]
            if i < last:
                features = warp(features, self.spynet(frame, clip[:, i + 1]))
            features = self.backward_trunk(joined(frame, features))
            every.append(features)
        return every

    def _empty(self, clip: Tensor) -> Tensor:
        b, _, _, h, w = clip.shape
        return clip.new_zeros(b, self.config.channels, h, w)

    def reconstruct(self, frame: Tensor, backward: Tensor, forward: Tensor) -> Tensor:
        """(B, 3, H, W) and features (B, C, H, W) of both directions -> (B, 3, 4H, 4W)."""
        features = F.leaky_relu(self.fusion(torch.cat([backward, forward], 1)), 0.1)
        return self.tail(features) + upsample_bilinear(frame, 4)


# Public weight files.


def public_name(name: str) -> str:
    """The name of a vsrkit tensor in BasicSR's files."""
    return spynet_basicsr_name(name.removeprefix("tail."))


# Names of mmediting and mmagic -> BasicSR's.
MMEDIT_RULES: Rules = (
    (
        r"(basic_module\.\d+\.basic_module)\.(\d)\.conv\.",
        lambda m: f"{m[1]}.{2 * int(m[2])}.",
    ),
    (r"^(backward|forward)_resblocks\.", r"\1_trunk."),
    (r"^upsample([12])\.upsample_conv\.", r"upconv\1."),
)


def translate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename tensors of mmediting and mmagic as in BasicSR; others keep their names."""
    return rename(tensors, MMEDIT_RULES)


def detect(tensors: Mapping[str, Tensor]) -> BasicVSRConfig | None:
    """The configuration of the tensors of a BasicSR file; None if it is not BasicVSR."""
    first, fusion = tensors.get("backward_trunk.main.0.weight"), tensors.get("fusion.weight")
    if first is None or fusion is None:
        return None
    blocks = count_matching(tensors, r"backward_trunk\.main\.2\.\d+\.conv1\.weight")
    return BasicVSRConfig(channels=first.shape[0], blocks=blocks)
