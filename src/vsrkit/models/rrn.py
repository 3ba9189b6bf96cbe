"""RRN (Isobe et al., 2020): a recurrent residual network on features and the last result."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.models.anatomy import Anatomy
from vsrkit.models.layers.blocks import conv3x3, residual_blocks, step_through, upsample_bilinear
from vsrkit.models.spec import Carried, Spec
from vsrkit.models.weights import count_matching


@dataclass(frozen=True, slots=True, kw_only=True)
class RRNConfig:
    """The defaults are RRN-10L."""

    channels: int = 128
    blocks: int = 10


L5 = RRNConfig(blocks=5)
L10 = RRNConfig()


class State(NamedTuple):
    """The last frame, its features, and its result with 4x4 pixels in channels."""

    frame: Tensor  # (B, 3, H, W)
    features: Tensor  # (B, C, H, W)
    result: Tensor  # (B, 48, H, W)


class RRN(nn.Module):
    """One step per frame, on two frames, the last features and the last result."""

    anatomy = Anatomy()  # no flow, no attention, no switches

    def __init__(self, config: RRNConfig) -> None:
        super().__init__()
        self.config = config
        self.spec = Spec(scale=4, context=Carried(needs_second_frame=True))
        c = config.channels
        self.conv_first = conv3x3(3 + 3 + c + 48, c)
        self.blocks = residual_blocks(config.blocks, c)
        self.to_features = conv3x3(c, c)
        self.to_result = conv3x3(c, 48)

    def forward(self, clip: Tensor, keep: slice | None = None) -> Tensor:
        """(B, T, 3, H, W) -> (B, T, 3, 4H, 4W), or only the frames in `keep`."""
        second = clip[:, min(1, clip.shape[1] - 1)]
        return step_through(self.step, clip, keep, self.start(second))

    def start(self, second: Tensor) -> State:
        """The state before the first frame, given the second.

        As in the authors' code, the second frame takes the place of the one before the first.
        """
        b, _, h, w = second.shape
        nothing = second.new_zeros(b, self.config.channels + 48, h, w)
        return State(second, *nothing.split([self.config.channels, 48], 1))

    def step(self, frame: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """One frame (B, 3, H, W) -> its result (B, 3, 4H, 4W) and the next state."""
        state = state or self.start(frame)
        x = torch.cat([state.frame, frame, state.features, state.result], 1)
        x = self.blocks(F.relu(self.conv_first(x)))
        sr = F.pixel_shuffle(self.to_result(x), 4) + upsample_bilinear(frame, 4)
        return sr, State(frame, F.relu(self.to_features(x)), F.pixel_unshuffle(sr, 4))


# Public weight files.

_PUBLIC_PARTS = {
    "conv_first": "conv_1",
    "blocks": "recon_trunk",
    "to_features": "conv_h",
    "to_result": "conv_o",
}


def public_name(name: str) -> str:
    """The name of a vsrkit tensor in the authors' files."""
    part, _, rest = name.partition(".")
    return f"neuro.{_PUBLIC_PARTS[part]}.{rest}"


def detect(tensors: Mapping[str, Tensor]) -> RRNConfig | None:
    """The configuration of the tensors of an authors' file; None if it is not RRN."""
    first = tensors.get("neuro.conv_1.weight")
    if first is None:
        return None
    return RRNConfig(
        channels=first.shape[0],
        blocks=count_matching(tensors, r"neuro\.recon_trunk\.\d+\.conv1\.weight"),
    )
