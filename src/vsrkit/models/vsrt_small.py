"""The presets: the VSR-Transformer's two layers, arranged so that each frame passes each one once.

    flow         between neighbours, both directions, once per pair
    backward     b[t] = tower_b(lr[t], warp(b[t+1], flow_to_next[t]))
    forward      f[t] = tower_f(lr[t], warp(f[t-1], flow_to_prev[t]))    BOFF with carried output
    hypotheses   in vsrt-m: of flows nearby and of the last two frames, those that fit count most
    fuse         x[t] = lrelu(W [b[t], f[t]])
    attend       x[t] += STCSA(query x[t]; keys and values x[t-r .. t+r], nearby patches only)
    reconstruct  residual blocks, pixel shuffle x4, plus the enlarged frame

The paper's feed-forward layer warps the input of the neighbours (`propagation="hop"`); the presets
warp their output (`"carried"`), so that one layer sees the whole segment.

All of this runs on a grid of a quarter of the output's size. At scale 4 a pixel of the grid is a
pixel of the frame; at scale 2 (`stack=2`) it is 2x2 pixels in channels, which takes a quarter of
the arithmetic for a frame of the same size. Flow is then found between frames of half the size,
and features are warped at the size of the frame.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from threading import Lock
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.hardware.threads import run_from_both_ends, run_halves
from vsrkit.models.anatomy import Anatomy, Attention, Flow, Stage, Switch, Tap
from vsrkit.models.layers.blocks import (
    Tower,
    TwoStageTail,
    conv3x3,
    joined,
    residual_blocks,
    upsample_bilinear,
)
from vsrkit.models.layers.flow import LightFlow, SPyNet
from vsrkit.models.layers.hypothesis_attention import (
    Aligned,
    attend_to_flows,
    attend_to_frames,
)
from vsrkit.models.layers.resample import enlarge_flow, reduce_to_grid, stack_pixels, warp_stacked
from vsrkit.models.layers.span_attention import SpanAttention, Tokens
from vsrkit.models.spec import Segments, Spec, check_size

SMALLEST_SIDE = 16
Flows: TypeAlias = Sequence[Tensor | None]  # by frame, (B, 2, H, W)


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallConfig:
    """The network of a preset; `SMALL` is `vsrt-s`, `MEDIUM` is `vsrt-m`."""

    channels: int = 64
    stack: int = 1  # pixels of a frame along each side of a pixel of the grid: 1 or 2
    tower_blocks: int = 4  # residual blocks per direction
    # Instead of `tower_blocks`: inner channels of each residual block; 0 leaves a block out.
    backward_widths: tuple[int, ...] = ()
    forward_widths: tuple[int, ...] = ()
    head_blocks: int = 1
    propagation: Literal["carried", "hop", "none"] = "carried"
    flow: Literal["light", "spynet", "none"] = "light"
    flow_channels: int = 48  # of the light flow network
    tail: Literal["direct", "two-stage"] = "direct"
    tail_widths: tuple[int, int] = (0, 64)  # of a two-stage tail: at 2x (0: as at 1x) and 4x size
    flow_hypotheses: bool = False  # attention between the flows of nearby pixels
    frame_hypotheses: bool = False  # attention between the last two frames of a chain
    attention: bool = True
    attention_channels: int = 32
    attention_heads: int = 2
    patch: int = 4
    span: int = 2  # patches in reach of attention in each direction
    reach: int = 1  # frames in reach of attention in each direction
    segment: int = 16
    warmup: int = 4


# Widths that `train.distill.narrow.choose_widths` finds with 36 and 110 times 16 channels for the
# 60 blocks of BasicVSR: the first blocks need few channels, the last ones most. In the small model
# four were then moved to the backward side, one was reduced, and three with little effect removed.
SMALL = SmallConfig(
    backward_widths=(
        0, 16, 0, 16, 16, 16, 0, 0, 16, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 16, 0, 16, 0, 16, 16, 16, 16, 16, 16, 16,
    ),
    forward_widths=(
        0, 16, 16, 0, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0,
        0, 16, 16, 16, 16, 16, 16, 0, 16, 0, 0, 0, 16, 32, 16,
    ),
    flow_channels=24,
    attention_channels=16,
    segment=20,
    warmup=3,
)  # fmt: skip
# The paper's attention has no effect that is worth its time (docs/ablation.md).
SMALL_X2 = replace(SMALL, stack=2, attention=False)
MEDIUM = SmallConfig(
    backward_widths=(
        16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16,
        16, 16, 16, 16, 32, 32, 32, 32, 48, 48, 48, 48, 48, 48, 48,
    ),
    forward_widths=(
        0, 16, 16, 16, 16, 16, 16, 16, 16, 32, 32, 32, 32, 32, 32,
        32, 48, 48, 32, 32, 48, 48, 48, 48, 48, 48, 48, 48, 48, 48,
    ),
    head_blocks=0,
    tail="two-stage",  # a third of BasicVSR's arithmetic; one convolution at LR size is not as good
    tail_widths=(48, 32),
    flow_channels=24,
    flow_hypotheses=True,
    frame_hypotheses=True,
    attention_channels=16,
)  # fmt: skip


class VSRTSmall(nn.Module):
    """Two chains of towers along time, attention between nearby frames, reconstruction."""

    def __init__(self, config: SmallConfig) -> None:
        super().__init__()
        self.config = config
        if config.stack not in (1, 2):
            raise ValueError(f"stack must be 1 (scale 4) or 2 (scale 2), got {config.stack}")
        if config.stack > 1 and config.frame_hypotheses:
            raise ValueError("frame_hypotheses needs stack = 1")
        self.spec = Spec(
            scale=4 // config.stack,
            context=Segments(config.segment, config.warmup),
            minimum=SMALLEST_SIDE * config.stack,
            multiple=config.stack,
        )
        c, colours = config.channels, 3 * config.stack**2
        self.flow = _flow_network(config)
        self.encoder = conv3x3(colours, c) if config.propagation == "hop" else None
        count = config.tower_blocks
        self.backward_tower = Tower(colours + c, c, count, widths=config.backward_widths)
        self.forward_tower = Tower(colours + c, c, count, widths=config.forward_widths)
        self.fusion = nn.Conv2d(2 * c, c, 1)
        self.attention = (
            SpanAttention(
                c,
                config.attention_channels,
                heads=config.attention_heads,
                patch=config.patch,
                span=config.span,
                reach=config.reach,
            )
            if config.attention
            else None
        )
        self.head = residual_blocks(config.head_blocks, c)
        middle, hidden = config.tail_widths
        self.tail = (
            DirectTail(c)
            if config.tail == "direct"
            else TwoStageTail(c, middle=middle, hidden=hidden)
        )

    @property
    def anatomy(self) -> Anatomy:
        """Flow, two chains, fusion, attention, head, tail."""
        has_flow, attends = self.config.flow != "none", self.attention is not None
        words = "Attention adds features of nearby patches of this frame and its neighbours."
        before, after = Tap(module="fusion", slope=0.1), Tap(module="head", side="input")
        stage = Stage("attention", words, before, after)
        switch = Switch("attention", "No patch attends to another.", ("attention",))
        attention = Attention(title="attention", module="attention", kind="span")
        return Anatomy(
            flow=Flow(between=self._flow_between) if has_flow else None,
            attention=(attention,) if attends else (),
            stages=(
                *Stage.chains("backward_tower", "forward_tower", skip=3 * self.config.stack**2),
                Stage.fusion(),
                *((stage,) if attends else ()),
                Stage.residual("head"),
                Stage.tail(),
            ),
            switches=(
                *((switch,) if attends else ()),
                *((Switch.flow("flow"),) if has_flow else ()),
                *Switch.chains(["backward_tower"], ["forward_tower"]),
                Switch.residual("head"),
                Switch.tail(),
            ),
        )

    def _flow_between(self, a: Tensor, b: Tensor) -> Tensor:
        to_prev, _ = self.flows([b, a])
        assert to_prev[1] is not None
        return enlarge_flow(to_prev[1], self.config.stack)

    def forward(self, clip: Tensor, keep: slice | None = None) -> Tensor:
        """(B, T, 3, H, W) -> (B, T, 3, sH, sW), or only the frames in `keep`.

        Every operation runs on one frame at a time, so that a frame's result does not depend on
        `keep`.
        """
        check_size(clip, self.spec)
        frames = list(clip.unbind(1))
        return torch.stack(self.along(frames, *self.flows(frames), keep), 1)

    def along(
        self, frames: list[Tensor], to_prev: Flows, to_next: Flows, keep: slice | None = None
    ) -> list[Tensor]:
        """The frames (B, 3, sH, sW), all or those in `keep`, with the given flows on the grid."""
        wanted = range(len(frames))[keep or slice(None)]
        reach = self.config.reach if self.attention else 0
        first, last = max(0, wanted.start - reach), min(len(frames), wanted.stop + reach) - 1

        down, up = range(len(frames) - 1, first - 1, -1), range(last + 1)
        grid = [stack_pixels(frame, self.config.stack) for frame in frames]
        backward: dict[int, Tensor] = {}
        forward: dict[int, Tensor] = {}
        fused = Fused(self.fuse, backward, forward, range(first, last + 1))
        return run_from_both_ends(
            lambda: backward.update(self.chain(self.backward_tower, grid, to_next, down)),
            lambda: forward.update(self.chain(self.forward_tower, grid, to_prev, up)),
            lambda some: self.reconstruct(frames, fused, some),
            wanted,
            is_ready=lambda t: fused.has_both(range(t - reach, t + reach + 1)),
        )

    def fuse(self, backward: Tensor, forward: Tensor) -> Tensor:
        """Join the features of both chains: (B, C, H, W) twice -> same."""
        return F.leaky_relu(self.fusion(torch.cat([backward, forward], 1)), 0.1)

    def reconstruct(
        self, frames: Sequence[Tensor], fused: Mapping[int, Tensor], wanted: Iterable[int]
    ) -> Iterator[Tensor]:
        """The wanted frames (B, 3, sH, sW), from the fused features of the frames near them."""
        for t, x in self.attend(fused, wanted):
            yield upsample_bilinear(frames[t], self.spec.scale).add_(self.tail(self.head(x)))

    def flows(self, frames: list[Tensor]) -> tuple[Flows, Flows]:
        """Each frame's flow to the previous and to the next frame on the grid, None at the ends."""
        frames = [reduce_to_grid(frame, self.config.stack) for frame in frames]
        if self.training and len(frames) > 1:  # crops are small: all pairs at once
            there, back = self._pair(torch.cat(frames[:-1]), torch.cat(frames[1:]))
            count = len(frames) - 1
            return [None, *back.chunk(count)], [*there.chunk(count), None]
        pairs = run_halves(lambda some: [self._pair(a, b) for a, b in some], [*pairwise(frames)])
        return [None, *(back for _, back in pairs)], [*(there for there, _ in pairs), None]

    def _pair(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """The flows a -> b and b -> a."""
        match self.config.flow:
            case "light":
                to_b, to_a = self.flow(a, b)
            case "spynet":
                to_b, to_a = self.flow(a, b), self.flow(b, a)
            case "none":
                return torch.zeros_like(a[:, :2]), torch.zeros_like(a[:, :2])
        if self.config.flow_hypotheses:
            a, b = (x.mean(1, keepdim=True) for x in (a, b))  # colours would take more time
            return attend_to_flows(a, b, to_b), attend_to_flows(b, a, to_a)
        return to_b, to_a

    def chain(
        self, tower: nn.Module, frames: Sequence[Tensor], flows: Flows, order: Iterable[int]
    ) -> Iterator[tuple[int, Tensor]]:
        """Run a tower along time; each step gets the warped output of the previous step.

        frames: (B, 3 * stack^2, H, W) on the grid
        """
        last: Aligned | None = None
        for t in order:
            frame, flow = frames[t], flows[t]
            grey = frame.mean(1, keepdim=True)
            if last is None or flow is None or self.config.propagation == "none":
                near = frame.new_zeros(frame.shape[0], self.config.channels, *frame.shape[-2:])
            elif self.config.frame_hypotheses:
                near = attend_to_frames(grey, flow, last)
            else:
                near = warp_stacked(last.features, flow, self.config.stack)
            result = tower(joined(frame, near))
            yield t, result
            carried = result if self.encoder is None else F.leaky_relu(self.encoder(frame), 0.1)
            before = last._replace(before=None) if last and self.config.frame_hypotheses else None
            last = Aligned(grey, carried, flow, before)

    def attend(
        self, fused: Mapping[int, Tensor], wanted: Iterable[int]
    ) -> Iterator[tuple[int, Tensor]]:
        """The features of each wanted frame plus the output of attention."""
        if self.attention is None:
            yield from ((t, fused[t]) for t in wanted)
            return
        reach = self.config.reach
        projected: dict[int, Tokens] = {}  # of the frames in reach
        for t in wanted:
            near = [n for n in range(t - reach, t + reach + 1) if n in fused]
            projected = {n: projected.get(n) or self.attention.project(fused[n]) for n in near}
            seen = {n - t: projected[n] for n in near}
            yield t, fused[t] + self.attention(projected[t], seen)


class Fused(Mapping[int, Tensor]):
    """Fused features by frame, computed on first access; the chains' features are then freed."""

    def __init__(
        self,
        fuse: Callable[[Tensor, Tensor], Tensor],
        backward: dict[int, Tensor],
        forward: dict[int, Tensor],
        frames: range,
    ) -> None:
        self.fuse, self.backward, self.forward, self.frames = fuse, backward, forward, frames
        self.done: dict[int, Tensor] = {}
        self.lock = Lock()

    def has_both(self, near: Iterable[int]) -> bool:
        """Whether both chains have finished those of these frames that exist."""
        return all(
            t in self.done or (t in self.backward and t in self.forward)
            for t in near
            if t in self.frames
        )

    def __getitem__(self, t: int) -> Tensor:
        with self.lock:
            if t not in self.done:
                self.done[t] = self.fuse(self.backward.pop(t), self.forward.pop(t))
            return self.done[t]

    def __contains__(self, t: object) -> bool:
        return t in self.frames

    def __iter__(self) -> Iterator[int]:
        return iter(self.frames)

    def __len__(self) -> int:
        return len(self.frames)


def _flow_network(config: SmallConfig) -> nn.Module:
    match config.flow:
        case "light":
            return LightFlow(config.flow_channels)
        case "spynet":
            return SPyNet()
        case "none":
            return nn.Identity()


class DirectTail(nn.Module):
    """One convolution to 48 channels and one pixel shuffle; its initial output is zero."""

    int8_convolutions = ("conv",)

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = conv3x3(channels, 48)
        nn.init.zeros_(self.conv.weight)
        nn.init.zeros_(self.conv.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:  # (N, C, H, W) -> (N, 3, 4H, 4W)
        return F.pixel_shuffle(self.conv(x), 4)
