"""A few frames of each shot, before and after side by side: see it before the hours are spent."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from vsrkit.inference.engine import Engine
from vsrkit.inference.windows import plan_pieces
from vsrkit.models.layers.resample import fitted
from vsrkit.models.spec import Carried, Context
from vsrkit.upscale.parts import Part, scan
from vsrkit.upscale.produce import Read, read_pieces, upscale_pieces, whole_piece
from vsrkit.upscale.work_folder import WorkFolder
from vsrkit.video.images import write_image
from vsrkit.video.read import Source, turned
from vsrkit.video.rows import whole_of

LINE = 4  # pixels of white between the two


def preview_video(
    source: Source,
    engine: Engine,
    folder: Path,
    *,
    frames: int = 1,
    stride: int = 1,
    on_progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> list[Path]:
    """Upscale `frames` frames of every shot; write each beside its bicubic enlargement.

    They are made from the same pieces as in a whole run, so they are what that run gives. The names
    of the PNG files tell shot and frame. `on_progress(what, done, total)` is told of every frame.
    """
    index = scan(source, lambda done: on_progress("scan", done, 0))
    wanted = [chosen(shot, frames) for shot in index.shots]
    parts = [
        _part(number, shot, wanted[number], engine.spec.context, stride)
        for number, shot in enumerate(index.shots)
    ]
    total = sum(len(numbers) for numbers in wanted)
    written: list[Path] = []
    for shot, number, lr, sr in _upscaled(parts, source, engine, folder):
        if number not in wanted[shot]:
            continue
        path = folder / f"shot-{shot + 1:04d}-frame-{number:06d}.png"
        turn = source.info.turn
        write_image(path, side_by_side(turned(lr, turn), turned(sr, turn)))
        written.append(path)
        on_progress("preview", len(written), total)
    return written


def chosen(shot: range, frames: int) -> list[int]:
    """Frames spread evenly over a shot: one is its middle, two are at a quarter and at three."""
    count = min(frames, len(shot))
    return [shot.start + (2 * n + 1) * len(shot) // (2 * count) for n in range(count)]


def _part(number: int, shot: range, wanted: Sequence[int], context: Context, stride: int) -> Part:
    """The pieces of a shot that hold a wanted frame; of a carried state, all before the last."""
    pieces = tuple(
        piece
        for piece in plan_pieces(shot.start, shot.stop, context, stride=stride)
        if set(piece.kept) & set(wanted)
        or (isinstance(context, Carried) and piece.kept[0] < wanted[-1])
    )
    return Part(number, shot.start, shot.stop, pieces)


def _upscaled(
    parts: Sequence[Part], source: Source, engine: Engine, folder: Path
) -> Iterator[tuple[int, int, Tensor, Tensor]]:
    """Shot, number, input and output of every frame that the pieces keep."""
    numbers = (
        (part.number, number) for part in parts for piece in part.pieces for number in piece.kept
    )
    originals: deque[Tensor] = deque()

    def read() -> Iterator[Read]:
        for part, piece in read_pieces(parts, source, whole_piece):
            originals.extend(whole_of(piece.clip)[piece.keep])
            yield part, piece

    made = upscale_pieces(read(), engine, WorkFolder(folder), lambda what, value: None)
    for (shot, number), (_, sr, _) in zip(numbers, made, strict=True):
        yield shot, number, originals.popleft(), whole_of(sr)


def side_by_side(lr: Tensor, sr: Tensor) -> Tensor:
    """Bicubic enlargement left, output right, a white line between: (3, sH, 2 sW + line)."""
    height, width = sr.shape[-2:]
    line = torch.ones(3, height, LINE)
    return torch.cat([fitted(lr, height, width), line, sr], -1).clamp(0, 1)
