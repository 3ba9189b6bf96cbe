"""Make parts of a job: decode, model and encode side by side, each a step ahead of the next."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import TypeAlias

import torch
from torch import Tensor

from vsrkit.errors import VideoError, VsrkitError
from vsrkit.hardware.files import write_atomically
from vsrkit.inference.engine import Engine, States
from vsrkit.inference.memory import halved
from vsrkit.inference.windows import Piece
from vsrkit.models.layers.resample import fitted
from vsrkit.models.spec import Carried
from vsrkit.upscale.parts import Part
from vsrkit.upscale.prefetch import ahead
from vsrkit.upscale.work_folder import WorkFolder, load_states, save_states
from vsrkit.video.encode import Encoding, encode_all
from vsrkit.video.files import write_packets
from vsrkit.video.images import encode_png
from vsrkit.video.probe import UPRIGHT, Turn
from vsrkit.video.read import Picture, Source, turned
from vsrkit.video.rows import Rows, whole_of

log = logging.getLogger("vsrkit")

STRIPE = 128  # rows of a picture that are RGB at once where no frame is whole

Read: TypeAlias = tuple[Part, Piece]
# A frame of a part, and what the model carries on.
Made: TypeAlias = tuple[Part, Tensor | Rows, States]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What the parts of a job are made of and where they go; a worker process needs no more."""

    source: Source
    folder: WorkFolder
    height: int  # of the finished frames, before they are turned
    width: int
    chunk: int  # frames that may wait between the stages; 0: they take turns
    frugal: bool  # frames are never whole: decoded, blended and encoded a few rows at a time
    encoding: Encoding | None  # None for images
    names: tuple[str, ...] = ()  # of the images, by frame
    bits: int = 8  # of the images
    turn: Turn = UPRIGHT  # how the pixels are turned, where the container cannot say it


# Told of each frame that is encoded, and of a tile that had to be made smaller.
Tell: TypeAlias = Callable[[str, int], None]


def produce(parts: Iterable[Part], recipe: Recipe, engine: Engine, tell: Tell) -> None:
    """Make parts in order, each a file that is there whole or not at all."""
    by_rows = recipe.frugal and not isinstance(engine.spec.context, Carried)
    make_piece = stored_piece if by_rows else whole_piece
    pieces = ahead(read_pieces(parts, recipe.source, make_piece), min(1, recipe.chunk))
    made = upscale_pieces(pieces, engine, recipe.folder, tell, by_rows=by_rows)
    frames = ahead(made, recipe.chunk)
    for part, made in groupby(frames, key=lambda item: item[0]):
        write_part(part, made, recipe, tell)


def read_pieces(
    parts: Iterable[Part],
    source: Source,
    make_piece: Callable[[Sequence[Picture], Source, slice], Piece],
) -> Iterator[Read]:
    """Decode from the start, hold the pictures that a piece needs, make it of them.

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
            yield part, make_piece([held[n] for n in piece.frames], source, piece.keep)


def whole_piece(pictures: Sequence[Picture], source: Source, keep: slice) -> Piece:
    """Every picture as RGB at once, filled frame by frame so that none is there twice."""
    clip = torch.empty(len(pictures), 3, source.info.height, source.info.width)
    for frame, picture in zip(clip, pictures, strict=True):
        frame.copy_(picture.rgb())
    return Piece(clip, keep)


def stored_piece(pictures: Sequence[Picture], source: Source, keep: slice) -> Piece:
    """The same, made anew for every few rows: as decoded, pictures take an eighth of the memory."""

    def read(start: int, stop: int) -> Tensor:
        clip = torch.empty(len(pictures), 3, stop - start, source.info.width)
        for frame, picture in zip(clip, pictures, strict=True):
            frame.copy_(picture.rgb(slice(start, stop)))
        return clip

    height = source.info.height
    few = [slice(start, min(start + STRIPE, height)) for start in range(0, height, STRIPE)]
    if source.images:  # their files are read whole each time
        few = [slice(None)]
    ends = [float(end) for p in pictures for rows in few for end in p.rgb(rows).aminmax()]
    clip = Rows((len(pictures), 3, height, source.info.width), read)
    return Piece(clip, keep, limits=(min(ends), max(ends)))


def upscale_pieces(
    pieces: Iterable[Read],
    engine: Engine,
    folder: WorkFolder,
    tell: Tell,
    *,
    by_rows: bool = False,
) -> Iterator[Made]:
    """Run the model. Where memory does not suffice, go on with tiles of half the size.

    by_rows: give frames that are not whole, each to be used before the next is asked for.
    """
    states: States = []
    carries = isinstance(engine.spec.context, Carried)
    before: Part | None = None
    for part, piece in pieces:
        begins = piece.clip.shape[0] == 2  # of a shot, where a state is carried
        if carries and before is None and part.start > 0 and not begins:
            like = engine.model.step(torch.zeros(1, 3, 16, 16, device=engine.device), None)[1]  # type: ignore[operator]
            states = load_states(folder.state(part.number - 1), like, engine.device)
        before = part
        while True:
            try:
                if carries:
                    frame, states = engine.step(whole_of(piece.clip), [] if begins else states)
                    yield part, frame, states
                else:
                    run = engine.run_by_rows if by_rows else engine.run
                    frames: Iterator[Tensor | Rows] = iter(run(piece))
                    # All the work is done before the first frame is here.
                    for made in chain([next(frames)], frames):
                        yield part, made, []
                        del made  # or it would be there while the next one is made
                break
            except (MemoryError, RuntimeError) as error:
                engine = _with_smaller_tiles(engine, piece, error)
                tell("tile", engine.tile or 0)
        del piece  # or it would be there while the next one is made


def _with_smaller_tiles(engine: Engine, piece: Piece, error: Exception) -> Engine:
    text = str(error).lower()
    short = isinstance(error, MemoryError | torch.OutOfMemoryError) or "memory" in text
    height, width = piece.clip.shape[-2:]
    tile = halved(engine.tile, height, width, engine.spec) if short else None
    if not short:
        raise error
    if tile is None or isinstance(engine.spec.context, Carried):
        raise VsrkitError(
            "there is not enough memory for one frame; close other programs, use --tile 64, "
            "another model or a smaller input"
        ) from error
    return replace(engine, tile=tile, window_caches=None)


def write_part(part: Part, made: Iterable[Made], recipe: Recipe, tell: Tell) -> None:
    """Encode the frames of one part and put its file in place."""
    frames = _finished(part, made, recipe, tell)
    path = recipe.folder.part(part.number)
    if recipe.encoding:
        write_packets(path, encode_all(frames, recipe.encoding))
    else:
        recipe.folder.images.mkdir(exist_ok=True)
        for name, frame in zip(recipe.names[part.start : part.stop], frames, strict=True):
            picture = encode_png(whole_of(frame), bits=recipe.bits)
            write_atomically(recipe.folder.images / name, picture, sync=True)
        write_atomically(path, "images\n", sync=True)
    tell("part", part.number)


def _finished(
    part: Part, made: Iterable[Made], recipe: Recipe, tell: Tell
) -> Iterator[Tensor | Rows]:
    """Frames as they are written; what the model carries on is kept after the last."""
    number = part.start
    states: States = []
    for _, frame, states in made:  # noqa: B007  the last are kept
        if recipe.turn or tuple(frame.shape[-2:]) != (recipe.height, recipe.width):
            frame = turned(fitted(whole_of(frame), recipe.height, recipe.width), recipe.turn)
        yield frame
        del frame  # or it would be there while the next one is made
        tell("frame", number)
        number += 1
    if states:
        save_states(recipe.folder.state(part.number), states)
