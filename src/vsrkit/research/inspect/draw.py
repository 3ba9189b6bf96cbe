"""Pictures of flow, attention weights, features and differences: float RGB (3, H, W)."""

from collections.abc import Sequence
from math import log2

import torch
from torch import Tensor

from vsrkit.evaluate.captions import add_caption, arrange, draw_box, enlarge

CELL = 256  # pixels: the usual width of a picture in a grid
MARK = (0.0, 1.0, 0.3)  # of the chosen patch: a green that is rare in pictures
# From zero to the largest value: black, violet, red, orange, pale yellow.
HEAT = torch.tensor(
    [[0.0, 0.0, 0.02], [0.34, 0.06, 0.43], [0.74, 0.21, 0.33], [0.98, 0.56, 0.04], [1.0, 1.0, 0.7]]
)


def flow_colours(flow: Tensor, most: float) -> Tensor:
    """Direction as hue, speed as saturation, white for no motion: (2, H, W) -> (3, H, W).

    flow: in pixels.
    most: the speed in pixels that is shown in full colour.
    """
    hue = torch.atan2(flow[1], flow[0]) / (2 * torch.pi)  # 0 is right, 1/4 down
    speed = (flow.norm(dim=0) / most).clamp(max=1)
    pure = torch.stack([(6 * hue + shift) % 6 - 3 for shift in (0, 4, 2)]).abs() - 1
    return 1 - speed * (1 - pure.clamp(0, 1))


def flow_wheel(most: float, side: int = 192) -> Tensor:
    """The legend of `flow_colours`: a wheel whose edge is the speed `most`, in pixels."""
    place = torch.linspace(-1, 1, side)
    flow = torch.stack([place.expand(side, side), place[:, None].expand(side, side)])
    inside = flow.norm(dim=0) <= 1
    wheel = torch.where(inside, flow_colours(flow, 1.0), torch.ones(()))
    ring = (flow.norm(dim=0) - 0.985).abs() < 0.015
    wheel = torch.where(ring, torch.full_like(wheel, 0.6), wheel)
    return add_caption(wheel, f"edge: {most:.2g} px")


def top_speed(flows: Sequence[Tensor]) -> float:
    """The 99th percentile of the speeds of all flows (2, H, W), at least 0.1 pixels."""
    speeds = torch.cat([flow.norm(dim=0).flatten() for flow in flows])
    return max(quantile(speeds, 0.99), 0.1)


def quantile(values: Tensor, share: float) -> float:
    """The value that this share of all values is below, estimated from about a million of them."""
    flat = values.flatten()
    return float(flat[:: max(1, len(flat) // 1_000_000)].quantile(share))


def heat(values: Tensor, most: float | None = None) -> Tensor:
    """Values from 0 to `most` (by default the largest) as colours: (H, W) -> (3, H, W)."""
    top = float(values.max()) if most is None else most
    place = (values / max(top, 1e-12)).clamp(0, 1) * (len(HEAT) - 1)
    low = place.floor().clamp(max=len(HEAT) - 2).long()
    share = (place - low)[..., None]
    return (HEAT[low] * (1 - share) + HEAT[low + 1] * share).movedim(-1, 0)


def overlay(frame: Tensor, values: Tensor, most: float) -> Tensor:
    """Values (H, W) from 0 to `most` as heat on a darkened grey frame: (3, H, W)."""
    grey = frame.mean(0, keepdim=True).expand(3, -1, -1) * 0.6
    strength = (values / max(most, 1e-12)).clamp(0, 1).sqrt() * 0.85
    return grey * (1 - strength) + heat(values.sqrt(), most**0.5) * strength


def feature_colours(features: Sequence[Tensor]) -> list[Tensor]:
    """The three principal components of features (C, H, W) as red, green and blue.

    All of them share the components, so that their colours can be compared.
    """
    pixels = torch.cat([x.double().flatten(1) for x in features], 1)  # (C, N)
    mean = pixels.mean(1, keepdim=True)
    centred = pixels - mean
    _, directions = torch.linalg.eigh(centred @ centred.T / centred.shape[1])
    axes = directions[:, -3:].flip(1)  # the largest variance first
    axes = axes * axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()  # fix the sign
    spread = (axes.T @ centred).std(1, correction=0)[:, None].clamp(min=1e-12)
    pictures = []
    for x in features:
        values = axes.T @ (x.double().flatten(1) - mean) / spread
        picture = (0.5 + values / 5).clamp(0, 1).float().unflatten(1, x.shape[1:])
        missing = 3 - len(picture)
        pictures.append(torch.cat([picture, picture[-1:].expand(missing, -1, -1)]))
    return pictures


def amplified(difference: Tensor) -> tuple[Tensor, int]:
    """A difference around grey, and by how much it was amplified.

    The factor is a power of two up to 64 with which 99.5 % of the values are not clipped.
    """
    most = quantile(difference.abs(), 0.995)
    times = 2 ** max(0, min(6, int(log2(0.5 / most)))) if most > 0 else 1
    return (0.5 + times * difference).clamp(0, 1), times


def marked(picture: Tensor, box: tuple[int, int, int, int]) -> Tensor:
    """A copy with a green line around x, y, width, height."""
    return draw_box(picture, box, MARK)


def grid(cells: Sequence[tuple[str, Tensor]], *, width: int = CELL, columns: int = 4) -> Tensor:
    """Pictures with their captions, `columns` in a row, on white: (3, H, W).

    cells: a caption and a picture (3, h, w) each.
    width: pictures are enlarged by whole factors to about this many pixels.
    columns: pictures in a row.
    """
    drawn = [
        add_caption(enlarge(picture, max(1, round(width / picture.shape[-1]))), caption)
        for caption, picture in cells
    ]
    columns = min(columns, len(drawn))
    drawn += [torch.ones(3, 1, 1)] * (-len(drawn) % columns)
    return arrange([drawn[n : n + columns] for n in range(0, len(drawn), columns)])
