"""VSR-Transformer (Cao, Li, Zhang, Van Gool, 2021), in the paper's order.

The paper's text and the authors' release differ in many places. Every difference is a field of
`VSRTConfig`; its defaults are the release, which the published numbers come from, and `PAPER`
follows the text. docs/fidelity.md has the table.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from vsrkit.errors import VsrkitError
from vsrkit.hardware.threads import one_by_one, side_by_side
from vsrkit.models.layers.blocks import (
    Tower,
    TwoStageTail,
    conv3x3,
    joined,
    residual_blocks,
    upsample_bilinear,
)
from vsrkit.models.layers.flow import SPyNet, warp
from vsrkit.models.layers.plain_block import LinearAttention, TokenFeedForward, attention_weights
from vsrkit.models.layers.position import position_release, position_xyt
from vsrkit.models.layers.window_cache import Recall
from vsrkit.models.spec import Spec, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class VSRTConfig:
    """Everything that decides the network; the defaults are the release for REDS."""

    frames: int = 5
    depth: int = 5  # Transformer layers
    channels: int = 64
    extract_blocks: int = 5
    tower_blocks: int = 30  # residual blocks per direction of each feed-forward layer
    reconstruct_blocks: int = 30
    heads: int = 1
    patch: int = 8
    stride: int | None = None  # None: the patch size; less: sliding, overlapping patches
    size: int | None = (
        64  # the only height and width it accepts, one norm weight per element of it;
    )
    # None: any size, one norm weight per channel

    # Where paper and release differ.
    norm: Literal["pre", "post"] = "pre"
    inner_residual: bool = True  # attention also adds its (normalised) input
    value: Literal["dense", "depthwise"] = "dense"
    scaled: bool = True  # divide similarities by the root of the token's length
    position: Literal["release", "release-v5", "xyt", "none"] = "release"
    position_at: Literal["start", "every layer"] = "start"
    fusion: Literal["concat", "sum"] = "concat"  # of the two directions
    slope: float = 0.1  # of every LeakyReLU
    block_slope: float = 0.0  # inside residual blocks; 0 is ReLU
    full_size_conv: bool = True  # a convolution at 4x size before the last one
    last_activation: bool = False  # a LeakyReLU after the last convolution

    # What the paper's ablations take away, and the plain block that it argues against.
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
            recalls=True,
        )
        c, slope, block_slope = config.channels, config.slope, config.block_slope
        self.encoder = Tower(3, c, config.extract_blocks, slope=slope, block_slope=block_slope)
        self.flow = SPyNet() if config.flow and config.feed_forward == "boff" else None
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.depth))
        self.reconstruction = residual_blocks(config.reconstruct_blocks, c, block_slope)
        self.tail = TwoStageTail(c, hidden=c, slope=slope, full_size_conv=config.full_size_conv)

    def forward(
        self, clip: Tensor, keep: slice | None = None, recall: Recall | None = None
    ) -> Tensor:
        """(B, T, 3, H, W) -> (B, T, 3, 4H, 4W), or only the frames in `keep`."""
        self._check(clip)
        b, t = clip.shape[:2]
        everything = slice(0, t)
        start, stop, _ = (keep or everything).indices(t)
        wanted = slice(start, stop)

        if recall is None:
            features = _per_frame(self.encoder, clip)
        else:
            features = torch.stack(recall.each(self.encoder, clip), 1)
        position = self._position(features)
        flows = self._flows(clip, recall)
        for number, layer in enumerate(self.layers):
            if number == 0 or self.config.position_at == "every layer":
                features = features + position
            is_last = number == len(self.layers) - 1
            features = layer(features, clip, flows, wanted if is_last else everything)
        sr = self._reconstruct(features.flatten(0, 1), clip[:, wanted].flatten(0, 1))
        return sr.unflatten(0, (b, stop - start))

    def _flows(self, clip: Tensor, recall: Recall | None) -> tuple[Tensor, Tensor] | None:
        """Flow of every frame to its previous and to its next: (B, T, 2, H, W) twice.

        The outermost frames lack one neighbour and take themselves for it.
        """
        if (network := self.flow) is None:
            return None
        b, t = clip.shape[:2]
        if recall is not None:
            before, after = [0, *range(t - 1)], [*range(1, t), t - 1]
            to_prev = torch.stack(recall.pairs(network, clip, before), 1)
            return to_prev, torch.stack(recall.pairs(network, clip, after), 1)
        frames = clip.flatten(0, 1)
        to_prev, to_next = side_by_side(
            lambda: network(frames, previous(clip).flatten(0, 1)),
            lambda: network(frames, following(clip).flatten(0, 1)),
        )
        return to_prev.unflatten(0, (b, t)), to_next.unflatten(0, (b, t))

    def _position(self, features: Tensor) -> Tensor:
        """The position code for (B, T, C, H, W), broadcastable to it."""
        match self.config.position:
            case "xyt":
                code = position_xyt(*features.shape[1:])
            case "none":
                code = torch.zeros(())
            case layout:
                code = position_release(*features.shape[1:], interleaved=layout == "release-v5")
        return code.to(features)

    def _reconstruct(self, features: Tensor, lr: Tensor) -> Tensor:
        """(N, C, H, W) and (N, 3, H, W) -> (N, 3, 4H, 4W)."""
        detail = one_by_one(self.tail, self.reconstruction(features))
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

        The feed-forward of a frame reads its two neighbours, so attention answers for those too.
        """
        near = slice(max(0, keep.start - 1), min(x.shape[1], keep.stop + 1))
        inner = slice(keep.start - near.start, keep.stop - near.start)
        if flows is not None:
            flows = flows[0][:, near], flows[1][:, near]
        x = self._attend(x, near)
        if self.post:
            out = x[:, inner] + self.feed_forward(x, lr[:, near], flows, inner)
            return _per_frame(self.feed_forward_norm, out)
        z = _per_frame(self.feed_forward_norm, x)
        return x[:, inner] + self.feed_forward(z, lr[:, near], flows, inner)

    def _attend(self, x: Tensor, keep: slice) -> Tensor:
        if self.attention is None or self.attention_norm is None:
            return x[:, keep]
        if self.post:
            return _per_frame(self.attention_norm, x[:, keep] + self.attention(x, keep))
        return x[:, keep] + self.attention(_per_frame(self.attention_norm, x), keep)


def _norm(config: VSRTConfig) -> nn.Module:
    """Mean and variance over channels, rows and columns of each frame."""
    if config.size is None:
        return nn.GroupNorm(1, config.channels)
    return FrameNorm([config.channels, config.size, config.size])


class FrameNorm(nn.LayerNorm):
    """LayerNorm over (C, H, W) that answers in the memory layout it is given.

    PyTorch's own turns channels-last into channels-first, and what follows is slower for it.
    """

    def forward(self, x: Tensor) -> Tensor:  # (N, C, H, W) -> same
        if x.is_contiguous() or not x.is_contiguous(memory_format=torch.channels_last):
            return super().forward(x)
        weight, bias = self.weight.permute(1, 2, 0), self.bias.permute(1, 2, 0)
        y = F.layer_norm(x.permute(0, 2, 3, 1), weight.shape, weight, bias, self.eps)
        return y.permute(0, 3, 1, 2)


def _per_frame(module: nn.Module, x: Tensor) -> Tensor:
    """Apply a module for (N, C, H, W) to (B, T, C, H, W)."""
    return module(x.flatten(0, 1)).unflatten(0, x.shape[:2])


def _attention(config: VSRTConfig) -> nn.Module | None:
    match config.attention:
        case "stcsa":
            return ConvAttention(config)
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


class ConvAttention(nn.Module):
    """Spatial-temporal convolutional self-attention (STCSA): patches of all frames attend to all.

    Queries, keys and values come from convolutions; a token is a patch of C * p * p numbers.
    """

    def __init__(self, config: VSRTConfig) -> None:
        super().__init__()
        self.config = config
        c = config.channels
        self.to_q = nn.Conv2d(c, c, 3, padding=1, groups=c)
        self.to_k = nn.Conv2d(c, c, 3, padding=1, groups=c)
        self.to_v = nn.Conv2d(c, c, 3, padding=1, groups=c if config.value == "depthwise" else 1)
        self.out = conv3x3(c, c)

    def forward(self, x: Tensor, keep: slice) -> Tensor:
        """(B, T, C, H, W) -> the frames in `keep`; keys and values are always all frames."""
        y = self.weights(x, keep) @ self._heads(self.to_v, x)
        y = rearrange(y, "b g n d -> b n (g d)")
        out = _per_frame(self.out, self._frames(y, x[:, keep]))
        return out + x[:, keep] if self.config.inner_residual else out

    def weights(self, x: Tensor, keep: slice) -> Tensor:
        """How much each patch of the frames in `keep` looks at each of all: (B, heads, N, M)."""
        q, k = self._heads(self.to_q, x[:, keep]), self._heads(self.to_k, x)
        return attention_weights(q, k, self.config.scaled)

    def _heads(self, layer: nn.Module, x: Tensor) -> Tensor:
        """A layer's answer, cut into patches: (B, T, C, H, W) -> (B, heads, N, d)."""
        tokens = self._tokens(_per_frame(layer, x))
        return rearrange(tokens, "b n (g d) -> b g n d", g=self.config.heads)

    def _tokens(self, x: Tensor) -> Tensor:
        """(B, T, C, H, W) -> (B, N, C * p * p), patches in reading order, frame after frame."""
        p, stride = self.config.patch, self.config.stride or self.config.patch
        if stride == p:
            return rearrange(x, "b t c (i p) (j q) -> b (t i j) (c p q)", p=p, q=p)
        patches = F.unfold(x.flatten(0, 1), p, stride=stride)
        return rearrange(patches, "(b t) d n -> b (t n) d", b=x.shape[0])

    def _frames(self, tokens: Tensor, like: Tensor) -> Tensor:
        """(B, N, C * p * p) -> the shape of `like`; where patches overlap, their mean."""
        p, stride = self.config.patch, self.config.stride or self.config.patch
        b, t, _, h, w = like.shape
        if stride == p:
            return rearrange(
                tokens, "b (t i j) (c p q) -> b t c (i p) (j q)", t=t, i=h // p, p=p, q=p
            )
        patches = rearrange(tokens, "b (t n) d -> (b t) d n", t=t)
        total = F.fold(patches, (h, w), p, stride=stride)
        share = F.fold(torch.ones_like(patches), (h, w), p, stride=stride)
        return (total / share).unflatten(0, (b, t))


class FlowFeedForward(nn.Module):
    """Bidirectional optical-flow feed-forward (BOFF): one tower per direction, then fusion.

    Each frame's neighbours are warped onto it and joined with its LR frame. All frames are
    independent here (one hop per layer), so they run in parallel. With `feed_forward="towers"`
    the towers see the frame's own features instead of its neighbours'.
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
        if self.config.feed_forward == "towers":
            prev = nxt = x[:, keep].flatten(0, 1)
        else:
            prev = previous(x)[:, keep].flatten(0, 1)
            nxt = following(x)[:, keep].flatten(0, 1)
        if flows is None:
            to_prev = to_next = None
        else:
            to_prev, to_next = (flow[:, keep].flatten(0, 1) for flow in flows)
        frames = lr[:, keep].flatten(0, 1)
        backward, forward = side_by_side(
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
    """For each frame the one before it; the first has itself. (B, T, ...) -> same."""
    return x[:, [0, *range(x.shape[1] - 1)]]  # by numbers: joining slices would change the layout


def following(x: Tensor) -> Tensor:
    """For each frame the one after it; the last has itself. (B, T, ...) -> same."""
    return x[:, [*range(1, x.shape[1]), -1]]
