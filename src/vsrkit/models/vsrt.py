"""VSR-Transformer (Cao, Li, Zhang, Van Gool, 2021), in the paper's order.

The paper's text and the authors' release differ in many places. Every difference is a field of
`VSRTConfig`; the defaults are those of the release, which the published results come from, and
`PAPER` follows the text. docs/fidelity.md has the table.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.errors import VsrkitError
from vsrkit.hardware.threads import run_parallel, run_per_frame
from vsrkit.models.anatomy import Anatomy, Attention, Flow, Stage, Switch, Tap
from vsrkit.models.layers.blocks import (
    FrameNorm,
    Tower,
    TwoStageTail,
    joined,
    residual_blocks,
    upsample_bilinear,
)
from vsrkit.models.layers.flow import SPyNet, warp
from vsrkit.models.layers.patch_attention import (
    ConvAttention,
    LinearAttention,
    PositionCode,
    PositionName,
    TokenFeedForward,
    per_frame,
)
from vsrkit.models.layers.window_cache import WindowCache
from vsrkit.models.spec import Spec, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class VSRTConfig:
    """The defaults are the release for REDS."""

    frames: int = 5
    depth: int = 5  # Transformer layers
    channels: int = 64
    extract_blocks: int = 5
    tower_blocks: int = 30  # residual blocks per direction of each feed-forward layer
    reconstruct_blocks: int = 30
    heads: int = 1
    patch: int = 8
    stride: int | None = None  # None: the patch size; less: sliding, overlapping patches
    # The only height and width it accepts, with one norm weight per element; None: any size, one
    # norm weight per channel.
    size: int | None = 64

    # Where paper and release differ.
    norm: Literal["pre", "post"] = "pre"
    inner_residual: bool = True  # attention also adds its (normalised) input
    value: Literal["dense", "depthwise"] = "dense"
    scaled: bool = True  # divide similarities by the root of the token's length
    position: PositionName = "release"
    position_at: Literal["start", "every layer"] = "start"
    # printed: a frame's own features, warped by the flows between it and its neighbours.
    flow_rule: Literal["release", "printed"] = "release"
    fusion: Literal["concat", "sum"] = "concat"  # of the two directions
    slope: float = 0.1  # of every LeakyReLU
    block_slope: float = 0.0  # inside residual blocks; 0 is ReLU
    full_size_conv: bool = True  # a convolution at 4x size before the last one
    last_activation: bool = False  # a LeakyReLU after the last convolution

    # The paper's ablations, and the plain Transformer block that it compares with.
    attention: Literal["stcsa", "linear", "none"] = "stcsa"
    feed_forward: Literal["boff", "towers", "token"] = "boff"
    flow: bool = True  # False: neighbours are joined as they are, not warped
    token_width: int = 256  # head size and hidden size of the plain block

    def __post_init__(self) -> None:
        if self.frames < 1 or self.depth < 1:
            raise ValueError(f"frames and depth must be positive, got {self.frames}, {self.depth}")
        if self.heads < 1 or self.channels % self.heads:
            raise ValueError(f"{self.heads} heads do not divide {self.channels} channels")
        if self.stride is not None and (self.stride < 1 or self.patch % self.stride):
            raise ValueError(f"stride must divide the patch size {self.patch}, got {self.stride}")
        if self.size is not None and self.size % self.patch:
            raise ValueError(f"patches of {self.patch} do not divide {self.size} pixels")


REDS = VSRTConfig()
VIMEO = VSRTConfig(frames=7, depth=7)
PAPER = VSRTConfig(
    size=None,
    norm="post",
    inner_residual=False,
    value="depthwise",
    scaled=False,
    position="xyt",
    position_at="every layer",
    slope=0.01,
    full_size_conv=False,
)
PAPER_VIMEO = replace(PAPER, frames=7, depth=7)


class VSRT(nn.Module):
    """Feature extractor, Transformer layers, reconstruction network."""

    def __init__(self, config: VSRTConfig) -> None:
        super().__init__()
        self.config = config
        self.spec = Spec(
            scale=4,
            context=Window(config.frames, "all"),
            tile=config.size,
            multiple=1 if config.size else config.patch,
            uses_window_cache=True,
        )
        c, slope, block_slope = config.channels, config.slope, config.block_slope
        self.encoder = Tower(3, c, config.extract_blocks, slope=slope, block_slope=block_slope)
        self.position = PositionCode(config.position)
        self.flow = SPyNet() if config.flow and config.feed_forward == "boff" else None
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.depth))
        self.reconstruction = residual_blocks(config.reconstruct_blocks, c, block_slope)
        self.tail = TwoStageTail(c, hidden=c, slope=slope, full_size_conv=config.full_size_conv)

    @property
    def anatomy(self) -> Anatomy:
        """Flow, the attention of each layer, and the features between the layers."""
        config = self.config
        names = [f"layers.{n}" for n in range(config.depth)]
        attends = config.attention != "none"
        return Anatomy(
            flow=None if self.flow is None else Flow(between=self.flow),
            attention=tuple(
                Attention(
                    title=f"layer {number}",
                    module=f"{name}.attention",
                    kind="patches",
                    patch=config.patch,
                    stride=(config.attention == "stcsa" and config.stride) or config.patch,
                )
                for number, name in enumerate(names, 1)
                if attends
            ),
            stages=self._stages(names),
            switches=self._switches(names),
        )

    def _stages(self, layers: list[str]) -> tuple[Stage, ...]:
        words = "Convolutions on each frame alone, before the position code is added."
        stages = [Stage("encoder", words, None, Tap(module="encoder"))]
        for number, name in enumerate(layers, 1):
            # The features between attention and feed-forward, before they are normalised.
            module = "feed_forward" if self.config.norm == "post" else "feed_forward_norm"
            middle = Tap(module=f"{name}.{module}", side="input")
            if self.config.attention != "none":
                words = "Attention adds features of the patches of all frames."
                before = Tap(module=name, side="input")
                stages.append(Stage(f"layer {number}, attention", words, before, middle))
            words = (
                "The feed-forward layer adds features of the frame and of its two neighbours, "
                "warped onto it."
            )
            stages.append(Stage(f"layer {number}, feed-forward", words, middle, Tap(module=name)))
        return (*stages, Stage.residual("reconstruction"), Stage.tail())

    def _switches(self, layers: list[str]) -> tuple[Switch, ...]:
        switches: list[Switch] = []
        if self.config.attention != "none":
            words = "No patch attends to another (the paper's w/o STCSA, but without retraining)."
            switches.append(Switch("attention", words, tuple(f"{n}.attention" for n in layers)))
        if self.flow is not None:
            switches.append(Switch.flow("flow"))
        if self.config.feed_forward != "token":
            towers = ([f"{n}.feed_forward.from_{d}" for n in layers] for d in ("next", "prev"))
            switches.extend(Switch.chains(*towers))
        words = "Only attention moves features between frames."
        modules = tuple(f"{name}.feed_forward" for name in layers)
        switches.append(Switch("feed-forward layers", words, modules))
        return (*switches, Switch.residual("reconstruction"), Switch.tail())

    def forward(
        self, clip: Tensor, keep: slice | None = None, cache: WindowCache | None = None
    ) -> Tensor:
        """(B, T, 3, H, W) -> (B, T, 3, 4H, 4W), or only the frames in `keep`."""
        self._check(clip)
        b, t = clip.shape[:2]
        everything = slice(0, t)
        start, stop, _ = (keep or everything).indices(t)
        wanted = slice(start, stop)

        if cache is None:
            features = per_frame(self.encoder, clip)
        else:
            features = torch.stack(cache.map_frames(self.encoder, clip), 1)
        position = self.position(features)
        flows = self._flows(clip, cache)
        for number, layer in enumerate(self.layers):
            if number == 0 or self.config.position_at == "every layer":
                features = features + position
            is_last = number == len(self.layers) - 1
            features = layer(features, clip, flows, wanted if is_last else everything)
        sr = self._reconstruct(features.flatten(0, 1), clip[:, wanted].flatten(0, 1))
        return sr.unflatten(0, (b, stop - start))

    def _flows(self, clip: Tensor, cache: WindowCache | None) -> tuple[Tensor, Tensor] | None:
        """The flows of the forward and of the backward direction: (B, T, 2, H, W) twice.

        They are those of every frame to the previous and to the next one. At the ends of the clip
        the frame itself takes the place of the missing neighbour.
        """
        if (network := self.flow) is None:
            return None
        b, t = clip.shape[:2]
        if cache is not None:
            before, after = [0, *range(t - 1)], [*range(1, t), t - 1]
            to_prev = torch.stack(cache.map_pairs(network, clip, before), 1)
            to_next = torch.stack(cache.map_pairs(network, clip, after), 1)
        else:
            frames = clip.flatten(0, 1)
            flows = run_parallel(
                lambda: network(frames, previous(clip).flatten(0, 1)),
                lambda: network(frames, following(clip).flatten(0, 1)),
            )
            to_prev, to_next = (flow.unflatten(0, (b, t)) for flow in flows)
        if self.config.flow_rule == "release":
            return to_prev, to_next
        # The paper prints s(V[t+1], V[t]) and s(V[t-1], V[t]): the same pairs, one frame shifted.
        forward = torch.cat([to_prev[:, 1:], to_next[:, -1:]], 1)
        return forward, torch.cat([to_prev[:, :1], to_next[:, :-1]], 1)

    def _reconstruct(self, features: Tensor, lr: Tensor) -> Tensor:
        """(N, C, H, W) and (N, 3, H, W) -> (N, 3, 4H, 4W)."""
        detail = run_per_frame(self.tail, self.reconstruction(features))
        if self.config.last_activation:
            detail = F.leaky_relu(detail, self.config.slope)
        return detail + upsample_bilinear(lr, 4)

    def _check(self, clip: Tensor) -> None:
        t, c, h, w = clip.shape[1:]
        side, patch = self.config.size, self.config.patch
        if c != 3 or t != self.config.frames:
            raise VsrkitError(
                f"this VSR-Transformer takes {self.config.frames} RGB frames at once, got {t} "
                f"with {c} channels; upscale_frames cuts such windows"
            )
        if side and (h, w) != (side, side):
            raise VsrkitError(
                f"this VSR-Transformer takes {side}x{side} pixels only, got {h}x{w}; "
                "upscale_frames cuts such tiles"
            )
        if h % patch or w % patch:
            raise VsrkitError(
                f"height and width must be multiples of {patch}, got {h}x{w}; "
                "upscale_frames pads to such sizes"
            )


class Layer(nn.Module):
    """Attention, then feed-forward, each with a skip connection and a normalisation."""

    def __init__(self, config: VSRTConfig) -> None:
        super().__init__()
        self.post = config.norm == "post"
        self.attention = _attention(config)
        self.attention_norm = None if self.attention is None else _norm(config)
        self.feed_forward: nn.Module
        if config.feed_forward == "token":
            self.feed_forward = TokenFeedForward(
                config.channels, patch=config.patch, width=config.token_width
            )
        else:
            self.feed_forward = FlowFeedForward(config)
        self.feed_forward_norm = _norm(config)

    def forward(
        self, x: Tensor, lr: Tensor, flows: tuple[Tensor, Tensor] | None, keep: slice
    ) -> Tensor:
        """Features (B, T, C, H, W) and LR frames -> the frames in `keep`, updated.

        The feed-forward layer reads both neighbours of a frame, so attention includes those.
        """
        near = slice(max(0, keep.start - 1), min(x.shape[1], keep.stop + 1))
        inner = slice(keep.start - near.start, keep.stop - near.start)
        if flows is not None:
            flows = flows[0][:, near], flows[1][:, near]
        x = self._attend(x, near)
        if self.post:
            out = x[:, inner] + self.feed_forward(x, lr[:, near], flows, inner)
            return per_frame(self.feed_forward_norm, out)
        z = per_frame(self.feed_forward_norm, x)
        return x[:, inner] + self.feed_forward(z, lr[:, near], flows, inner)

    def _attend(self, x: Tensor, keep: slice) -> Tensor:
        if self.attention is None or self.attention_norm is None:
            return x[:, keep]
        if self.post:
            return per_frame(self.attention_norm, x[:, keep] + self.attention(x, keep))
        return x[:, keep] + self.attention(per_frame(self.attention_norm, x), keep)


def _norm(config: VSRTConfig) -> nn.Module:
    """Mean and variance over channels, rows and columns of each frame."""
    if config.size is None:
        return nn.GroupNorm(1, config.channels)
    return FrameNorm([config.channels, config.size, config.size])


def _attention(config: VSRTConfig) -> nn.Module | None:
    match config.attention:
        case "stcsa":
            return ConvAttention(
                config.channels,
                patch=config.patch,
                stride=config.stride,
                heads=config.heads,
                depthwise_value=config.value == "depthwise",
                scaled=config.scaled,
                inner_residual=config.inner_residual,
            )
        case "linear":
            return LinearAttention(
                config.channels,
                patch=config.patch,
                width=config.token_width,
                heads=config.heads,
                scaled=config.scaled,
            )
        case "none":
            return None


class FlowFeedForward(nn.Module):
    """Bidirectional optical-flow feed-forward (BOFF): one tower per direction, then fusion.

    Features of the neighbours are warped onto each frame and joined with the LR frame. The frames
    are independent within a layer, so they run as one batch. With `feed_forward="towers"` or
    `flow_rule="printed"` the towers take the frame's own features instead of its neighbours'.
    """

    def __init__(self, config: VSRTConfig) -> None:
        super().__init__()
        self.config = config
        c, slope, block_slope = config.channels, config.slope, config.block_slope
        self.from_next, self.from_prev = (
            Tower(c + 3, c, config.tower_blocks, slope=slope, block_slope=block_slope)
            for _ in range(2)
        )
        self.fusion = nn.Conv2d(2 * c if config.fusion == "concat" else c, c, 1)

    def forward(
        self, x: Tensor, lr: Tensor, flows: tuple[Tensor, Tensor] | None, keep: slice
    ) -> Tensor:
        """(B, T, C, H, W), LR frames and flows of the same frames -> the frames in `keep`."""
        if self.config.feed_forward == "towers" or self.config.flow_rule == "printed":
            prev = nxt = x[:, keep].flatten(0, 1)
        else:
            prev = previous(x)[:, keep].flatten(0, 1)
            nxt = following(x)[:, keep].flatten(0, 1)
        if flows is None:
            to_prev = to_next = None
        else:
            to_prev, to_next = (flow[:, keep].flatten(0, 1) for flow in flows)
        frames = lr[:, keep].flatten(0, 1)
        backward, forward = run_parallel(
            lambda: self._run(self.from_next, frames, nxt, to_next),
            lambda: self._run(self.from_prev, frames, prev, to_prev),
        )
        if self.config.fusion == "concat":
            y = self.fusion(torch.cat([backward, forward], 1))
        else:
            y = self.fusion(backward + forward)
        return F.leaky_relu(y, self.config.slope).unflatten(0, x[:, keep].shape[:2])

    def _run(self, tower: nn.Module, frames: Tensor, near: Tensor, flow: Tensor | None) -> Tensor:
        """One direction: the neighbours' features, warped to the frames, through a tower."""
        return tower(joined(frames, near if flow is None else warp(near, flow)))


def previous(x: Tensor) -> Tensor:
    """The previous frame of each frame, the first for itself: (B, T, ...) -> same."""
    return x[:, [0, *range(x.shape[1] - 1)]]  # `cat` of slices would change the layout


def following(x: Tensor) -> Tensor:
    """The next frame of each frame, the last for itself: (B, T, ...) -> same."""
    return x[:, [*range(1, x.shape[1]), -1]]
