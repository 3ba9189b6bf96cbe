"""The picture that papers show: crops of one frame, a column for each method, ground truth last."""

from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from vsrkit.evaluate.compare import TRUTH, Box, View
from vsrkit.evaluate.lettering import HEIGHT, WIDTH, write_text

CELL = 320  # width of a crop, or less: crops are enlarged by whole factors
GAP = 8


def draw_grid(views: Sequence[View]) -> Tensor:
    """Rows of crops with PSNR below each, and at the left the frame that they are taken from."""
    rows = [_cells(view) for view in views]
    widths = [max(cell.shape[2] for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        height = max(cell.shape[1] for cell in row)
        lines.append(
            torch.cat([_padded(c, height, w) for c, w in zip(row, widths, strict=True)], 2)
        )
    return torch.cat(lines, 1)


def _cells(view: View) -> list[Tensor]:
    factor = max(1, CELL // view.box.width)
    height = view.box.height * factor
    cells = [_captioned(_overview(view, height), [view.clip, f"frame {view.frame}"])]
    for method, picture in view.pictures.items():
        crop = view.box.cut(picture).float().clamp(0, 1)
        crop = crop.repeat_interleave(factor, 1).repeat_interleave(factor, 2)
        score = "" if method == TRUTH else f"{view.psnr(method):.2f} dB"
        cells.append(_captioned(crop, [method, score]))
    return cells


def _overview(view: View, height: int) -> Tensor:
    """The whole ground truth at this height, with a line around the crop."""
    whole = _framed(view.truth, view.box)
    width = round(whole.shape[2] * height / whole.shape[1])
    small = F.interpolate(
        whole[None], size=(height, width), mode="bilinear", antialias=True, align_corners=False
    )
    return small[0].clamp(0, 1)


def _padded(cell: Tensor, height: int, width: int) -> Tensor:
    """On white, with a gap at the right and below; in the middle of a wider column."""
    left = (width - cell.shape[2]) // 2
    right = width - cell.shape[2] - left + GAP
    return F.pad(cell, (left, right, 0, height - cell.shape[1] + GAP), value=1.0)


def _framed(frame: Tensor, box: Box) -> Tensor:
    """A copy with a red line around a part of it."""
    picture = frame.float().clone()
    red, line = torch.tensor([1.0, 0.1, 0.1])[:, None, None], max(2, frame.shape[2] // 160)
    inside = box.cut(picture).clone()
    height, width = frame.shape[-2:]
    top, left = max(box.y - line, 0), max(box.x - line, 0)
    bottom, right = min(box.y + box.height + line, height), min(box.x + box.width + line, width)
    picture[:, top:bottom, left:right] = red
    box.cut(picture).copy_(inside)
    return picture


def _captioned(picture: Tensor, lines: Iterable[str]) -> Tensor:
    """The picture with lines of text below, in the middle where they fit."""
    height, width = picture.shape[-2:]
    canvas = torch.ones(3, height + 2 * (2 * HEIGHT + 4) + 4, width)
    canvas[:, :height] = picture
    for number, line in enumerate(lines):
        size = 2 if len(line) * (WIDTH + 1) * 2 <= width else 1
        length = len(line) * (WIDTH + 1) * size
        y = height + 6 + number * (2 * HEIGHT + 4)
        write_text(canvas, line, x=max((width - length) // 2, 0), y=y, size=size)
    return canvas
