"""Layers of the models in forms that ONNX can express for frames of any size.

The forms that the engine runs are made for speed on a CPU: loops over rows of blocks, sums of
embeddings, matrices for one size. A trace would freeze them at the size it was made with, or hold
operators that no runtime has. Those here give the same results.
"""

import copy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.errors import VsrkitError
from vsrkit.models import frvsr, vespcn
from vsrkit.models.layers import blocks, flow, resample
from vsrkit.models.layers.span_attention import BLOCK, HIDDEN, SpanAttention

RGB_FROM_YCBCR = torch.tensor(vespcn._YCBCR_FROM_RGB, dtype=torch.float64).inverse().tolist()


def exportable(model: nn.Module) -> nn.Module:
    """A copy of a model in evaluation mode whose modules can be exported, without gradients."""
    model = copy.deepcopy(model).eval().requires_grad_(requires_grad=False).to("cpu")
    for name, module in list(model.named_modules()):
        if isinstance(module, SpanAttention):
            model.set_submodule(name, WholeFrameAttention(module))
    return model


@contextmanager
def exportable_functions() -> Iterator[None]:
    """Let the models call the functions of this module inside the block, in all threads."""
    replaced = [
        (module, name, value)
        for key, module in list(sys.modules.items())
        if key.startswith("vsrkit.models")
        for name, value in vars(module).items()
        if isinstance(value, Callable) and value in REPLACEMENTS  # type: ignore[arg-type]
    ]
    original = Tensor.unflatten
    for module, name, value in replaced:
        setattr(module, name, REPLACEMENTS[value])
    Tensor.unflatten = unflatten  # type: ignore[method-assign]
    try:
        yield
    finally:
        Tensor.unflatten = original  # type: ignore[method-assign]
        for module, name, value in replaced:
            setattr(module, name, value)


def warp(
    x: Tensor,
    flow: Tensor,
    *,
    padding: Literal["zeros", "border"] = "zeros",
    mode: Literal["bilinear", "nearest"] = "bilinear",
) -> Tensor:
    """`layers.flow.warp` by GridSample alone; the arguments are the same."""
    h, w = flow.shape[-2:]
    columns = torch.arange(w, dtype=torch.float32)
    rows = torch.arange(h, dtype=torch.float32)[:, None]
    u, v = flow.unbind(1)
    grid = torch.stack([2 * (columns + u) / (w - 1) - 1, 2 * (rows + v) / (h - 1) - 1], -1)
    return F.grid_sample(x, grid, mode=mode, padding_mode=padding, align_corners=True)


def imresize(x: Tensor, scale: Fraction | int) -> Tensor:
    """`layers.resample.imresize` for whole factors, as a convolution and a pixel shuffle."""
    scale = int(scale)
    taps = resample.bicubic_matrix(8, Fraction(scale))[4 * scale : 5 * scale, 2:7].to(x.dtype)
    kernel = torch.einsum("pi,qj->pqij", taps, taps).reshape(scale**2, 1, 5, 5)
    flat = _mirrored(_mirrored(x.reshape(-1, 1, *x.shape[-2:]), -1), -2)
    enlarged = F.pixel_shuffle(F.conv2d(flat, kernel), scale)
    return enlarged.reshape(*x.shape[:-2], scale * x.shape[-2], scale * x.shape[-1])


def _mirrored(x: Tensor, dim: int) -> Tensor:
    """Two more values at either end of an axis, mirrored with the edge itself."""
    last = x.shape[dim] - 1
    ends = (
        [x.narrow(dim, 1, 1), x.narrow(dim, 0, 1)],
        [
            x.narrow(dim, last, 1),
            x.narrow(dim, last - 1, 1),
        ],
    )
    return torch.cat([*ends[0], x, *ends[1]], dim)


def space_to_depth(x: Tensor) -> Tensor:
    """`frvsr.space_to_depth`: (B, 3, 4H, 4W) -> (B, 48, H, W), position before colour."""
    folded = F.pixel_unshuffle(x, 4).unflatten(1, (3, 16))
    return folded.transpose(1, 2).flatten(1, 2)


def box_mean(x: Tensor, size: int) -> Tensor:
    """`layers.flow.box_mean` as one pooling instead of many slices."""
    return F.avg_pool2d(F.pad(x, (size // 2,) * 4, mode="replicate"), size, 1)


def unflatten(x: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """`Tensor.unflatten`, of which the exporter would freeze the other sizes."""
    dim %= x.dim()
    return x.reshape(*x.shape[:dim], *sizes, *x.shape[dim + 1 :])


def ycbcr_to_rgb(frames: Tensor) -> Tensor:
    """`vespcn.ycbcr_to_rgb` with the inverse matrix as a constant."""
    inverse = torch.tensor(RGB_FROM_YCBCR, dtype=frames.dtype)
    offset = torch.tensor(vespcn._YCBCR_OFFSET, dtype=frames.dtype).view(3, 1, 1)
    return torch.einsum("ij,...jhw->...ihw", inverse, frames - offset)


def never_fuse(x: Tensor, weight: Tensor) -> bool:
    """`layers.blocks.can_fuse`: fused operations are oneDNN's own."""
    return False


REPLACEMENTS: dict[Callable[..., Any], Callable[..., Any]] = {
    blocks.can_fuse: never_fuse,
    flow.warp: warp,
    flow.box_mean: box_mean,
    resample.imresize: imresize,
    frvsr.space_to_depth: space_to_depth,
    vespcn.ycbcr_to_rgb: ycbcr_to_rgb,
}


class Projected(NamedTuple):
    """Queries, keys and values of a frame (B, 3c, H, W), and 1 where the frame exists, else 0."""

    qkv: Tensor
    exists: Tensor | None = None  # (1, 1, 1, 1); None: it does


class WholeFrameAttention(nn.Module):
    """`SpanAttention` of all blocks at once instead of one row of them after the other."""

    def __init__(self, attention: SpanAttention) -> None:
        super().__init__()
        if 2 * attention.span > BLOCK:
            raise VsrkitError(f"attention over {attention.span} patches cannot be exported")
        self.attention = attention

    def project(self, x: Tensor) -> Projected:
        """Queries, keys and values of features (B, C, H, W)."""
        return Projected(self.attention.to_qkv(x))

    def forward(self, frame: Projected, near: Mapping[int, Projected]) -> Tensor:
        """Attend from a frame to the frames near it, given by their distance: -> (B, C, H, W)."""
        heads = [self._head(head, frame, near) for head in range(self.attention.heads)]
        return self.attention.out(torch.cat(heads, 1))

    def _head(self, head: int, frame: Projected, near: Mapping[int, Projected]) -> Tensor:
        shift, p = self.attention.shift(head), self.attention.patch
        h, w = frame.qkv.shape[-2:]
        q = self._blocks(self._part(frame, 0, head), shift)  # (B, I, J, BLOCK^2, d)
        k, v = (
            torch.cat([self._spans(self._part(n, i, head), shift) for n in near.values()], 3)
            for i in (1, 2)
        )
        bias = torch.cat([self.attention._bias(head, distance) for distance in near], 1)
        similarity = q * q.shape[-1] ** -0.5 @ k.transpose(-1, -2) + bias
        inside = self._spans(torch.ones_like(frame.qkv[:1, :1]), shift).amax(-1)
        visible = torch.cat(
            [inside if n.exists is None else inside * n.exists for n in near.values()], 3
        )
        similarity = torch.where(visible[:, :, :, None] > 0, similarity, HIDDEN)
        result = similarity.softmax(-1) @ v
        b, i, j = result.shape[:3]
        frame_of_blocks = (
            result.reshape(b, i, j, BLOCK, BLOCK, p, p, -1)
            .permute(0, 7, 1, 3, 5, 2, 4, 6)
            .reshape(b, -1, i * BLOCK * p, j * BLOCK * p)
        )
        return frame_of_blocks[..., shift : shift + h, shift : shift + w]

    def _part(self, frame: Projected, part: int, head: int) -> Tensor:
        """Queries (part 0), keys (1) or values (2) of a head."""
        return frame.qkv.chunk(3, 1)[part].chunk(self.attention.heads, 1)[head]

    def _blocks(self, x: Tensor, shift: int) -> Tensor:
        """(B, c, H, W) -> (B, I, J, BLOCK^2, p * p * c): the patches of every block."""
        tokens, _, _ = self._tokens(x, shift, 0)
        blocks = tokens.unflatten(2, (-1, BLOCK)).unflatten(1, (-1, BLOCK))
        return blocks.transpose(2, 3).flatten(3, 4)

    def _spans(self, x: Tensor, shift: int) -> Tensor:
        """(B, c, H, W) -> (B, I, J, side^2, p * p * c): the patches in reach of every block."""
        side = BLOCK + 2 * self.attention.span
        tokens, i, j = self._tokens(x, shift, self.attention.span)
        rows, columns = (
            (torch.arange(count)[:, None] * BLOCK + torch.arange(side)).flatten()
            for count in (i, j)
        )
        tokens = tokens.index_select(1, rows).index_select(2, columns)
        spans = tokens.unflatten(2, (-1, side)).unflatten(1, (-1, side))
        return spans.transpose(2, 3).flatten(3, 4)

    def _tokens(self, x: Tensor, shift: int, span: int) -> tuple[Tensor, Any, Any]:
        """Patches as (B, rows, columns, p * p * c), and the numbers of rows and columns of blocks.

        `span` more patches are added on every side.
        """
        p, (h, w) = self.attention.patch, x.shape[-2:]
        margin, side = span * p, BLOCK * p
        down, right = (-(size + shift) % side for size in (h, w))
        i, j = (h + shift + down) // side, (w + shift + right) // side
        x = F.pad(x, (shift + margin, right + margin, shift + margin, down + margin))
        x = x.unflatten(3, (-1, p)).unflatten(2, (-1, p))  # (B, c, rows, p, columns, p)
        return x.permute(0, 2, 4, 3, 5, 1).flatten(3), i, j
