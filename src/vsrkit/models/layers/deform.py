"""Modulated deformable convolution (Dai et al., 2017; Zhu et al., 2019) in plain PyTorch."""

import math
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
        grid = _positions(offset[:, :, part], top, weight, stride, padding, dilation)
        factors = None if mask is None else mask[:, :, part]
        if rows < height and torch.is_grad_enabled():
            y = checkpoint(_sample_and_mix, x, grid, factors, weight, use_reentrant=False)
        else:
            y = _sample_and_mix(x, grid, factors, weight)
        parts.append(y)
    out = torch.cat(parts, 2)
    return out if bias is None else out + bias.to(out.dtype).view(1, -1, 1, 1)


def _positions(
    offset: Tensor, top: int, weight: Tensor, stride: Pair, padding: Pair, dilation: Pair
) -> Tensor:
    """Positions of the taps in pixels (y, x): (N, 2GK, R, Wo) -> (N, G, K, R, Wo, 2).

    `top` is the number of the first of these R rows.
    """
    kh, kw = weight.shape[-2:]
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
    n, c, h, w = x.shape
    groups, taps, rows, width = positions.shape[1:5]
    with torch.autocast(x.device.type, enabled=False):
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
        read = read.view(n, groups, c // groups, taps, rows * width)
        if mask is not None:
            read = read * mask.to(wide.dtype).reshape(n, groups, 1, taps, rows * width)
    split = c // weight.shape[1]  # groups of the convolution, not of the offsets
    columns = read.to(x.dtype).reshape(n, split, weight.shape[1] * taps, rows * width)
    out = weight.reshape(split, -1, weight.shape[1] * taps).to(x.dtype) @ columns
    return out.reshape(n, -1, rows, width)


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
