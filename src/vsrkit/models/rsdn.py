"""RSDN (Isobe et al., 2020): a recurrent network with a structure and a detail stream."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.models.anatomy import Anatomy
from vsrkit.models.layers.blocks import conv3x3, resize, step_through, upsample_bilinear
from vsrkit.models.spec import Carried, Spec, check_size
from vsrkit.models.weights import count_matching


@dataclass(frozen=True, slots=True, kw_only=True)
class RSDNConfig:
    """The defaults are RSDN9-128."""

    channels: int = 128
    blocks: int = 9


class State(NamedTuple):
    """The last frame, its features, and both parts of its result."""

    frame: Tensor  # (B, 3, H, W)
    features: Tensor  # (B, C, H, W)
    detail: Tensor  # (B, 48, H, W), the result with 4x4 pixels in channels
    structure: Tensor  # (B, 48, H, W)


class RSDN(nn.Module):
    """One step per frame, on its structure (a blurred version) and its detail (the rest)."""

    anatomy = Anatomy()  # no flow, no attention, no switches

    def __init__(self, config: RSDNConfig) -> None:
        super().__init__()
        self.config = config
        self.spec = Spec(scale=4, context=Carried(needs_second_frame=True), multiple=2)
        c = config.channels
        self.forget = conv3x3(3, 9)
        self.detail_first, self.structure_first = (conv3x3(6 + c + 48, c) for _ in range(2))
        self.blocks = nn.ModuleList(ExchangeBlock(c) for _ in range(config.blocks))
        self.detail_features, self.structure_features = conv3x3(c, c), conv3x3(c, c)
        self.detail_result, self.structure_result = conv3x3(c, 48), conv3x3(c, 48)
        self.join = conv3x3(96, 48)

    def forward(self, clip: Tensor, keep: slice | None = None) -> Tensor:
        """(B, T, 3, H, W) -> (B, T, 3, 4H, 4W), or only the frames in `keep`."""
        second = clip[:, min(1, clip.shape[1] - 1)]
        return step_through(self.step, clip, keep, self.start(second))

    def start(self, second: Tensor) -> State:
        """The state before the first frame; the second takes the place of the one before it."""
        b, _, h, w = second.shape
        nothing = second.new_zeros(b, self.config.channels + 96, h, w)
        return State(second, *nothing.split([self.config.channels, 48, 48], 1))

    def step(self, frame: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """One frame (B, 3, H, W) -> its result (B, 3, 4H, 4W) and the next state.

        After a pixel shuffle, the state's detail and structure are frames too; the paper also
        trains on those.
        """
        check_size(frame, self.spec)
        state = state or self.start(frame)
        past, now = split_structure(state.frame), split_structure(frame)
        carried = self._fade(state.features, frame)
        detail = torch.cat([past[1], now[1], carried, state.detail], 1)
        structure = torch.cat([past[0], now[0], carried, state.structure], 1)
        detail, structure = (
            _leaky(self.detail_first(detail)),
            _leaky(self.structure_first(structure)),
        )
        for block in self.blocks:
            detail, structure = block(detail, structure)
        features = _leaky(self.detail_features(detail)) + _leaky(self.structure_features(structure))
        after = State(frame, features, self.detail_result(detail), self.structure_result(structure))
        sr = F.pixel_shuffle(self.join(torch.cat([after.detail, after.structure], 1)), 4)
        return sr, after

    def _fade(self, features: Tensor, frame: Tensor) -> Tensor:
        """Scale carried features (B, C, H, W) by a gate, computed with a 3x3 filter per pixel."""
        b, c, h, w = features.shape
        taps = _leaky(self.forget(frame))[:, None]  # (B, 1, 9, H, W)
        around = F.unfold(features, 3, padding=1).view(b, c, 9, h, w)
        return features * (around * taps).sum(2).sigmoid()


class ExchangeBlock(nn.Module):
    """Two residual branches whose sum is added to both streams."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv_d1, self.conv_d2 = conv3x3(channels, channels), conv3x3(channels, channels)
        self.conv_s1, self.conv_s2 = conv3x3(channels, channels), conv3x3(channels, channels)

    def forward(self, detail: Tensor, structure: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, H, W) twice -> same."""
        both = self.conv_d2(F.relu(self.conv_d1(detail)))
        both = both + self.conv_s2(F.relu(self.conv_s1(structure)))
        return detail + both, structure + both


def split_structure(frame: Tensor) -> tuple[Tensor, Tensor]:
    """Structure (half the size and back) and detail (the rest): (B, 3, H, W) twice."""
    h, w = frame.shape[-2:]
    small = resize(frame, (h // 2, w // 2))
    structure = upsample_bilinear(small, 2)
    return structure, frame - structure


def _leaky(x: Tensor) -> Tensor:
    return F.leaky_relu(x, 0.1)


# Public weight files.

_PUBLIC_PARTS = {
    "forget": "forget",
    "detail_first": "conv_d",
    "structure_first": "conv_s",
    "detail_features": "conv_hd",
    "structure_features": "conv_hs",
    "detail_result": "conv_od",
    "structure_result": "conv_os",
}


def public_name(name: str) -> str:
    """The name of a vsrkit tensor in the authors' files."""
    if block := re.match(r"blocks\.(\d+)\.(.+)", name):
        return f"neuro.SD{int(block[1]) + 1}.{block[2]}"
    part, _, rest = name.partition(".")
    return f"conv.{rest}" if part == "join" else f"neuro.{_PUBLIC_PARTS[part]}.{rest}"


def detect(tensors: Mapping[str, Tensor]) -> RSDNConfig | None:
    """The configuration of the tensors of an authors' file; None if it is not RSDN."""
    first = tensors.get("neuro.conv_d.weight")
    if first is None or "neuro.SD1.conv_d1.weight" not in tensors:
        return None
    return RSDNConfig(
        channels=first.shape[0],
        blocks=count_matching(tensors, r"neuro\.SD\d+\.conv_d1\.weight"),
    )
