"""Captions, frames and grids of pictures, drawn with Pillow and its built-in font.

Pictures are float tensors (3, H, W), RGB in [0, 1].
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

FONT_SIZE = 16  # pixels
SMALLEST_FONT = 9
LINE_HEIGHT = 20  # pixels from one line of text to the next
MARGIN = 4  # pixels between a picture and its caption
GAP = 8  # pixels between the cells of a grid


def add_caption(picture: Tensor, *lines: str) -> Tensor:
    """Return the picture with centred black lines of text on white below it.

    The font shrinks until the longest line fits the picture; if it does not fit in the smallest
    font either, the result is wider than the picture.

    Args:
        picture: (3, H, W).
        lines: text, one argument for each line; an empty one leaves its line blank.
    """
    width = picture.shape[-1]
    font = _fitting_font(lines, width)
    wide = max([width, *(round(font.getlength(line) + 0.5) for line in lines)])
    strip = Image.new("L", (wide, 2 * MARGIN + LINE_HEIGHT * len(lines)), 255)
    draw = ImageDraw.Draw(strip)
    for number, line in enumerate(lines):
        middle = MARGIN + LINE_HEIGHT * number + LINE_HEIGHT // 2
        draw.text((wide / 2, middle), line, fill=0, font=font, anchor="mm")
    text = torch.from_numpy(np.array(strip)).float() / 255
    left = (wide - width) // 2
    padded = F.pad(picture.float(), (left, wide - width - left, 0, 0), value=1.0)
    return torch.cat([padded, text.expand(3, -1, -1)], 1)


def draw_box(
    picture: Tensor,
    box: tuple[int, int, int, int],
    colour: tuple[float, float, float],
    *,
    line: int | None = None,
) -> Tensor:
    """Return a copy with a line around a rectangle; the inside is unchanged.

    Args:
        picture: (3, H, W).
        box: x, y, width and height in pixels; may reach beyond the picture.
        colour: RGB in [0, 1].
        line: width of the line in pixels; by default 1/160 of the picture's width, at least 1.
    """
    x, y, width, height = box
    line = line or max(1, picture.shape[-1] // 160)
    framed = picture.float().clone()
    outer = (slice(max(y - line, 0), y + height + line), slice(max(x - line, 0), x + width + line))
    inner = (slice(max(y, 0), y + height), slice(max(x, 0), x + width))
    framed[:, *outer] = torch.tensor(colour)[:, None, None]
    framed[:, *inner] = picture[:, *inner].float()
    return framed


def enlarge(picture: Tensor, factor: int) -> Tensor:
    """Repeat every pixel of (3, H, W) `factor` times in both directions."""
    return picture.repeat_interleave(factor, -1).repeat_interleave(factor, -2)


def arrange(rows: Sequence[Sequence[Tensor]]) -> Tensor:
    """Join pictures to a grid on white: (3, H, W).

    Each column is as wide as its widest picture, and pictures are centred in their column. Every
    row must have the same number of pictures.
    """
    widths = [max(cell.shape[2] for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        height = max(cell.shape[1] for cell in row)
        cells = [_padded(cell, height, width) for cell, width in zip(row, widths, strict=True)]
        lines.append(torch.cat(cells, 2))
    return torch.cat(lines, 1)


def _padded(cell: Tensor, height: int, width: int) -> Tensor:
    """Centre a picture in its column; the gap is at the right and below."""
    left = (width - cell.shape[2]) // 2
    right = width - cell.shape[2] - left + GAP
    return F.pad(cell.float(), (left, right, 0, height - cell.shape[1] + GAP), value=1.0)


def _fitting_font(lines: Sequence[str], width: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Return the largest font in which every line is at most `width` pixels long."""
    for size in range(FONT_SIZE, SMALLEST_FONT, -1):
        font = _font(size)
        if all(font.getlength(line) <= width for line in lines):
            return font
    return _font(SMALLEST_FONT)


@lru_cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size=size)
