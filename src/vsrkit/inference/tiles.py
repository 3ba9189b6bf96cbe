"""Cut frames into overlapping tiles, run a model on each, and blend the results without a seam."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vsrkit.hardware.memory import Rows


@dataclass(frozen=True, slots=True)
class Span:
    """Position of a tile along one axis, and how far it blends with its neighbours."""

    start: int
    stop: int
    fade_in: int  # pixels shared with the tile before
    fade_out: int  # pixels shared with the tile after

    def place(self, scale: int) -> slice:
        """Position of its result in the upscaled frame."""
        return slice(self.start * scale, self.stop * scale)

    def weights(self, scale: int) -> Tensor:
        """Blending weights (s * size,); they sum to one where at most half a tile is shared."""
        weights = torch.ones((self.stop - self.start) * scale)
        if self.fade_in:
            weights[: self.fade_in * scale] = _ramp(self.fade_in * scale)
        if self.fade_out:
            weights[-self.fade_out * scale :] *= _ramp(self.fade_out * scale).flip(0)
        return weights


def _ramp(length: int) -> Tensor:
    return (torch.arange(length) + 0.5) / length


def overlap_of(tile: int) -> int:
    """Pixels that neighbouring tiles of this side share: a quarter, at most 32."""
    return min(32, tile // 4)


def plan_spans(length: int, size: int, overlap: int) -> list[Span]:
    """Plan tiles of exactly `size` that cover [0, length) evenly and share at least `overlap`."""
    if length < size:
        raise ValueError(f"cannot cut {size}-pixel tiles from {length} pixels; pad the frame first")
    if not 0 <= overlap <= size // 2:
        raise ValueError(f"tiles of {size} pixels can overlap by 0 to {size // 2}, not {overlap}")
    count = 1 if length == size else -((overlap - length) // (size - overlap))
    starts = [round(i * (length - size) / max(count - 1, 1)) for i in range(count)]
    shared = [0, *(a + size - b for a, b in pairwise(starts)), 0]
    return [
        # A few tiles on a short axis share more than half; they blend over half a tile only.
        Span(start, start + size, min(before, size // 2), min(after, size // 2))
        for start, before, after in zip(starts, shared, shared[1:], strict=False)
    ]


class Grid(NamedTuple):
    """The tiles of a frame: every row of `down` with every column of `across`."""

    down: list[Span]
    across: list[Span]


def plan_grid(height: int, width: int, size: int, overlap: int) -> Grid:
    """Plan the tiles of a frame; an axis shorter than `size` gets one tile of its own length."""
    sizes = (min(size, height), min(size, width))
    return Grid(
        *(
            plan_spans(length, side, min(overlap, side // 2))
            for length, side in zip((height, width), sizes, strict=True)
        )
    )


def run_tiled(
    run: Callable[[Tensor], Tensor],
    read: Callable[[int, int], Tensor],
    grid: Grid,
    *,
    scale: int,
    scratch: Path | None = None,
) -> Iterator[Rows]:
    """Run `run` on the tiles of a clip and blend the results.

    Yields frames (3, sH, sW); read each before asking for the next.

    run: the model, (1, T, 3, h, w) -> (1, T', 3, sh, sw).
    read: reads rows of the clip, (start, stop) -> (1, T, 3, stop - start, W).
    grid: the tiles, from `plan_grid`.
    scale: factor of the model.
    scratch: folder for a temporary file that holds the results of the tiles; without it they stay
        in memory.
    """
    with TemporaryFile(dir=scratch) if scratch else nullcontext() as file:
        stored = TileStore(file)
        for rows in grid.down:
            band = read(rows.start, rows.stop)
            for columns in grid.across:
                stored.append(run(band[..., columns.start : columns.stop].contiguous())[0])
            del band  # free it before the next one is read
        shares = (_shares(grid.down, scale), _shares(grid.across, scale))
        size = (grid.down[-1].stop * scale, grid.across[-1].stop * scale)

        def blend(number: int, start: int, stop: int) -> Tensor:
            total: Tensor | None = None
            for place, (rows, columns) in enumerate(product(grid.down, grid.across)):
                top = rows.start * scale
                first, last = max(start, top), min(stop, rows.stop * scale)
                if first >= last:
                    continue
                tile = stored.read(place, number, first - top, last - top).float()
                if total is None:
                    total = tile.new_zeros(3, stop - start, size[1])
                fade = shares[0][rows][first - top : last - top, None] * shares[1][columns]
                part = total[:, first - start : last - start, columns.place(scale)]
                part += tile * fade.to(tile)
            assert total is not None  # tiles cover the frame
            return total

        for number in range(stored.frames):
            yield Rows((3, *size), partial(blend, number))


def _shares(spans: Sequence[Span], scale: int) -> dict[Span, Tensor]:
    """Blending weights of the tiles along one axis, normalised to sum to one everywhere.

    Normalising each axis on its own avoids a frame of weights to divide by.
    """
    total = torch.zeros(spans[-1].stop * scale)
    for span in spans:
        total[span.place(scale)] += span.weights(scale)
    return {span: span.weights(scale) / total[span.place(scale)] for span in spans}


class TileStore:
    """Results of tiles, clips (T, 3, H, W) of one size, in memory or in a file."""

    def __init__(self, file: IO[bytes] | None) -> None:
        self._file = file
        self._clips: list[Tensor] = []
        # Plain numbers instead of a small tensor per clip: small tensors split the freed blocks of
        # large ones, and the heap grew by one clip for every clip.
        self._shape: tuple[int, ...] = ()

    @property
    def frames(self) -> int:
        """Number of frames of each clip."""
        return self._shape[0]

    def append(self, clip: Tensor) -> None:
        """Store a clip under the next number."""
        self._shape = tuple(clip.shape)
        if self._file:
            clip.float().cpu().contiguous().numpy().tofile(self._file)
        else:
            self._clips.append(clip)

    def read(self, clip: int, frame: int, start: int, stop: int) -> Tensor:
        """Read rows of one frame, (3, stop - start, W)."""
        if not self._file:
            return self._clips[clip][frame, :, start:stop]
        frames, channels, height, width = self._shape
        planes = []
        for plane in range(channels):
            row = ((clip * frames + frame) * channels + plane) * height + start
            self._file.seek(4 * row * width)
            planes.append(np.fromfile(self._file, np.float32, (stop - start) * width))
        return torch.from_numpy(np.stack(planes).reshape(channels, stop - start, width))


@dataclass(frozen=True, slots=True)
class PastedSpan:
    """A tile along one axis that is pasted over its predecessor with hard edges."""

    start: int  # of the tile, in LR pixels
    keep: slice  # part of the tile that is used, in HR pixels from its own corner

    def place(self, scale: int) -> slice:
        """Where the kept part goes, in HR pixels of the frame."""
        return slice(self.start * scale + self.keep.start, self.start * scale + self.keep.stop)


def plan_pasted(length: int, size: int, scale: int) -> list[PastedSpan]:
    """Plan tiles every half tile, without a quarter at each inner side; the last ends the axis.

    This is the test protocol of the VSR-Transformer's authors. Where their last tile repeats the
    one before, the two are merged, which saves time and gives the same pixels.
    """
    if length < size:
        raise ValueError(f"cannot cut {size}-pixel tiles from {length} pixels; pad the frame first")
    count = length // (size // 2)
    starts = [n * size // 2 for n in range(count - 1)] + [length - size]
    edge = size // 4 * scale
    first, last = 0, len(starts) - 1
    spans: list[PastedSpan] = []
    for n, start in enumerate(starts):
        keep = slice(0 if n == first else edge, size * scale - (0 if n == last else edge))
        if spans and spans[-1].start == start:
            keep = slice(min(keep.start, spans.pop().keep.start), keep.stop)
        spans.append(PastedSpan(start, keep))
    return spans


def run_pasted(run: Callable[[Tensor], Tensor], clip: Tensor, *, size: int, scale: int) -> Tensor:
    """Run `run` on tiles of (B, T, 3, H, W) and paste the results: (B, T', 3, sH, sW)."""
    height, width = clip.shape[-2:]
    frame: Tensor | None = None
    for rows in plan_pasted(height, size, scale):
        for columns in plan_pasted(width, size, scale):
            tile = clip[..., rows.start : rows.start + size, columns.start : columns.start + size]
            sr = run(tile.contiguous())
            if frame is None:
                frame = sr.new_zeros(*sr.shape[:3], height * scale, width * scale)
            frame[..., rows.place(scale), columns.place(scale)] = sr[..., rows.keep, columns.keep]
    assert frame is not None  # a plan has at least one tile
    return frame
