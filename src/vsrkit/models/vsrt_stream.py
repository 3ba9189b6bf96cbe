"""`vsrt-xs`: one chain of the presets, forward in time, for streams.

    flow         to the previous frame, between frames of half the size
    forward      f[t] = tower(lr[t], warp(lr[t-1], flow_to_prev[t]), warp(f[t-1], flow_to_prev[t]))
    reconstruct  one convolution, pixel shuffle x8, plus the enlarged frame

All of it runs on a grid of half the frame's size, with 2x2 pixels in channels; only warping unfolds
them. The pixels of the last frame are given beside its features, because a network this small is
slow to learn that from features alone. A frame depends on itself and on earlier ones only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.models.anatomy import Anatomy, Flow, Switch
from vsrkit.models.layers.blocks import Tower, conv3x3, joined, step_through, upsample_bilinear
from vsrkit.models.layers.flow import LightFlow, warp
from vsrkit.models.layers.resample import enlarge_flow, reduce_to_grid, stack_pixels, warp_stacked
from vsrkit.models.spec import Carried, Spec, check_size
from vsrkit.models.vsrt_small import SMALLEST_SIDE, Flows

STACK = 2  # pixels of a frame along each side of a pixel of the grid
State: TypeAlias = tuple[Tensor, Tensor]  # the last frame (B, 3, H, W) and its features


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """The network of `vsrt-xs`."""

    channels: int = 64
    blocks: int = 6
    flow_channels: int = 24


class VSRTStream(nn.Module):
    """A tower that gets each frame and its own warped output for the frame before."""

    def __init__(self, config: StreamConfig) -> None:
        super().__init__()
        self.config = config
        self.spec = Spec(
            scale=4, context=Carried(), minimum=SMALLEST_SIDE * STACK, multiple=STACK, light=True
        )
        c, colours = config.channels, 3 * STACK**2
        self.flow = LightFlow(config.flow_channels)
        self.forward_tower = Tower(2 * colours + c, c, config.blocks)
        self.tail = StreamTail(c)

    @property
    def anatomy(self) -> Anatomy:
        """Flow to the previous frame, one chain, the tail."""
        return Anatomy(
            flow=Flow(between=self._flow_between, targets="previous"),
            switches=(Switch.flow("flow"), Switch.tail()),
        )

    def _flow_between(self, frame: Tensor, before: Tensor) -> Tensor:
        a, b = (reduce_to_grid(x, STACK) for x in (frame, before))
        return enlarge_flow(self.flow(a, b)[0], STACK)

    def forward(self, clip: Tensor, keep: slice | None = None) -> Tensor:
        """(B, T, 3, H, W) -> (B, T, 3, 4H, 4W), or only the frames in `keep`."""
        return step_through(self.step, clip, keep, None)

    def step(self, frame: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """One frame (B, 3, H, W) -> its result (B, 3, 4H, 4W) and the next state."""
        check_size(frame, self.spec)
        flow = None
        if state is not None:
            flow, _ = self.flow(*(reduce_to_grid(x, STACK) for x in (frame, state[0])))
        return self.advance(frame, flow, state)

    def advance(
        self, frame: Tensor, flow: Tensor | None, state: State | None
    ) -> tuple[Tensor, State]:
        """The result for a frame (B, 3, H, W), and the next state.

        flow: to the previous frame, (B, 2, H/2, W/2); None at the start of a shot
        state: of the previous frame; None at the start of a shot
        """
        grid = stack_pixels(frame, STACK)
        if flow is None or state is None:
            pixels = grid  # without an earlier frame, as if it were equal
            near = grid.new_zeros(len(grid), self.config.channels, *grid.shape[-2:])
        else:
            last, carried = state
            moved = warp(last, enlarge_flow(flow, STACK), padding="border")
            pixels = stack_pixels(moved, STACK)
            near = warp_stacked(carried, flow, STACK)
        features = self.forward_tower(joined(torch.cat([grid, pixels], 1), near))
        return upsample_bilinear(frame, 4).add_(self.tail(features)), (frame, features)

    def flows(self, frames: Sequence[Tensor]) -> tuple[Flows, Flows]:
        """Each frame's flow to the previous frame on the grid; none to the next."""
        small = [reduce_to_grid(frame, STACK) for frame in frames]
        to_prev = self.flow(torch.cat(small[1:]), torch.cat(small[:-1]))[0]
        return [None, *to_prev.chunk(len(small) - 1)], [None] * len(small)

    def along(self, frames: Sequence[Tensor], to_prev: Flows, to_next: Flows) -> list[Tensor]:
        """The frames (B, 3, 4H, 4W) with the given flows to the previous frames."""
        results, state = [], None
        for frame, flow in zip(frames, to_prev, strict=True):
            sr, state = self.advance(frame, flow, state)
            results.append(sr)
        return results


class StreamTail(nn.Module):
    """One convolution to 192 channels and one pixel shuffle; its initial output is zero."""

    int8_convolutions = ("conv",)

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = conv3x3(channels, 3 * (4 * STACK) ** 2)
        nn.init.zeros_(self.conv.weight)
        nn.init.zeros_(self.conv.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:  # (N, C, H, W) -> (N, 3, 8H, 8W)
        return F.pixel_shuffle(self.conv(x), 4 * STACK)
