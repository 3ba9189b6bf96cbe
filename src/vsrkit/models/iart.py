"""IART (Xu et al., 2024): PSRT with resampling by attention, which interpolates implicitly."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import pi

import torch
from torch import Tensor, nn

from vsrkit.models import psrt
from vsrkit.models.layers.blocks import at_least_float32

TAPS = ((0, 0), (0, 1), (1, 0), (1, 1))  # row and column, from the pixel above and to the left
TEMPERATURE = 0.01  # below 1: angles grow from 1 to about 100 times the position
# Positions of taps are in units of one cell, those of queries of two: the weights expect it.
TAP_CELLS, QUERY_CELLS = 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class IARTConfig(psrt.PSRTConfig):
    """As PSRT; the first of `window_heads` is also the number of heads of the resampling."""

    def __post_init__(self) -> None:
        psrt.PSRTConfig.__post_init__(self)
        if self.channels % 4:
            raise ValueError(f"channels must be a multiple of 4, got {self.channels}")


class IART(psrt.PSRT):
    """PSRT's branches, with features aligned by `ImplicitWarp`."""

    def __init__(self, config: IARTConfig) -> None:
        super().__init__(config)
        self.spynet.requires_grad_(True)  # the resampling passes gradients to the flow
        self.implicit_warp = ImplicitWarp(config.channels, config.window_heads[0])

    def align(self, features: Tensor, flow: Tensor, current: Tensor) -> Tensor:
        """Bring features (B, C, H, W) of another frame to this one, guided by `current`."""
        done: Tensor = self.implicit_warp(features, flow, current)
        return done


class ImplicitWarp(nn.Module):
    """Attention of each pixel to the four pixels around the place that its flow leads to."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        if channels % heads:
            raise ValueError(f"{channels} channels cannot be divided among {heads} heads")
        self.heads = heads
        self.q = nn.Linear(channels, channels)
        self.k = nn.Linear(channels, channels)
        self.v = nn.Linear(channels, channels)

    def forward(self, features: Tensor, flow: Tensor, current: Tensor) -> Tensor:
        """(B, C, H, W), (B, 2, H, W) in pixels, (B, C, H, W) -> (B, C, H, W).

        Keys and values are computed once per pixel of `features`. The position code of a tap,
        which is the same at all pixels, goes through the linear layers alone.
        """
        b, c, h, w = features.shape
        rows, columns, fraction = _cells(flow)
        tokens = features.permute(0, 2, 3, 1).reshape(-1, c)
        code = position_code(torch.tensor(TAPS, device=flow.device), TAP_CELLS, c).to(tokens)
        keys, values = self.k(tokens), self.v(tokens)
        key_codes = code @ self.k.weight.T.to(code)
        value_codes = code @ self.v.weight.T.to(code)
        q = self.q(
            current.permute(0, 2, 3, 1) + position_code(fraction, QUERY_CELLS, c).to(current)
        )
        q = q.reshape(-1, self.heads, c // self.heads) * (c // self.heads) ** -0.5
        picture = torch.arange(b, device=flow.device).view(b, 1, 1) * (h * w)

        def near(x: Tensor, tap: int, codes: Tensor) -> Tensor:
            """The tokens at a tap of every pixel: (B * H * W, heads, C / heads)."""
            row = (rows + TAPS[tap][0]).clamp(0, h - 1)
            column = (columns + TAPS[tap][1]).clamp(0, w - 1)
            places = (picture + row * w + column).flatten()
            return (x.index_select(0, places) + codes[tap].to(x)).unflatten(1, (self.heads, -1))

        # One tap at a time: four times the features would not fit with large frames.
        similar = [(q * near(keys, tap, key_codes)).sum(-1) for tap in range(len(TAPS))]
        weights = torch.stack(similar).softmax(0).to(values.dtype)
        mixed = weights[0, ..., None] * near(values, 0, value_codes)
        for tap in range(1, len(TAPS)):
            mixed = mixed + weights[tap, ..., None] * near(values, tap, value_codes)
        return mixed.reshape(b, h, w, c).permute(0, 3, 1, 2)


def _cells(flow: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where a flow leads to: row and column of the pixel above and to the left, and the rest.

    flow: (B, 2, H, W). Returns two tensors (B, H, W) of whole numbers, and (B, H, W, 2) in [0, 1),
    row first. Positions far outside of the frame are only moved closer to it.
    """
    h, w = flow.shape[-2:]
    u, v = at_least_float32(flow).nan_to_num().unbind(1)
    y = torch.arange(h, device=flow.device)[:, None] + v
    x = torch.arange(w, device=flow.device) + u
    top, left = y.detach().floor(), x.detach().floor()
    fraction = torch.stack([y - top, x - left], -1)
    return top.clamp(-2, h).long(), left.clamp(-2, w).long(), fraction


def position_code(places: Tensor, cells: int, channels: int) -> Tensor:
    """Sines and cosines of (..., 2), row and column: -> (..., channels), half for each.

    cells: pixels in which the slowest sine completes a period
    """
    turns = places / (cells + 1e-6) * (2 * pi)
    angles = turns[..., None] / _wavelengths(channels // 2).to(turns)
    even = torch.arange(channels // 2, device=places.device) % 2 == 0
    return torch.where(even, angles.sin(), angles.cos()).flatten(-2)


@cache
@torch.inference_mode(False)  # training may use it later
def _wavelengths(count: int) -> Tensor:
    pairs = torch.arange(count, device="cpu") // 2
    return TEMPERATURE ** (2 * pairs / count)


# Public weight files.


def public_name(name: str) -> str:
    """The name of a vsrkit tensor in the authors' files."""
    return re.sub(r"^patch_align\.", "swin_backbone.", psrt.public_name(name))


def translate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Drop constants: the index into the table of distances, and the taps and their codes."""
    constant = ("implicit_warp.position_bias", "implicit_warp.window_idx_offset")
    return {n: v for n, v in psrt.translate(tensors).items() if n not in constant}


def detect(tensors: Mapping[str, Tensor]) -> psrt.PSRTConfig | None:
    """The configuration of the tensors of an authors' file; None if it is not IART."""
    return psrt.detect_branches(tensors, "swin_backbone", IARTConfig)
