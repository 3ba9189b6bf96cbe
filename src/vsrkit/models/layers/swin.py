"""Swin blocks (Liu et al., 2021) over time and space: attention inside windows that alternate.

"Window" is the paper's word here: a box of frames, rows and columns whose tokens attend to each
other. Tokens are (N, D, H, W, C) with D frames, which is channels-last storage of (N * D, C, H, W).
"""

from collections.abc import Iterator
from functools import cache
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Size: TypeAlias = tuple[int, int, int]  # frames, rows, columns

CHUNK = 2**23  # values of queries, keys and values (or of hidden features) held at once
MASKED = -100.0  # added to the similarity of tokens that are not neighbours in the frame


class WindowAttention(nn.Module):
    """Multi-head attention inside windows, with a learnt term for every distance."""

    def __init__(self, channels: int, heads: int, window: Size) -> None:
        super().__init__()
        if channels % heads:
            raise ValueError(f"{channels} channels cannot be divided among {heads} heads")
        self.heads, self.window = heads, window
        d, h, w = window
        self.bias_table = nn.Parameter(torch.empty((2 * d - 1) * (2 * h - 1) * (2 * w - 1), heads))
        self.qkv = nn.Linear(channels, 3 * channels)
        self.proj = nn.Linear(channels, channels)
        for weight in (self.bias_table, self.qkv.weight, self.proj.weight):
            nn.init.trunc_normal_(weight, std=0.02)
        for bias in (self.qkv.bias, self.proj.bias):
            nn.init.zeros_(bias)

    def forward(self, tokens: Tensor, bias: Tensor) -> Tensor:
        """(M, n, C) in M windows of n tokens; bias: (heads, n, n), from `bias`."""
        q, k, v = self._split(tokens)
        # On a CPU without gradients this does not hold the similarities of all pairs of tokens.
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None].to(q.dtype))
        return self.proj(mixed.transpose(1, 2).flatten(2))

    def weights(self, tokens: Tensor, bias: Tensor) -> Tensor:
        """The attention of every token to every token: (M, n, C) -> (M, heads, n, n)."""
        q, k, _ = self._split(tokens)
        return (q * q.shape[-1] ** -0.5 @ k.transpose(-1, -2) + bias).softmax(-1)

    def _split(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.qkv(tokens).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return q, k, v

    def bias(self, size: Size, shift: tuple[int, int] = (0, 0)) -> Tensor:
        """What is added to the similarities: (heads, n, n).

        size: of the windows, at most `window`
        shift: rows at the bottom and columns at the right of these windows that come from the
            other side of the frame, and must not be mixed with the rest
        """
        table = self.bias_table
        added = table[distance_index(size, self.window).to(table.device)].permute(2, 0, 1)
        apart = wrapped_apart(size, shift)
        return added if apart is None else added + MASKED * apart.to(added)


# Cached tensors are made outside of inference mode, as training may use them later.


@cache
@torch.inference_mode(False)
def distance_index(size: Size, window: Size) -> Tensor:
    """Rows (n, n) of the table of a `window` for pairs of tokens, query first, of a `size`."""
    d, h, w = window
    places = torch.cartesian_prod(*(torch.arange(side, device="cpu") for side in size)).view(-1, 3)
    dd, dh, dw = (places[:, None] - places[None]).unbind(-1)
    return ((dd + d - 1) * (2 * h - 1) + dh + h - 1) * (2 * w - 1) + dw + w - 1


@cache
@torch.inference_mode(False)
def wrapped_apart(size: Size, shift: tuple[int, int]) -> Tensor | None:
    """Pairs of tokens (n, n) that come from different sides of the frame; None without a shift."""
    if not any(shift):
        return None
    _, h, w = size
    rows = torch.arange(h, device="cpu") >= h - shift[0]
    columns = torch.arange(w, device="cpu") >= w - shift[1]
    label = (2 * rows[:, None] + columns.int()).expand(size).flatten()
    return label[:, None] != label[None]


class Mlp(nn.Module):
    """Linear, GELU, Linear on every token."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(channels, hidden)
        self.fc2 = nn.Linear(hidden, channels)
        for layer in (self.fc1, self.fc2):
            nn.init.trunc_normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)

    def forward(self, tokens: Tensor) -> Tensor:  # (..., C) -> same
        return self.fc2(F.gelu(self.fc1(tokens)))


class SwinBlock(nn.Module):
    """Attention in windows, then an MLP, each added to its input.

    window: frames, rows and columns; a side that is not longer than its window is one window
    shifted: whether the windows are shifted by half of their rows and columns
    drop_path: probability of leaving out either part in training
    """

    def __init__(
        self, channels: int, heads: int, window: Size, *, shifted: bool, drop_path: float = 0.0
    ) -> None:
        super().__init__()
        self.window, self.shifted, self.drop_path = window, shifted, drop_path
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.attention = WindowAttention(channels, heads, window)
        self.mlp = Mlp(channels, 2 * channels)

    def forward(self, x: Tensor) -> Tensor:  # (N, D, H, W, C) -> same
        x = x + self._kept(self._attend(self.norm1(x)))
        return x + self._kept(self._mlp_by_parts(self.norm2(x)))

    def _kept(self, change: Tensor) -> Tensor:
        """Stochastic depth: in training, zero for some clips and larger for the others."""
        if not self.training or not self.drop_path:
            return change
        keep = torch.rand(len(change), 1, 1, 1, 1, device=change.device) >= self.drop_path
        return change * keep / (1 - self.drop_path)

    def _mlp_by_parts(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, -2)
        size = max(1, CHUNK // (2 * x.shape[-1]))
        return torch.cat([self.mlp(part) for part in tokens.split(size)]).view(x.shape)

    def _attend(self, x: Tensor) -> Tensor:
        """Zeros fill up the last windows: they take part, as in the authors' code."""
        d, h, w = x.shape[1:4]
        size, shift = self.layout((d, h, w))
        x = F.pad(x, (0, 0, 0, -w % size[2], 0, -h % size[1], 0, -d % size[0]))
        if any(shift):
            x = x.roll((-shift[0], -shift[1]), (2, 3))
        y = torch.cat([self._attend_rows(*rows) for rows in self._window_rows(x, size, shift)], 2)
        if any(shift):
            y = y.roll(shift, (2, 3))
        return y[:, :d, :h, :w]

    def weights(self, x: Tensor, frame: int, row: int, column: int) -> tuple[Tensor, int, int]:
        """The attention of one token of (1, D, H, W, C) to the tokens of its window.

        Returns (heads, D, rows, columns), and the first row and column of the window; its last rows
        and columns may be outside of the frame. Only for blocks that are not shifted.
        """
        assert not self.shifted
        size, _ = self.layout(x.shape[1:4])
        top, left = row // size[1] * size[1], column // size[2] * size[2]
        part = self.norm1(x)[:, :, top : top + size[1], left : left + size[2]]
        missing = (size[1] - part.shape[2], size[2] - part.shape[3])
        tokens = cut_windows(F.pad(part, (0, 0, 0, missing[1], 0, missing[0])), size)
        query = (frame * size[1] + row - top) * size[2] + column - left
        found = self.attention.weights(tokens, self.attention.bias(size))[0, :, query]
        return found.unflatten(1, size), top, left

    def layout(self, frame: Size | torch.Size) -> tuple[Size, tuple[int, int]]:
        """Size of the windows and shift of their rows and columns, for (D, H, W) tokens."""
        d, h, w = (min(side, most) for side, most in zip(frame, self.window, strict=True))
        shift = (
            side // 2 if self.shifted and length > side else 0
            for length, side in zip(frame[1:], (h, w), strict=True)
        )
        return (d, h, w), (next(shift), next(shift))

    def _window_rows(
        self, x: Tensor, size: Size, shift: tuple[int, int]
    ) -> Iterator[tuple[Tensor, Size, tuple[int, int]]]:
        """Some rows of windows at a time, so that memory does not grow with the frame.

        The last row, which the shift fills from the top of the frame, comes alone.
        """
        n, d, h, w, c = x.shape
        step = max(1, CHUNK // (3 * n * d * size[1] * w * c)) * size[1]
        last = h - size[1] if shift[0] else h
        for top in range(0, last, step):
            yield x[:, :, top : min(top + step, last)], size, (0, shift[1])
        if shift[0]:
            yield x[:, :, last:], size, shift

    def _attend_rows(self, x: Tensor, size: Size, shift: tuple[int, int]) -> Tensor:
        """(N, D, R, W, C) -> same; the last column of windows is wrapped around by `shift`."""
        if not shift[1]:
            return self._attend_alike(x, size, shift)
        inner = x.shape[3] - size[2]
        left = self._attend_alike(x[:, :, :, :inner], size, (shift[0], 0))
        return torch.cat([left, self._attend_alike(x[:, :, :, inner:], size, shift)], 3)

    def _attend_alike(self, x: Tensor, size: Size, shift: tuple[int, int]) -> Tensor:
        """Attention in windows (N, D, R, W, C) that are all wrapped in the same way."""
        done: Tensor = self.attention(cut_windows(x, size), self.attention.bias(size, shift))
        return join_windows(done, size, x.shape)


def cut_windows(x: Tensor, size: Size) -> Tensor:
    """(N, D, H, W, C), sides divisible by `size` -> (windows, n, C)."""
    n, d, h, w, c = x.shape
    x = x.view(n, d // size[0], size[0], h // size[1], size[1], w // size[2], size[2], c)
    return x.permute(0, 1, 3, 5, 2, 4, 6, 7).reshape(-1, size[0] * size[1] * size[2], c)


def join_windows(windows: Tensor, size: Size, shape: torch.Size) -> Tensor:
    """The inverse of `cut_windows`, for tokens of this shape."""
    n, d, h, w, c = shape
    x = windows.view(n, d // size[0], h // size[1], w // size[2], *size, c)
    return x.permute(0, 1, 4, 2, 5, 3, 6, 7).reshape(shape)
