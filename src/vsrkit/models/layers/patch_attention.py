"""Attention between patches and position codes: the VSR-Transformer's, and the plain ones."""

import math
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from vsrkit.models.layers.blocks import conv3x3


def attention_weights(q: Tensor, k: Tensor, scaled: bool) -> Tensor:
    """Softmax over keys of the similarity: (..., N, d) and (..., M, d) -> (..., N, M)."""
    scale = q.shape[-1] ** -0.5 if scaled else 1.0
    return (q * scale @ k.transpose(-1, -2)).softmax(-1)


def per_frame(module: nn.Module, x: Tensor) -> Tensor:
    """Apply a module for (N, C, H, W) to (B, T, C, H, W)."""
    return module(x.flatten(0, 1)).unflatten(0, x.shape[:2])


class ConvAttention(nn.Module):
    """Spatial-temporal convolutional self-attention (STCSA): patches of all frames attend to all.

    Queries, keys and values come from convolutions; a token is a patch of C * p * p values.
    """

    def __init__(
        self,
        channels: int,
        *,
        patch: int,
        stride: int | None = None,  # None: the patch size; less: overlapping patches
        heads: int = 1,
        depthwise_value: bool = False,
        scaled: bool = True,
        inner_residual: bool = True,
    ) -> None:
        super().__init__()
        self.patch, self.stride, self.heads = patch, stride or patch, heads
        self.scaled, self.inner_residual = scaled, inner_residual
        c = channels
        self.to_q = nn.Conv2d(c, c, 3, padding=1, groups=c)
        self.to_k = nn.Conv2d(c, c, 3, padding=1, groups=c)
        self.to_v = nn.Conv2d(c, c, 3, padding=1, groups=c if depthwise_value else 1)
        self.out = conv3x3(c, c)

    def forward(self, x: Tensor, keep: slice) -> Tensor:
        """(B, T, C, H, W) -> the frames in `keep`; keys and values are always all frames."""
        y = self.weights(x, keep) @ self._heads(self.to_v, x)
        y = rearrange(y, "b g n d -> b n (g d)")
        out = per_frame(self.out, self._frames(y, x[:, keep]))
        return out + x[:, keep] if self.inner_residual else out

    def weights(self, x: Tensor, keep: slice) -> Tensor:
        """Attention weights of the patches in `keep` over all patches: (B, heads, N, M)."""
        q, k = self._heads(self.to_q, x[:, keep]), self._heads(self.to_k, x)
        return attention_weights(q, k, self.scaled)

    def _heads(self, layer: nn.Module, x: Tensor) -> Tensor:
        """The output of a layer, cut into patches: (B, T, C, H, W) -> (B, heads, N, d)."""
        tokens = self._tokens(per_frame(layer, x))
        return rearrange(tokens, "b n (g d) -> b g n d", g=self.heads)

    def _tokens(self, x: Tensor) -> Tensor:
        """(B, T, C, H, W) -> (B, N, C * p * p), patches in reading order, frame after frame."""
        p, stride = self.patch, self.stride
        if stride == p:
            return rearrange(x, "b t c (i p) (j q) -> b (t i j) (c p q)", p=p, q=p)
        patches = F.unfold(x.flatten(0, 1), p, stride=stride)
        return rearrange(patches, "(b t) d n -> b (t n) d", b=x.shape[0])

    def _frames(self, tokens: Tensor, like: Tensor) -> Tensor:
        """(B, N, C * p * p) -> the shape of `like`; the mean of overlapping patches."""
        p, stride = self.patch, self.stride
        b, t, _, h, w = like.shape
        if stride == p:
            return rearrange(
                tokens, "b (t i j) (c p q) -> b t c (i p) (j q)", t=t, i=h // p, p=p, q=p
            )
        patches = rearrange(tokens, "b (t n) d -> (b t) d n", t=t)
        total = F.fold(patches, (h, w), p, stride=stride)
        share = F.fold(torch.ones_like(patches), (h, w), p, stride=stride)
        return (total / share).unflatten(0, (b, t))


class LinearAttention(nn.Module):
    """The plain Transformer's attention: fully connected projections of each patch."""

    def __init__(
        self, channels: int, *, patch: int, width: int, heads: int = 1, scaled: bool = True
    ) -> None:
        super().__init__()
        self.patch, self.heads, self.scaled = patch, heads, scaled
        token = channels * patch**2
        self.to_q, self.to_k, self.to_v = (
            nn.Linear(token, width * heads, bias=False) for _ in range(3)
        )
        self.out = nn.Linear(width * heads, token, bias=False)

    def forward(self, x: Tensor, keep: slice) -> Tensor:
        """(B, T, C, H, W) -> the frames in `keep`."""
        y = self.weights(x, keep) @ self._heads(self.to_v, x)
        y = rearrange(y, "b g n d -> b n (g d)")
        t, h, p = x[:, keep].shape[1], x.shape[-2], self.patch
        return rearrange(
            self.out(y), "b (t i j) (c p q) -> b t c (i p) (j q)", t=t, i=h // p, p=p, q=p
        )

    def weights(self, x: Tensor, keep: slice) -> Tensor:
        """Attention weights of the patches in `keep` over all patches: (B, heads, N, M)."""
        return attention_weights(
            self._heads(self.to_q, x[:, keep]), self._heads(self.to_k, x), self.scaled
        )

    def _heads(self, layer: nn.Module, x: Tensor) -> Tensor:
        """The output of a layer for each patch: (B, T, C, H, W) -> (B, heads, N, d)."""
        p = self.patch
        tokens = rearrange(x, "b t c (i p) (j q) -> b (t i j) (c p q)", p=p, q=p)
        return rearrange(layer(tokens), "b n (g d) -> b g n d", g=self.heads)


class TokenFeedForward(nn.Module):
    """The plain Transformer's feed-forward: two linear layers on each patch alone."""

    def __init__(self, channels: int, *, patch: int, width: int) -> None:
        super().__init__()
        self.patch = patch
        token = channels * patch**2
        self.inner = nn.Linear(token, width)
        self.outer = nn.Linear(width, token)

    def forward(
        self, x: Tensor, lr: Tensor, flows: tuple[Tensor, Tensor] | None, keep: slice
    ) -> Tensor:
        """(B, T, C, H, W) -> the frames in `keep`; frames and flows are not used."""
        p = self.patch
        tokens = rearrange(x[:, keep], "b t c (i p) (j q) -> b t i j (c p q)", p=p, q=p)
        y = self.outer(F.relu(self.inner(tokens)))
        return rearrange(y, "b t i j (c p q) -> b t c (i p) (j q)", p=p, q=p)


PositionName: TypeAlias = Literal["release", "release-v5", "xyt", "none"]


class PositionCode(nn.Module):
    """The position code for features (B, T, C, H, W), broadcastable to them.

    It is computed on the device of the features and kept until their size, type or device changes.
    """

    def __init__(self, name: PositionName) -> None:
        super().__init__()
        self.name = name
        self._kept: tuple[tuple[object, ...], Tensor] | None = None

    def forward(self, features: Tensor) -> Tensor:
        """(B, T, C, H, W) -> (T, C, H, W), or () for no code."""
        shape = features.shape[1:]
        key = (shape, features.dtype, features.device)
        if self._kept is None or self._kept[0] != key:
            # Not as an inference tensor: training may use it later.
            with torch.inference_mode(False), features.device:
                match self.name:
                    case "xyt":
                        code = position_xyt(*shape)
                    case "none":
                        code = torch.zeros(())
                    case name:
                        code = position_release(*shape, interleaved=name == "release-v5")
            self._kept = (key, code.to(features.dtype))
        return self._kept[1]


def position_xyt(t: int, c: int, h: int, w: int) -> Tensor:
    """Sines and cosines of column, row and frame number, a third of the channels each.

    64 channels are not divisible by three and a third must hold pairs: x and y get 22 channels
    each and t the remaining 20; the frequencies are the paper's, 10000^(-2k / (c / 3)).
    Returns (T, C, H, W).
    """
    third = 2 * math.ceil(c / 6)
    k = torch.arange(third // 2)
    frequency = 10000.0 ** (-2 * k / (c / 3))

    def code(length: int) -> Tensor:  # (third, length)
        angle = torch.arange(length) * frequency[:, None]
        return torch.stack([angle.sin(), angle.cos()], 1).flatten(0, 1)

    x = code(w)[None, :, None, :].expand(t, third, h, w)
    y = code(h)[None, :, :, None].expand(t, third, h, w)
    time = code(t).T[:, :, None, None].expand(t, third, h, w)
    return torch.cat([x, y, time], 1)[:, :c]


def position_release(t: int, c: int, h: int, w: int, *, interleaved: bool) -> Tensor:
    """The position code that the released weights were trained with: (T, C, H, W).

    The release passes (B, T, C, H, W) to a package that expects channels in the place of time. So
    the frame number selects a wave, positions are those of channel, row and column, and there is no
    temporal position. Versions of that package differ in the order of waves (`interleaved` is 5.0.0
    and later), which makes a difference for seven or more frames; the release used 4.0.0.
    """
    waves = 2 * math.ceil(t / 6)  # per axis
    frequency = 10000.0 ** (-2 * torch.arange(waves // 2) / waves)

    def code(length: int) -> Tensor:  # (waves, length)
        angle = torch.arange(length) * frequency[:, None]
        pairs = torch.stack([angle.sin(), angle.cos()], 1 if interleaved else 0)
        return pairs.flatten(0, 1)

    rows = torch.cat(
        [
            code(c)[:, :, None, None].expand(waves, c, h, w),
            code(h)[:, None, :, None].expand(waves, c, h, w),
            code(w)[:, None, None, :].expand(waves, c, h, w),
        ]
    )
    return rows[:t]
