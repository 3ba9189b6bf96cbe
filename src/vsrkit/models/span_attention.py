"""Spatial-temporal convolutional self-attention over a bounded span: linear in pixels, seamless.

A patch attends to the patches around it, `span` in each direction, in the frames at most `reach`
away. Blocks of patches are multiplied at once for speed, but each patch sees only its own
neighbourhood (the rest is masked), so that the blocks leave no trace. The heads' patch grids are
shifted against each other, so that no line of pixels is a patch border for all of them.
"""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from vsrkit.models.blocks import conv3x3

BLOCK = 8  # patches along the side of a block; decides speed, not the result
HIDDEN = -1e4  # similarity of what may not be seen; finite, so that padding cannot make NaN


class SpanAttention(nn.Module):
    """Queries of one frame, keys and values of the frames around it."""

    outside: Tensor
    place: Tensor

    def __init__(
        self, channels: int, width: int, *, heads: int, patch: int, span: int, reach: int
    ) -> None:
        super().__init__()
        self.patch, self.span, self.reach, self.heads = patch, span, reach, heads
        self.to_qkv = conv3x3(channels, 3 * width)
        self.out = conv3x3(width, channels)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)  # type: ignore[arg-type]
        # What a key's distance in frames, rows and columns (of patches) adds to its similarity:
        # the position code. Distances, because the first frame of a segment means nothing.
        self.distance = nn.Parameter(torch.zeros(heads, 2 * reach + 1, (2 * span + 1) ** 2))
        place, outside = _neighbourhood(span)
        self.register_buffer("place", place, persistent=False)
        self.register_buffer("outside", outside, persistent=False)

    def project(self, x: Tensor) -> Tensor:
        """Queries, keys and values of a frame: (B, C, H, W) -> (B, 3 * width, H, W)."""
        return self.to_qkv(x)

    def forward(self, query: Tensor, near: Mapping[int, Tensor]) -> Tensor:
        """Attend from one projected frame to those `near` it, by their distance in frames.

        query: (B, 3 * width, H, W) of the frame itself; near: -reach .. reach -> the same of
        the others, as far as they exist, itself (0) included. Returns (B, C, H, W).
        """
        qs = query.chunk(3, 1)[0].chunk(self.heads, 1)
        outputs = [self._head(head, q, near) for head, q in enumerate(qs)]
        return self.out(torch.cat(outputs, 1))

    def _head(self, head: int, q: Tensor, near: Mapping[int, Tensor]) -> Tensor:
        """One head, its grid shifted by its share of a patch: -> (B, width / heads, H, W)."""
        h, w = q.shape[-2:]
        shift = head * self.patch // self.heads
        q_blocks = self._blocks(q, shift)  # (B, I, J, BLOCK^2, d)
        keys, values, bias = [], [], []
        for distance, qkv in near.items():
            _, k, v = (part.chunk(self.heads, 1)[head] for part in qkv.chunk(3, 1))
            keys.append(self._grid(k, shift))
            values.append(self._grid(v, shift))
            bias.append(self._bias(head, distance))
        hidden = self._grid(torch.ones_like(q[:1, :1]), shift).amax(-1, keepdim=True) == 0
        rows = [
            self._attend_row(row, q_blocks[:, row], keys, values, torch.cat(bias, 1), hidden)
            for row in range(q_blocks.shape[1])
        ]
        return self._frame(torch.stack(rows, 1), shift, h, w)

    def _attend_row(
        self,
        row: int,
        q: Tensor,
        keys: list[Tensor],
        values: list[Tensor],
        bias: Tensor,
        hidden: Tensor,
    ) -> Tensor:
        """One row of blocks, to bound memory: (B, J, BLOCK^2, d) -> the same."""
        k = torch.cat([self._spans(grid, row) for grid in keys], 2)  # (B, J, frames * side^2, d)
        v = torch.cat([self._spans(grid, row) for grid in values], 2)
        off_frame = self._spans(hidden, row)[..., 0].repeat(1, 1, len(keys))  # (1, J, keys)
        similarity = q * q.shape[-1] ** -0.5 @ k.transpose(-1, -2) + bias.to(q.dtype)
        similarity = similarity.masked_fill(off_frame[:, :, None], HIDDEN)
        return similarity.softmax(-1).to(v.dtype) @ v

    def _grid(self, x: Tensor, shift: int) -> Tensor:
        """Tokens, with `span` more around the blocks: (B, c, H, W) -> (B, I', J', c * p * p)."""
        before = shift + self.span * self.patch
        after = self.span * self.patch
        x = F.pad(x, self._padding(x, shift, before, after))
        return rearrange(x, "b c (i p) (j q) -> b i j (c p q)", p=self.patch, q=self.patch)

    def _blocks(self, x: Tensor, shift: int) -> Tensor:
        """(B, c, H, W) -> (B, I, J, BLOCK^2, c * p * p)."""
        x = F.pad(x, self._padding(x, shift, shift, 0))
        return rearrange(
            x,
            "b c (i m p) (j n q) -> b i j (m n) (c p q)",
            m=BLOCK,
            n=BLOCK,
            p=self.patch,
            q=self.patch,
        )

    def _padding(self, x: Tensor, shift: int, before: int, after: int) -> tuple[int, int, int, int]:
        """Left, right, top, bottom: to whole blocks after the shift, and `after` more."""
        side = BLOCK * self.patch
        down, right = (-(size + shift) % side + after for size in x.shape[-2:])
        return before, right, before, down

    def _spans(self, grid: Tensor, row: int) -> Tensor:
        """What one row of blocks can see: (B, I', J', d) -> (B, J, side^2, d)."""
        side = BLOCK + 2 * self.span
        band = grid[:, row * BLOCK : row * BLOCK + side]
        return rearrange(band.unfold(2, side, BLOCK), "b m j d n -> b j (m n) d")

    def _bias(self, head: int, distance: int) -> Tensor:
        """(BLOCK^2, side^2): what each key's place adds, and HIDDEN outside the neighbourhood."""
        added = self.distance[head, distance + self.reach][self.place]
        return added.masked_fill(self.outside, HIDDEN)

    def _frame(self, blocks: Tensor, shift: int, h: int, w: int) -> Tensor:
        """The inverse of `_blocks`, cut back to the frame."""
        x = rearrange(
            blocks,
            "b i j (m n) (c p q) -> b c (i m p) (j n q)",
            m=BLOCK,
            p=self.patch,
            q=self.patch,
        )
        return x[..., shift : shift + h, shift : shift + w]


def _neighbourhood(span: int) -> tuple[Tensor, Tensor]:
    """For each patch of a block and each it could see: index of their distance, and too far?"""
    side = BLOCK + 2 * span
    query, key = torch.arange(BLOCK), torch.arange(side) - span
    distance = key - query[:, None]  # (BLOCK, side)
    near = distance.clamp(-span, span) + span
    far = distance.abs() > span
    place = near[:, None, :, None] * (2 * span + 1) + near[None, :, None, :]
    outside = far[:, None, :, None] | far[None, :, None, :]
    return place.reshape(BLOCK**2, side**2), outside.reshape(BLOCK**2, side**2)
