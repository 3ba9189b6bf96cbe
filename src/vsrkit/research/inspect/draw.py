"""Pictures of what cannot be seen by itself: flow, weights, features, differences."""

from collections.abc import Sequence
from math import ceil, log2

import torch
import torch.nn.functional as F
from torch import Tensor

from vsrkit.evaluate.lettering import HEIGHT, WIDTH, lettered, write_text

CELL = 256  # pixels: pictures are enlarged by whole factors to about this width
GAP = 8
MARK = (0.0, 1.0, 0.3)  # the chosen patch, in a green that pictures rarely have
# From nothing to most: black, violet, red, orange, pale yellow.
HEAT = torch.tensor(
    [[0.0, 0.0, 0.02], [0.34, 0.06, 0.43], [0.74, 0.21, 0.33], [0.98, 0.56, 0.04], [1.0, 1.0, 0.7]]
)


def flow_colours(flow: Tensor, most: float) -> Tensor:
    """Direction as hue, speed as saturation, white for rest: (2, H, W) -> (3, H, W).

    most: pixels per frame that are shown in full colour.
    """
    hue = torch.atan2(flow[1], flow[0]) / (2 * torch.pi)  # 0 is right, 1/4 down
    speed = (flow.norm(dim=0) / most).clamp(max=1)
    pure = torch.stack([(6 * hue + shift) % 6 - 3 for shift in (0, 4, 2)]).abs() - 1
    return 1 - speed * (1 - pure.clamp(0, 1))


def flow_wheel(most: float, side: int = 192) -> Tensor:
    """The legend of `flow_colours`: from the middle of the wheel, every direction and speed."""
    place = torch.linspace(-1, 1, side)
    flow = torch.stack([place.expand(side, side), place[:, None].expand(side, side)])
    inside = flow.norm(dim=0) <= 1
    wheel = torch.where(inside, flow_colours(flow, 1.0), torch.ones(()))
    ring = (flow.norm(dim=0) - 0.985).abs() < 0.015
    wheel = torch.where(ring, torch.full_like(wheel, 0.6), wheel)
    return captioned(wheel, f"edge: {most:.2g} px")


def fastest(flows: Sequence[Tensor]) -> float:
    """The speed that nearly all pixels stay below; a tenth of a pixel at least."""
    speeds = torch.cat([flow.norm(dim=0).flatten() for flow in flows])
    return max(nearly_most(speeds, 0.99), 0.1)


def nearly_most(values: Tensor, share: float) -> float:
    """What this share of the values stays below; of a million of them, for more are as good."""
    flat = values.flatten()
    return float(flat[:: max(1, len(flat) // 1_000_000)].quantile(share))


def heat(values: Tensor, most: float | None = None) -> Tensor:
    """Values from 0 to `most` as colours: (H, W) -> (3, H, W)."""
    top = float(values.max()) if most is None else most
    place = (values / max(top, 1e-12)).clamp(0, 1) * (len(HEAT) - 1)
    low = place.floor().clamp(max=len(HEAT) - 2).long()
    share = (place - low)[..., None]
    return (HEAT[low] * (1 - share) + HEAT[low + 1] * share).movedim(-1, 0)


def over(frame: Tensor, values: Tensor, most: float) -> Tensor:
    """Values as heat on a grey frame; where there is nothing, the frame alone, darkened."""
    grey = frame.mean(0, keepdim=True).expand(3, -1, -1) * 0.6
    strength = (values / max(most, 1e-12)).clamp(0, 1).sqrt() * 0.85
    return grey * (1 - strength) + heat(values.sqrt(), most**0.5) * strength


def feature_colours(features: Sequence[Tensor]) -> list[Tensor]:
    """The three directions in which features vary most, as red, green and blue.

    Several (C, H, W) with the same channels share their colours, so that they can be compared.
    """
    pixels = torch.cat([x.double().flatten(1) for x in features], 1)  # (C, N)
    mean = pixels.mean(1, keepdim=True)
    centred = pixels - mean
    _, directions = torch.linalg.eigh(centred @ centred.T / centred.shape[1])
    axes = directions[:, -3:].flip(1)  # the strongest first
    axes = axes * axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()  # not left to chance
    spread = (axes.T @ centred).std(1, correction=0)[:, None].clamp(min=1e-12)
    pictures = []
    for x in features:
        values = axes.T @ (x.double().flatten(1) - mean) / spread
        picture = (0.5 + values / 5).clamp(0, 1).float().unflatten(1, x.shape[1:])
        missing = 3 - len(picture)
        pictures.append(torch.cat([picture, picture[-1:].expand(missing, -1, -1)]))
    return pictures


def amplified(difference: Tensor) -> tuple[Tensor, int]:
    """A difference around grey, as many times as lets nearly all of it be seen, up to 64."""
    most = nearly_most(difference.abs(), 0.995)
    times = 2 ** max(0, min(6, int(log2(0.5 / most)))) if most > 0 else 1
    return (0.5 + times * difference).clamp(0, 1), times


def marked(picture: Tensor, box: tuple[int, int, int, int]) -> Tensor:
    """A copy with a line around x, y, width, height."""
    x, y, width, height = box
    out, colour = picture.clone(), torch.tensor(MARK)[:, None, None]
    h, w = picture.shape[-2:]
    line = max(1, w // 160)
    left, top = max(x - line, 0), max(y - line, 0)
    right, bottom = min(x + width + line, w), min(y + height + line, h)
    inside = picture[:, max(y, 0) : y + height, max(x, 0) : x + width]
    out[:, top:bottom, left:right] = colour
    out[:, max(y, 0) : y + height, max(x, 0) : x + width] = inside
    return out


def enlarged(picture: Tensor, width: int = CELL) -> Tensor:
    """By a whole factor, each pixel a square, to about this width."""
    factor = max(1, round(width / picture.shape[-1]))
    return picture.repeat_interleave(factor, -1).repeat_interleave(factor, -2)


def captioned(picture: Tensor, caption: str) -> Tensor:
    """A picture with a line of text below it, smaller if it would not fit."""
    height, width = picture.shape[-2:]
    size = 2 if len(caption) * (WIDTH + 1) * 2 <= width else 1
    length = lettered(caption, size=size).shape[1]
    canvas = torch.ones(3, height + 2 * HEIGHT + 10, max(width, length))
    canvas[:, :height, :width] = picture
    write_text(canvas, caption, x=max((width - length) // 2, 0), y=height + 6, size=size)
    return canvas


def strip(cells: Sequence[tuple[str, Tensor]], *, width: int = CELL, columns: int = 4) -> Tensor:
    """Pictures with their captions, side by side, `columns` in a row."""
    drawn = [captioned(enlarged(picture, width), caption) for caption, picture in cells]
    high = max(cell.shape[1] for cell in drawn)
    wide = max(cell.shape[2] for cell in drawn)
    drawn = [
        F.pad(c, (0, wide - c.shape[2] + GAP, 0, high - c.shape[1] + GAP), value=1.0) for c in drawn
    ]
    columns = min(columns, len(drawn))
    blank = torch.ones_like(drawn[0])
    drawn += [blank] * (ceil(len(drawn) / columns) * columns - len(drawn))
    rows = [torch.cat(drawn[n : n + columns], 2) for n in range(0, len(drawn), columns)]
    return torch.cat(rows, 1)
