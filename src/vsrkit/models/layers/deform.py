"""Modulated deformable convolution (Dai et al., 2017; Zhu et al., 2019) in plain PyTorch.

`deform_attention` reads in the same way, and weighs what it reads by attention.
"""

import math
from collections.abc import Sequence
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vsrkit.models.layers.blocks import at_least_float32, conv3x3

Pair: TypeAlias = tuple[int, int]  # of rows and columns

CHUNK = 2**24  # sampled values held at once: 64 MB in float32


def deform_conv(
    x: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    stride: Pair = (1, 1),
    padding: Pair = (1, 1),
    dilation: Pair = (1, 1),
    chunk: int = CHUNK,
) -> Tensor:
    """A convolution whose taps are moved by `offset` and sample bilinearly.

    x:      (N, C, H, W)
    offset: (N, 2 * G * K, Ho, Wo) in pixels for K = kh * kw taps in reading order and G groups of
            channels that move together: dy of the first tap, dx of the first tap, dy of the second
            ..., then the same for the next group
    mask:   (N, G * K, Ho, Wo), a factor for every tap; None (the 2017 version) for none
    weight: (O, C / groups, kh, kw); bias: (O,)
    chunk:  values to sample at once: rows are processed in groups, and recomputed in the backward
            pass, so that memory stays bounded at any size

    The frame is padded with zeros. Returns (N, O, Ho, Wo) with the dtype of `x`.
    """
    taps = weight.shape[-2] * weight.shape[-1]
    n, c = x.shape[:2]
    height, width = offset.shape[-2:]
    rows = max(1, chunk // (n * c * taps * width))
    parts = []
    for top in range(0, height, rows):
        part = slice(top, min(top + rows, height))
        kernel = (weight.shape[-2], weight.shape[-1])
        grid = _positions(offset[:, :, part], top, kernel, stride, padding, dilation)
        factors = None if mask is None else mask[:, :, part]
        if rows < height and torch.is_grad_enabled():
            y = checkpoint(_sample_and_mix, x, grid, factors, weight, use_reentrant=False)
        else:
            y = _sample_and_mix(x, grid, factors, weight)
        parts.append(y)
    out = torch.cat(parts, 2)
    return out if bias is None else out + bias.to(out.dtype).view(1, -1, 1, 1)


def _positions(
    offset: Tensor, top: int, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> Tensor:
    """Positions of the taps in pixels (y, x): (N, 2GK, R, Wo) -> (N, G, K, R, Wo, 2).

    `top` is the number of the first of these R rows.
    """
    kh, kw = kernel
    rows, width = offset.shape[-2:]

    def steps(count: int, by: int, start: int = 0) -> Tensor:
        return torch.arange(count, device=offset.device, dtype=torch.float32) * by + start

    y = (
        steps(rows, stride[0], top * stride[0] - padding[0])[None, :]
        + steps(kh, dilation[0])[:, None]
    )
    x = steps(width, stride[1], -padding[1])[None, :] + steps(kw, dilation[1])[:, None]
    y = y[:, None, :, None].expand(kh, kw, rows, width).flatten(0, 1)
    x = x[None, :, None, :].expand(kh, kw, rows, width).flatten(0, 1)
    moves = at_least_float32(offset).unflatten(1, (-1, kh * kw, 2))  # (N, G, K, 2, R, Wo)
    return torch.stack([y + moves[:, :, :, 0], x + moves[:, :, :, 1]], -1)


def _sample_and_mix(x: Tensor, positions: Tensor, mask: Tensor | None, weight: Tensor) -> Tensor:
    """Sample `x` at (N, G, K, R, Wo, 2), multiply by (N, GK, R, Wo), convolve: -> (N, O, R, Wo)."""
    n, c = x.shape[:2]
    groups, taps, rows, width = positions.shape[1:5]
    with torch.autocast(x.device.type, enabled=False):
        read = _sample(x, positions)
        if mask is not None:
            read = read * mask.to(read.dtype).reshape(n, groups, 1, taps, rows * width)
    split = c // weight.shape[1]  # groups of the convolution, not of the offsets
    columns = read.to(x.dtype).reshape(n, split, weight.shape[1] * taps, rows * width)
    out = weight.reshape(split, -1, weight.shape[1] * taps).to(x.dtype) @ columns
    return out.reshape(n, -1, rows, width)


def _sample(x: Tensor, positions: Tensor) -> Tensor:
    """Read (N, C, H, W) at (N, G, K, R, Wo, 2): -> (N, G, C / G, K, R * Wo), zeros outside."""
    n, c, h, w = x.shape
    groups, taps, rows, width = positions.shape[1:5]
    # Pixel centres are at (2p + 1) / size - 1; unlike align_corners=True this works for one
    # row or column too.
    y = (2 * positions[..., 0] + 1) / h - 1
    grid = torch.stack([(2 * positions[..., 1] + 1) / w - 1, y], -1)
    wide = at_least_float32(x)
    read = F.grid_sample(
        wide.reshape(n * groups, c // groups, h, w),
        grid.to(wide.dtype).reshape(n * groups, taps * rows, width, 2),
        padding_mode="zeros",
        align_corners=False,
    )
    return read.view(n, groups, c // groups, taps, rows * width)


def deform_attention(
    query: Tensor,
    sources: Sequence[Tensor],
    offsets: Sequence[Tensor],
    heads: int,
    *,
    chunk: int = CHUNK,
) -> Tensor:
    """Attention of every pixel to 3x3 pixels around it in every source, moved by offsets.

    query:   (N, C, H, W)
    sources: (N, 2C, H, W) each, keys and then values
    offsets: (N, 2 * G * 9, H, W) for each source, as for `deform_conv`; the G groups divide the
             keys and values together, so that these are read at different places
    heads:   of C / heads channels
    chunk:   as for `deform_conv`

    Returns (N, C, H, W) with the dtype of `query`.
    """
    n, c, height, width = query.shape
    rows = max(1, chunk // (n * 2 * c * 9 * len(sources) * width))
    parts = []
    for top in range(0, height, rows):
        part = slice(top, min(top + rows, height))
        grids = [_positions(o[:, :, part], top, (3, 3), (1, 1), (1, 1), (1, 1)) for o in offsets]
        inputs = (query[:, :, part], list(sources), grids, heads)
        if rows < height and torch.is_grad_enabled():
            parts.append(checkpoint(_sample_and_attend, *inputs, use_reentrant=False))
        else:
            parts.append(_sample_and_attend(*inputs))
    return torch.cat(parts, 2)


def _sample_and_attend(
    query: Tensor, sources: Sequence[Tensor], grids: Sequence[Tensor], heads: int
) -> Tensor:
    """(N, C, R, W), sources (N, 2C, H, W), positions (N, G, 9, R, W, 2) -> (N, C, R, W)."""
    with torch.autocast(query.device.type, enabled=False):
        read = [
            _sample(x, grid).flatten(1, 2) for x, grid in zip(sources, grids, strict=True)
        ]  # (N, 2C, 9, R * W) each
        keys, values = torch.cat(read, 2).unflatten(1, (2 * heads, -1)).chunk(2, 1)
        q = query.to(keys.dtype).flatten(2).unflatten(1, (heads, -1))
        similar = (q[:, :, :, None] * keys).sum(2) * q.shape[2] ** -0.5  # (N, heads, taps, R * W)
        mixed = (similar.softmax(2)[:, :, None] * values).sum(3)
    return mixed.to(query.dtype).reshape(query.shape)


class DeformPack(nn.Module):
    """A 3x3 deformable convolution with offsets and masks computed from other features."""

    def __init__(self, channels: int, groups: int = 8) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, channels, 3, 3))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.conv_offset = conv3x3(channels, 3 * groups * 9)
        bound = 1 / math.sqrt(channels * 9)
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.zeros_(self.conv_offset.weight)
        nn.init.zeros_(self.conv_offset.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor, features: Tensor) -> Tensor:
        """Sample `x` at offsets computed from `features`: (N, C, H, W) twice -> same."""
        first, second, mask = self.conv_offset(features).chunk(3, 1)
        offset = torch.cat([first, second], 1)
        return deform_conv(x, offset, mask.sigmoid(), self.weight, self.bias)
