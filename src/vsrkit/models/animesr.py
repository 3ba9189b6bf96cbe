"""AnimeSR (Wu et al., 2022): a recurrent network for drawn video, at three sizes.

Each step takes a frame with the one before and the one after it, the last result and features.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.models.anatomy import Anatomy, Switch
from vsrkit.models.layers.blocks import (
    ResidualBlock,
    activated,
    conv3x3,
    residual_blocks,
    step_through,
    upsample_bilinear,
)
from vsrkit.models.spec import Carried, Spec, pad_to
from vsrkit.models.weights import count_matching

MULTIPLE = 4  # frames are padded to multiples of this, for features of a quarter of their size


@dataclass(frozen=True, slots=True, kw_only=True)
class AnimeSRConfig:
    """The defaults are the paper's; v1 and v2 are the same network with other weights."""

    channels: int = 64
    blocks: tuple[int, int, int] = (5, 3, 2)  # at full, half and quarter size, never increasing
    scale: int = 4

    def __post_init__(self) -> None:
        full, half, quarter = self.blocks
        if not full >= half >= quarter >= 1:
            raise ValueError(f"blocks must not increase from size to size, got {self.blocks}")


class State(NamedTuple):
    """The last frame, its features, and its result with sub-pixels in channels; padded sizes."""

    frame: Tensor  # (B, 3, H, W)
    features: Tensor  # (B, C, H, W)
    result: Tensor  # (B, 3 * s * s, H, W)


class AnimeSR(nn.Module):
    """One step per frame, on three frames, the last features and the last result."""

    def __init__(self, config: AnimeSRConfig) -> None:
        super().__init__()
        self.config = config
        self.spec = Spec(scale=config.scale, context=Carried(look_ahead=1))
        c, colours = config.channels, 3 * config.scale**2
        full, half, quarter = config.blocks
        self.full_first = conv3x3(3 * 3 + colours + c, c)
        self.half_first, self.quarter_first = conv3x3(c, c, stride=2), conv3x3(c, c, stride=2)
        self.full_blocks = residual_blocks(full, c)
        self.half_blocks = residual_blocks(half, c)
        self.quarter_blocks = residual_blocks(quarter, c)
        self.fusion = nn.Sequential(
            conv3x3(3 * c, 2 * (c + colours)),
            nn.LeakyReLU(0.1, inplace=True),
            conv3x3(2 * (c + colours), c + colours),
        )

    @property
    def anatomy(self) -> Anatomy:
        """No flow and no attention; the last layers."""
        words = "The network adds no detail: the output is the frame, enlarged bilinearly."
        return Anatomy(switches=(Switch("the whole network", words, ("fusion",)),))

    def forward(self, clip: Tensor, keep: slice | None = None) -> Tensor:
        """(B, T, 3, H, W) -> (B, T, 3, sH, sW), or only the frames in `keep`."""
        return step_through(self.step, clip, keep, None, look_ahead=1)

    def step(
        self, frame: Tensor, state: State | None = None, after: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """One frame (B, 3, H, W) -> its result (B, 3, sH, sW) and the next state.

        after: the next frame; None for the last one of a shot
        """
        s, (height, width) = self.config.scale, frame.shape[-2:]
        frame, after = _padded(frame), _padded(frame if after is None else after)
        state = state or self._start(frame)
        x = torch.cat([state.frame, frame, after, state.result, state.features], 1)
        detail, features = self.fusion(self._three_sizes(x)).split(
            [3 * s * s, self.config.channels], 1
        )
        sr = F.pixel_shuffle(detail, s) + upsample_bilinear(frame, s)
        # The state keeps the size of the padded frame, and the result unclamped.
        state = State(frame, F.leaky_relu(features, 0.1), F.pixel_unshuffle(sr, s))
        return sr[..., : s * height, : s * width], state

    def _start(self, frame: Tensor) -> State:
        """The state before the first frame, which also takes the place of the one before it."""
        b, _, h, w = frame.shape
        c, colours = self.config.channels, 3 * self.config.scale**2
        return State(frame, frame.new_zeros(b, c, h, w), frame.new_zeros(b, colours, h, w))

    def _three_sizes(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) -> features of all sizes at full size (B, 3C, H, W).

        The last blocks of a size run together with those of the smaller sizes, and each takes the
        results of the smaller ones so far.
        """
        full = activated(self.full_first, x, 0.1)
        half = F.leaky_relu(self.half_first(full), 0.1)
        quarter = F.leaky_relu(self.quarter_first(half), 0.1)
        rounds, halves, quarters = self.config.blocks
        halves_run = quarters_run = 0
        for i, block in enumerate(self.full_blocks):
            summed = full
            if halves_run:
                summed = summed + _enlarged(half, 2)
            if quarters_run:
                summed = summed + _enlarged(quarter, 4)
            full = block(summed)
            if i >= rounds - halves:
                below = half + _enlarged(quarter, 2) if quarters_run else half
                half = _block(self.half_blocks, halves_run)(below)
                halves_run += 1
            if i >= rounds - quarters:
                quarter = _block(self.quarter_blocks, quarters_run)(quarter)
                quarters_run += 1
        return torch.cat([full, _enlarged(half, 2), _enlarged(quarter, 4)], 1)


def _block(blocks: nn.Sequential, number: int) -> ResidualBlock:
    block = blocks[number]
    assert isinstance(block, ResidualBlock)
    return block


def _enlarged(x: Tensor, by: int) -> Tensor:
    return F.interpolate(x, scale_factor=by, mode="bilinear", align_corners=False)


def _padded(frame: Tensor) -> Tensor:
    """Repeat the right and bottom edges until both sides are multiples of 4."""
    h, w = frame.shape[-2:]
    return pad_to(frame, h + -h % MULTIPLE, w + -w % MULTIPLE)


# Public weight files.

_PUBLIC_PARTS = {
    "full_first": "conv_s1_first.0",
    "half_first": "conv_s2_first.0",
    "quarter_first": "conv_s4_first.0",
    "full_blocks": "body_s1_first",
    "half_blocks": "body_s2_first",
    "quarter_blocks": "body_s4_first",
    "fusion": "fusion",
}


def public_name(name: str) -> str:
    """The name of a vsrkit tensor in the authors' files."""
    part, _, rest = name.partition(".")
    return f"recurrent_cell.{_PUBLIC_PARTS[part]}.{rest}"


def detect(tensors: Mapping[str, Tensor]) -> AnimeSRConfig | None:
    """The configuration of the tensors of an authors' file; None if it is not AnimeSR."""
    first = tensors.get("recurrent_cell.conv_s1_first.0.weight")
    if first is None:
        return None
    channels, inputs = first.shape[:2]
    full, half, quarter = (
        count_matching(tensors, rf"recurrent_cell\.body_s{size}_first\.\d+\.conv1\.weight")
        for size in (1, 2, 4)
    )
    scale = math.isqrt(max(0, inputs - 9 - channels) // 3)
    return AnimeSRConfig(channels=channels, blocks=(full, half, quarter), scale=scale)
