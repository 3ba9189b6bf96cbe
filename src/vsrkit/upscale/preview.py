"""Previews: a few upscaled frames of each shot beside their bicubic enlargement."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from vsrkit.hardware.memory import as_tensor
from vsrkit.inference.engine import Engine
from vsrkit.models.layers.resample import fitted
from vsrkit.models.spec import Carried, Context, plan_pieces
from vsrkit.upscale.options import OnProgress, Progress
from vsrkit.upscale.produce import (
    PartPiece,
    read_pieces,
    scan,
    upscale_pieces,
    whole_piece,
)
from vsrkit.upscale.work_folder import Part
from vsrkit.video.images import write_image
from vsrkit.video.read import Source, orient
from vsrkit.video.seek import PictureReader

LINE = 4  # pixels; width of the white line between the two pictures


def preview_video(
    source: Source,
    engine: Engine,
    folder: Path,
    *,
    frames: int = 1,
    stride: int = 1,
    on_progress: OnProgress = lambda _: None,
) -> list[Path]:
    """Upscale a few frames of every shot; write each beside its bicubic enlargement.

    The model sees the same pieces as when the whole video is upscaled, so the result is the same.

    Args:
        source: the video.
        engine: the model.
        folder: where to write PNG files, named after shot and frame.
        frames: how many of each shot.
        stride: distance between the windows of the model, as in `plan_pieces`.
        on_progress: called with "scan" or "preview", the frames done and their total (0: unknown).

    Returns:
        The files that were written.
    """
    index = scan(source, on_progress)
    wanted = [chosen(shot, frames) for shot in index.shots]
    parts = [
        replace(
            _part(number, shot, wanted[number], engine.spec.context, stride),
            seek_table=index.seek_table,
        )
        for number, shot in enumerate(index.shots)
    ]
    total = sum(len(numbers) for numbers in wanted)
    written: list[Path] = []
    for shot, number, lr, sr in _upscaled(parts, source, engine, folder):
        if number not in wanted[shot]:
            continue
        path = folder / f"shot-{shot + 1:04d}-frame-{number:06d}.png"
        turn = source.info.orientation
        write_image(path, side_by_side(orient(lr, turn), orient(sr, turn)))
        written.append(path)
        on_progress(Progress(stage="upscale", done=len(written), total=total))
    return written


def chosen(shot: range, frames: int) -> list[int]:
    """Numbers of `frames` frames, evenly spread: one in the middle, two at 1/4 and 3/4."""
    count = min(frames, len(shot))
    return [shot.start + (2 * n + 1) * len(shot) // (2 * count) for n in range(count)]


def _part(number: int, shot: range, wanted: Sequence[int], context: Context, stride: int) -> Part:
    """The pieces of a shot that keep a wanted frame; with carried state, also all earlier ones."""
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
    """Shot, frame number, input and output of every frame that the pieces keep."""
    numbers = (
        (part.number, number) for part in parts for piece in part.pieces for number in piece.kept
    )
    originals: deque[Tensor] = deque()

    def read() -> Iterator[PartPiece]:
        for part, piece in read_pieces(parts, PictureReader(source), whole_piece):
            originals.extend(as_tensor(piece.clip)[piece.keep])
            yield part, piece

    # Each part begins a shot, so no state is read.
    made = upscale_pieces(read(), engine, lambda _: None, lambda _: b"")
    for (shot, number), (_, sr, _) in zip(numbers, made, strict=True):
        yield shot, number, originals.popleft(), as_tensor(sr)


def side_by_side(lr: Tensor, sr: Tensor) -> Tensor:
    """Bicubic enlargement on the left, output on the right: (3, sH, 2 sW + LINE)."""
    height, width = sr.shape[-2:]
    line = torch.ones(3, height, LINE)
    return torch.cat([fitted(lr, height, width), line, sr], -1).clamp(0, 1)
