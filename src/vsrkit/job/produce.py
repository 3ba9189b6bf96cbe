"""Make parts of a job: decode, model and encode side by side, each a step ahead of the next."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import TypeAlias

import torch
from torch import Tensor

from vsrkit.errors import VideoError, VsrkitError
from vsrkit.job.ahead import ahead
from vsrkit.job.folder import WorkFolder, load_states, save_states
from vsrkit.job.parts import Part
from vsrkit.memory import halved
from vsrkit.models.spec import Carried
from vsrkit.resample import fitted
from vsrkit.upscale import Engine, States
from vsrkit.video.encode import Encoding, encode_all
from vsrkit.video.images import write_image
from vsrkit.video.packets import write_packets, write_whole
from vsrkit.video.read import Picture, Source, turned
from vsrkit.windows import Piece

log = logging.getLogger("vsrkit")

Read: TypeAlias = tuple[Part, Tensor, slice]  # a piece of a part: its clip and what to keep
Made: TypeAlias = tuple[Part, Tensor, States]  # a frame of a part, and what the model carries on


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What the parts of a job are made of and where they go; a worker process needs no more."""

    source: Source
    folder: WorkFolder
    height: int  # of the finished frames, before they are turned
    width: int
    chunk: int  # frames that may wait between the stages; 0: they take turns
    encoding: Encoding | None  # None for images
    names: tuple[str, ...] = ()  # of the images, by frame
    bits: int = 8  # of the images
    turn: int = 0  # degrees by which the pixels are turned, where the container cannot say it


# Told of each frame that is encoded, and of a tile that had to be made smaller.
Tell: TypeAlias = Callable[[str, int], None]


def produce(parts: Iterable[Part], recipe: Recipe, engine: Engine, tell: Tell) -> None:
    """Make parts in order, each a file that is there whole or not at all."""
    pieces = ahead(read_pieces(parts, recipe.source), min(1, recipe.chunk))
    frames = ahead(upscale_pieces(pieces, engine, recipe.folder, tell), recipe.chunk)
    for part, made in groupby(frames, key=lambda item: item[0]):
        write_part(part, made, recipe, tell)


def read_pieces(parts: Iterable[Part], source: Source) -> Iterator[Read]:
    """Decode from the start, hold the pictures that a piece needs, convert them for each piece.

    No jumps: what a decoder makes of a file after a jump can differ from what it makes in a row.
    As decoded a picture takes an eighth of the memory that its RGB does.
    """
    pictures = enumerate(source.pictures())
    held: dict[int, Picture] = {}
    for part in parts:
        for piece in part.pieces:
            first, last = min(piece.frames), max(piece.frames)
            for number in [n for n in held if n < first]:
                del held[number]
            for number, picture in pictures if last not in held else ():
                if number >= first:
                    held[number] = picture
                if number == last:
                    break
            if last not in held:
                raise VideoError(
                    f"{source.path} gave fewer frames than when it was first read; has it changed?"
                )
            yield part, _clip([held[n] for n in piece.frames], source), piece.keep


def _clip(pictures: Sequence[Picture], source: Source) -> Tensor:
    """(T, 3, H, W) RGB, filled frame by frame so that none is there twice."""
    clip = torch.empty(len(pictures), 3, source.info.height, source.info.width)
    for frame, picture in zip(clip, pictures, strict=True):
        frame.copy_(picture.rgb())
    return clip


def upscale_pieces(
    pieces: Iterable[Read], engine: Engine, folder: WorkFolder, tell: Tell
) -> Iterator[Made]:
    """Run the model. Where memory does not suffice, go on with tiles of half the size."""
    states: States = []
    carries = isinstance(engine.spec.context, Carried)
    before: Part | None = None
    for part, clip, keep in pieces:
        if carries and before is None and part.start > 0 and len(clip) == 1:
            like = engine.model.step(clip[:, :, :16, :16].to(engine.device), None)[1]  # type: ignore[operator]
            states = load_states(folder.state(part.number - 1), like, engine.device)
        before = part
        while True:
            try:
                if carries:
                    frame, states = engine.step(clip, [] if len(clip) == 2 else states)
                    yield part, frame, states
                else:
                    frames = engine.run(Piece(clip, keep))
                    # All the work is done before the first frame is here.
                    for frame in chain([next(frames)], frames):
                        yield part, frame, []
                        del frame  # or it would be there while the next one is made
                break
            except (MemoryError, RuntimeError) as error:
                engine = _with_smaller_tiles(engine, clip, error)
                tell("tile", engine.tile or 0)
        del clip  # or it would be there while the next one is made


def _with_smaller_tiles(engine: Engine, clip: Tensor, error: Exception) -> Engine:
    text = str(error).lower()
    short = isinstance(error, MemoryError | torch.OutOfMemoryError) or "memory" in text
    height, width = clip.shape[-2:]
    tile = halved(engine.tile, height, width, engine.spec) if short else None
    if not short:
        raise error
    if tile is None or isinstance(engine.spec.context, Carried):
        raise VsrkitError(
            "there is not enough memory for one frame; close other programs, use --tile 64, "
            "another model or a smaller input"
        ) from error
    return replace(engine, tile=tile)


def write_part(part: Part, made: Iterable[Made], recipe: Recipe, tell: Tell) -> None:
    """Encode the frames of one part and put its file in place."""
    frames = _finished(part, made, recipe, tell)
    path = recipe.folder.part(part.number)
    if recipe.encoding:
        write_packets(path, encode_all(frames, recipe.encoding))
    else:
        for name, frame in zip(recipe.names[part.start : part.stop], frames, strict=True):
            write_image(recipe.folder.images / name, frame, bits=recipe.bits)
        write_whole(path, [b"images\n"])
    tell("part", part.number)


def _finished(part: Part, made: Iterable[Made], recipe: Recipe, tell: Tell) -> Iterator[Tensor]:
    """Frames as they are written; what the model carries on is kept after the last."""
    number = part.start
    states: States = []
    for _, frame, states in made:  # noqa: B007  the last are kept
        yield turned(fitted(frame, recipe.height, recipe.width), recipe.turn)
        del frame  # or it would be there while the next one is made
        tell("frame", number)
        number += 1
    if states:
        save_states(recipe.folder.state(part.number), states)
