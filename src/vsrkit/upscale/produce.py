"""The parts of a job: found by a scan of the source, decoded, upscaled, encoded and written."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import TypeAlias

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from vsrkit.cluster.files import SharedFiles
from vsrkit.errors import VideoError, VsrkitError
from vsrkit.hardware.files import file_digest
from vsrkit.hardware.memory import Rows, as_tensor
from vsrkit.hardware.threads import prefetch
from vsrkit.inference.engine import Engine, States
from vsrkit.inference.memory import halved
from vsrkit.inference.shots import mark_cuts
from vsrkit.models.layers.resample import fitted
from vsrkit.models.spec import Carried, Context, Piece, PiecePlan, plan_pieces
from vsrkit.upscale.options import OnProgress, Progress
from vsrkit.upscale.stored_states import pack_states, unpack_states
from vsrkit.upscale.work_folder import Index, Part
from vsrkit.video.codecs import Encoding
from vsrkit.video.encode import encode_frames, packet_chunks
from vsrkit.video.images import encode_png
from vsrkit.video.probe import UPRIGHT, Orientation
from vsrkit.video.read import WHOLE_VIDEO, Picture, Source, orient
from vsrkit.video.seek import EMPTY_TABLE, PictureReader, SeekTable, SeekTableBuilder

PART_FRAMES = 48  # least number in every part but the last: the most that a crash can cost
STRIPE = 128  # rows that are converted to RGB at once if frames are never whole


@dataclass(frozen=True, slots=True)
class FrameDone:
    """A frame of the output was encoded."""

    number: int


@dataclass(frozen=True, slots=True)
class PartDone:
    """A part was written."""

    number: int


@dataclass(frozen=True, slots=True)
class TileHalved:
    """Memory did not suffice; the job continues with tiles of this side in pixels."""

    tile: int


@dataclass(frozen=True, slots=True)
class WorkersChanged:
    """How many workers there are, and how many parts they compute."""

    workers: int
    parts: int


JobEvent: TypeAlias = FrameDone | PartDone | TileHalved | WorkersChanged
OnEvent: TypeAlias = Callable[[JobEvent], None]
PartPiece: TypeAlias = tuple[Part, Piece]
# A frame of a part, and the recurrent states of the model after it.
PartFrame: TypeAlias = tuple[Part, Tensor | Rows, States]
# Takes the name of a file in the work folder and its content, in chunks as they are computed.
Write: TypeAlias = Callable[[str, Iterable[bytes]], None]
# Takes the number of a part; the recurrent states after it, as `pack_states` made them.
ReadState: TypeAlias = Callable[[int], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """What every part of a job needs besides the model; sent to workers with each part."""

    identity: str  # see `Manifest.identity`
    source: Source
    height: int  # of the output frames before rotation
    width: int
    chunk: int  # frames buffered between the stages; 0: the stages run in turns
    low_memory: bool  # decode, blend and encode a few rows at a time, never whole frames
    encoding: Encoding | None  # None for images
    bits: int = 8  # of the images
    turn: Orientation = UPRIGHT  # rotation of the pixels, if the container cannot store one
    files: SharedFiles | None = None  # of the source, if workers are on other machines

    def local_source(self) -> Source:
        """The source with the paths that its files have on this machine; their content is checked.

        Raises VideoError if they are not here.
        """
        if self.files is None:
            return self.source
        paths = self.files.locate()
        if self.source.images:
            return replace(self.source, images=paths)
        return replace(self.source, path=paths[0])


class PartRecord(BaseModel):
    """What a finished part consists of. It is written last: a part without it is not finished.

    job: identity of the job, see `Manifest.identity`.
    part: number of the part.
    files: hash of each of its files, by name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    job: str
    part: int
    files: dict[str, str]


class RecordedFiles:
    """Writes the files of a part, and its record when all are written."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._hashes: dict[str, str] = {}

    def write(self, name: str, content: Iterable[bytes]) -> None:
        """Write a file; it may be written while the content of another one is computed."""
        digest = hashlib.blake2b(digest_size=16)

        def hashed() -> Iterator[bytes]:
            for chunk in content:
                digest.update(chunk)
                yield chunk

        self._write(name, hashed())
        self._hashes[name] = digest.hexdigest()

    def finish(self, job: str, part: Part) -> None:
        """Write the record."""
        record = PartRecord(job=job, part=part.number, files=self._hashes)
        self._write(part.record, [record.model_dump_json().encode()])


def scan(source: Source, on_progress: OnProgress) -> Index:
    """Decode a source once to find times and cuts; calls `on_progress` after every frame."""
    total = source.info.frames if source.span == WHOLE_VIDEO else None
    times: list[int] = []
    durations: list[int] = []
    seek_table = SeekTableBuilder(deinterlaced=source.deinterlaced)

    def frames() -> Iterator[Tensor]:
        for picture in source.pictures():
            times.append(picture.time)
            durations.append(picture.duration)
            if not source.images:
                seek_table.add(picture)
            yield picture.rgb().clamp_(0, 1)

    cuts = []
    for number, (_, begins) in enumerate(mark_cuts(frames())):
        if begins and number:
            cuts.append(number)
        on_progress(Progress(stage="scan", done=number + 1, total=total))
    if not times:
        raise VideoError(f"{source.path} has no frames between --start and --end")
    usual = round(1 / source.info.frame_rate / source.info.time_base)
    last_duration = durations[-1] or max(1, usual)
    return Index(tuple(times), last_duration, tuple(cuts), seek_table.table())


def fingerprint(source: Source) -> str:
    """A hash of the content of the source's files."""
    return file_digest(source.images or (source.path,), with_names=bool(source.images))


def plan_parts(
    shots: Iterable[range],
    context: Context,
    *,
    stride: int = 1,
    frames: int | None = None,
    names: Sequence[str] = (),
    seek_table: SeekTable = EMPTY_TABLE,
) -> Iterator[Part]:
    """Divide a video into parts; they depend on the video and the model only.

    A part consists of whole pieces of one or more shots, so that no frame is computed twice.

    shots: frame numbers of each shot.
    context: frames that the model needs around each one.
    stride: frames to keep of each window, see `plan_pieces`.
    frames: least number of frames of a part; None takes PART_FRAMES.
    names: of the images of all frames, if images are written.
    seek_table: of the video, to find the frames of each part.
    """
    least = PART_FRAMES if frames is None else frames
    pieces: list[PiecePlan] = []
    number = before = start = stop = 0

    def part() -> Part:
        # Those of the part before too, which a part with a `lead` reads.
        rows = seek_table.between(min(before, *pieces[0].frames), max(pieces[-1].frames) + 1)
        images = tuple(names[start:stop])
        return Part(number, start, stop, tuple(pieces), images, seek_table=rows)

    for shot in shots:
        for piece in plan_pieces(shot.start, shot.stop, context, stride=stride):
            pieces.append(piece)
            stop = piece.kept[-1] + 1
            if stop - start >= least:
                yield part()
                pieces, number, before, start = [], number + 1, start, stop
    if pieces:
        yield part()


def produce(
    parts: Iterable[Part],
    job: JobContext,
    engine: Engine,
    reader: PictureReader,
    on_event: OnEvent,
    *,
    write: Write,
    read_state: ReadState,
) -> None:
    """Compute parts in order and write the files of each; the record of a part is its last.

    reader: of the source of the job.
    write: called for each file; a state is written while the file of its part is.
    read_state: for a part that continues a shot and does not follow the one before it.
    """
    by_rows = job.low_memory and not isinstance(engine.spec.context, Carried)
    make_piece = piece_by_rows if by_rows else whole_piece
    pieces = prefetch(read_pieces(parts, reader, make_piece), min(1, job.chunk))
    computed = upscale_pieces(pieces, engine, on_event, read_state, by_rows=by_rows)
    for part, frames in groupby(prefetch(computed, job.chunk), key=lambda item: item[0]):
        _write_part(part, frames, job, on_event, write)


def read_pieces(
    parts: Iterable[Part],
    reader: PictureReader,
    make_piece: Callable[[Sequence[Picture], Source, PiecePlan], Piece],
) -> Iterator[PartPiece]:
    """Read the pieces of the parts, each after the pieces that lead up to its state."""
    for part in parts:
        for plan in (*part.lead, *part.pieces):
            pictures = reader.read(plan.frames, part.seek_table)
            yield part, make_piece(pictures, reader.source, plan)


def whole_piece(pictures: Sequence[Picture], source: Source, plan: PiecePlan) -> Piece:
    """A piece with all of its pictures as RGB."""
    clip = torch.empty(len(pictures), 3, source.info.height, source.info.width)
    for frame, picture in zip(clip, pictures, strict=True):
        frame.copy_(picture.rgb())
    return Piece(clip, plan.keep, plan.begins_shot)


def piece_by_rows(pictures: Sequence[Picture], source: Source, plan: PiecePlan) -> Piece:
    """The same piece, converted to RGB for the rows that are read, each time they are read."""

    def read(start: int, stop: int) -> Tensor:
        clip = torch.empty(len(pictures), 3, stop - start, source.info.width)
        for frame, picture in zip(clip, pictures, strict=True):
            frame.copy_(picture.rgb(slice(start, stop)))
        return clip

    height = source.info.height
    stripes = [slice(start, min(start + STRIPE, height)) for start in range(0, height, STRIPE)]
    if source.images:  # an image file is decoded as a whole each time
        stripes = [slice(None)]
    ends = [float(end) for p in pictures for rows in stripes for end in p.rgb(rows).aminmax()]
    clip = Rows((len(pictures), 3, height, source.info.width), read)
    return Piece(clip, plan.keep, plan.begins_shot, limits=(min(ends), max(ends)))


def upscale_pieces(
    pieces: Iterable[PartPiece],
    engine: Engine,
    on_event: OnEvent,
    read_state: ReadState,
    *,
    by_rows: bool = False,
) -> Iterator[PartFrame]:
    """Run the model on pieces; if memory does not suffice, continue with tiles of half the size.

    read_state: as in `produce`.
    by_rows: yield frames that are computed as their rows are read; each must be used before the
        next one is requested.
    """
    states: States = []
    carries = isinstance(engine.spec.context, Carried)
    before, lead = -2, 0  # number of the part, its pieces that are run for the state only
    for part, piece in pieces:
        if part.number != before:
            if carries and part.number != before + 1:
                states = _stored_states(part, piece, engine, read_state)
            before, lead = part.number, len(part.lead)
        while True:
            try:
                if carries:
                    frame, states = engine.step(piece, states)
                    if lead == 0:
                        yield part, frame, states
                    lead = max(0, lead - 1)
                else:
                    run = engine.run_by_rows if by_rows else engine.run
                    frames: Iterator[Tensor | Rows] = iter(run(piece))
                    # The model has run on the whole piece when the first frame is there.
                    for computed in chain([next(frames)], frames):
                        yield part, computed, []
                        del computed  # free it before the next allocation
                break
            except (MemoryError, RuntimeError) as error:
                engine = _with_smaller_tiles(engine, piece, error)
                on_event(TileHalved(engine.tile or 0))
        del piece  # free it before the next allocation


def _stored_states(part: Part, piece: Piece, engine: Engine, read_state: ReadState) -> States:
    """The states before the first piece of a part."""
    if piece.begins_shot:
        return []
    side = max(16, engine.spec.minimum)
    like = engine.model.step(torch.zeros(1, 3, side, side, device=engine.device), None)[1]  # type: ignore[operator]
    return unpack_states(read_state(part.number - 1), like, engine.device)


def _with_smaller_tiles(engine: Engine, piece: Piece, error: Exception) -> Engine:
    """The engine to continue with after `error`; raises it if it is not about memory."""
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


def _write_part(
    part: Part, frames: Iterable[PartFrame], job: JobContext, on_event: OnEvent, write: Write
) -> None:
    """Encode the frames of one part and write its files."""
    files = RecordedFiles(write)
    finished = _finish_frames(part, frames, job, on_event, files.write)
    if job.encoding:
        files.write(part.file, packet_chunks(encode_frames(finished, job.encoding)))
    else:
        for name, frame in zip(part.images, finished, strict=True):
            files.write(name, [encode_png(as_tensor(frame), bits=job.bits)])
    files.finish(job.identity, part)
    on_event(PartDone(part.number))


def _finish_frames(
    part: Part, frames: Iterable[PartFrame], job: JobContext, on_event: OnEvent, write: Write
) -> Iterator[Tensor | Rows]:
    """Frames resized and rotated as they are written; stores the states after the last one."""
    number = part.start
    states: States = []
    for _, frame, states in frames:  # noqa: B007  the last ones are stored
        if job.turn or tuple(frame.shape[-2:]) != (job.height, job.width):
            frame = orient(fitted(as_tensor(frame), job.height, job.width), job.turn)
        yield frame
        del frame  # free it before the next allocation
        on_event(FrameDone(number))
        number += 1
    if states:
        write(part.state_file, [pack_states(states)])
