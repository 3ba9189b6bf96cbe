"""Spatial-temporal convolutional self-attention over a bounded span, at a cost linear in pixels.

A patch attends to the patches around it, `span` in each direction, in the frames at most `reach`
away. Blocks of patches are multiplied at once for speed; each patch attends only to its own
neighbourhood (the rest is masked), so that block borders do not show. The patch grids of the heads
are shifted against each other, so that no line of pixels is a patch border in all of them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from vsrkit.models.layers.blocks import conv3x3

BLOCK = 5  # patches along the side of a block; affects speed, not the result
HIDDEN = -1e4  # similarity of masked patches; finite, so that padding cannot result in NaN


@dataclass(frozen=True, slots=True)
class Tokens:
    """One frame cut into patches, a list entry per head."""

    queries: list[Tensor]  # (B, I, J, BLOCK^2, d): by block
    keys: list[Tensor]  # (B, I', J', d): the grid of patches, `span` more on every side
    values: list[Tensor]
    hidden: list[Tensor]  # (1, I', J', 1): patches outside of the frame
    size: tuple[int, int]


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
        # The position code: added to the similarity by a key's distance in frames, rows and columns
        # (of patches). Relative, because absolute frame numbers depend on the segment.
        self.distance = nn.Parameter(torch.zeros(heads, 2 * reach + 1, (2 * span + 1) ** 2))
        place, outside = _neighbourhood(span)
        self.register_buffer("place", place, persistent=False)
        self.register_buffer("outside", outside, persistent=False)

    def project(self, x: Tensor) -> Tokens:
        """Queries, keys and values of a frame (B, C, H, W), computed once per frame."""
        q, k, v = (part.chunk(self.heads, 1) for part in self.to_qkv(x).chunk(3, 1))
        shifts = [self.shift(head) for head in range(self.heads)]
        return Tokens(
            queries=[self._blocks(part, shift) for part, shift in zip(q, shifts, strict=True)],
            keys=[self._grid(part, shift) for part, shift in zip(k, shifts, strict=True)],
            values=[self._grid(part, shift) for part, shift in zip(v, shifts, strict=True)],
            hidden=[self._outside_frame(x, shift) for shift in shifts],
            size=(x.shape[-2], x.shape[-1]),
        )

    def forward(self, frame: Tokens, near: Mapping[int, Tokens]) -> Tensor:
        """Attend from a frame to the frames near it: -> (B, C, H, W).

        near: by distance in frames, -reach .. reach where they exist, including the frame (0)
        """
        heads = [self._head(head, frame, near) for head in range(self.heads)]
        return self.out(torch.cat(heads, 1))

    def _head(self, head: int, frame: Tokens, near: Mapping[int, Tokens]) -> Tensor:
        """One head, with its shifted grid: -> (B, width / heads, H, W)."""
        rows, values = [], torch.stack([other.values[head] for other in near.values()], 1)
        for row, weights in enumerate(self.weights(head, frame, near)):
            v = self._spans(values, row)
            rows.append(weights.to(v.dtype) @ v)
        return self._frame(torch.stack(rows, 1), self.shift(head), frame.size)

    def weights(self, head: int, frame: Tokens, near: Mapping[int, Tokens]) -> Iterator[Tensor]:
        """Attention weights of every patch, one row of blocks at a time to save memory.

        (B, J, BLOCK^2, frames * side^2): keys by frame, then in reading order; the keys of a block
        begin `span` patches above and to the left of it.
        """
        bias = torch.cat([self._bias(head, distance) for distance in near], 1)
        keys = torch.stack([other.keys[head] for other in near.values()], 1)
        for row in range(frame.queries[head].shape[1]):
            q = frame.queries[head][:, row]  # (B, J, BLOCK^2, d)
            k = self._spans(keys, row)
            hidden = self._spans(frame.hidden[head][:, None], row)[..., 0].repeat(1, 1, len(near))
            similarity = (q * q.shape[-1] ** -0.5 @ k.transpose(-1, -2)).add_(bias.to(q.dtype))
            yield similarity.masked_fill_(hidden[:, :, None], HIDDEN).softmax(-1)

    def shift(self, head: int) -> int:
        """Pixels by which the grid of a head starts above and to the left of the frame."""
        return head * self.patch // self.heads

    def _grid(self, x: Tensor, shift: int) -> Tensor:
        """Tokens with a margin of `span` patches: (B, c, H, W) -> (B, I', J', p * p * c)."""
        margin = self.span * self.patch
        x = F.pad(x, self._padding(x, shift, shift + margin, margin))
        return rearrange(x, "b c (i p) (j q) -> b i j (p q c)", p=self.patch, q=self.patch)

    def _outside_frame(self, x: Tensor, shift: int) -> Tensor:
        """Patches of the grid of a frame that have no pixel of it: (1, I', J', 1)."""
        margin = self.span * self.patch
        left, right, top, bottom = self._padding(x, shift, shift + margin, margin)

        def outside(before: int, size: int, after: int) -> Tensor:
            starts = torch.arange(0, before + size + after, self.patch, device=x.device)
            return (starts + self.patch <= before) | (starts >= before + size)

        rows, columns = outside(top, x.shape[-2], bottom), outside(left, x.shape[-1], right)
        return (rows[:, None] | columns)[None, ..., None]

    def _blocks(self, x: Tensor, shift: int) -> Tensor:
        """(B, c, H, W) -> (B, I, J, BLOCK^2, p * p * c)."""
        x = F.pad(x, self._padding(x, shift, shift, 0))
        return rearrange(
            x,
            "b c (i m p) (j n q) -> b i j (m n) (p q c)",
            m=BLOCK,
            n=BLOCK,
            p=self.patch,
            q=self.patch,
        )

    def _padding(self, x: Tensor, shift: int, before: int, after: int) -> tuple[int, int, int, int]:
        """Padding left, right, top, bottom: to whole blocks after the shift, plus `after`."""
        side = BLOCK * self.patch
        down, right = (-(size + shift) % side + after for size in x.shape[-2:])
        return before, right, before, down

    def _spans(self, grids: Tensor, row: int) -> Tensor:
        """The tokens in reach of one row of blocks: (B, F, I', J', d) -> (B, J, F * side^2, d)."""
        side = BLOCK + 2 * self.span
        band = grids[:, :, row * BLOCK : row * BLOCK + side]
        return rearrange(band.unfold(3, side, BLOCK), "b f m j d n -> b j (f m n) d")

    def _bias(self, head: int, distance: int) -> Tensor:
        """(BLOCK^2, side^2): the position code of each key, HIDDEN outside of the neighbourhood."""
        added = self.distance[head, distance + self.reach][self.place]
        return added.masked_fill(self.outside, HIDDEN)

    def _frame(self, blocks: Tensor, shift: int, size: tuple[int, int]) -> Tensor:
        """The inverse of `_blocks`, cropped to the frame."""
        x = rearrange(
            blocks,
            "b i j (m n) (p q c) -> b c (i m p) (j n q)",
            m=BLOCK,
            p=self.patch,
            q=self.patch,
        )
        return x[..., shift : shift + size[0], shift : shift + size[1]]


def _neighbourhood(span: int) -> tuple[Tensor, Tensor]:
    """For each query and key of a block: index of their distance, and whether it is too large."""
    side = BLOCK + 2 * span
    query, key = torch.arange(BLOCK), torch.arange(side) - span
    distance = key - query[:, None]  # (BLOCK, side)
    near = distance.clamp(-span, span) + span
    far = distance.abs() > span
    place = near[:, None, :, None] * (2 * span + 1) + near[None, :, None, :]
    outside = far[:, None, :, None] | far[None, :, None, :]
    return place.reshape(BLOCK**2, side**2), outside.reshape(BLOCK**2, side**2)
