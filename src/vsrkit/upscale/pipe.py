"""Upscale video from or to a pipe, holding only the frames that the model needs."""

import logging
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, BinaryIO

from av.container import InputContainer
from av.video.frame import VideoFrame
from torch import Tensor

from vsrkit.errors import StoppedError, VideoError
from vsrkit.hardware.threads import prefetch
from vsrkit.inference.engine import Engine, upscale_marked
from vsrkit.inference.shots import mark_cuts
from vsrkit.models.layers.resample import fitted
from vsrkit.upscale.job import mux_parts
from vsrkit.upscale.options import OnProgress, Progress, UpscaleOptions
from vsrkit.upscale.prepare import configure_input, open_input, prepare
from vsrkit.upscale.produce import PART_FRAMES
from vsrkit.upscale.work_folder import WorkFolder, open_target
from vsrkit.video.codecs import Encoding
from vsrkit.video.encode import Encoder, encode_frames, write_packets
from vsrkit.video.mux import Y4M_FRAME, y4m_header
from vsrkit.video.opening import open_pipe, video_stream
from vsrkit.video.probe import UPRIGHT, Orientation, VideoInfo, describe
from vsrkit.video.read import (
    Deinterlace,
    Picture,
    Source,
    decode,
    deinterlace_frames,
    orient,
    select_span,
    with_timestamps,
)
from vsrkit.video.timestamps import Clock

log = logging.getLogger("vsrkit")


@dataclass(frozen=True, slots=True)
class RawVideo:
    """Size, pixel format and rate of rawvideo on a pipe, which has no header."""

    width: int
    height: int
    pix_fmt: str
    rate: Fraction

    @classmethod
    def parse(cls, text: str) -> "RawVideo":
        """Parse text such as `320x180,yuv420p,25`."""
        number = r"[1-9]\d*"
        words = rf"({number})x({number}),(\w+),({number}(?:\.\d+|/{number})?)"
        match = re.fullmatch(words, text)
        if match is None:
            raise VideoError(f"{text!r} does not describe rawvideo; write 320x180,yuv420p,25")
        return cls(int(match[1]), int(match[2]), match[3], Fraction(match[4]))


@contextmanager
def piped(
    stream: BinaryIO,
    raw: RawVideo | None = None,
    *,
    deinterlace: Deinterlace = "auto",
    spool: Path | None = None,
) -> Iterator[tuple[VideoInfo, Iterator[Picture]]]:
    """Open a video that comes through a pipe: its properties and its frames.

    stream: the pipe.
    raw: size, format and rate of rawvideo; None for formats with a header, such as y4m.
    deinterlace: as in `Source`.
    spool: folder for a copy of an mp4 whose index is at its end; None takes the system's.
    """
    options = {}
    if raw:
        options = {
            "video_size": f"{raw.width}x{raw.height}",
            "pixel_format": raw.pix_fmt,
            "framerate": str(raw.rate),
        }
    form = "rawvideo" if raw else None
    with open_pipe(stream, form=form, options=options, spool=spool) as container:
        yield _first_look(container, deinterlace)


def _first_look(
    container: InputContainer, deinterlace: Deinterlace
) -> tuple[VideoInfo, Iterator[Picture]]:
    path = Path("-")
    stream = video_stream(container, path)
    decoded = decode(container, stream, path)
    first = next(decoded)
    info = replace(describe(container, stream, [first]), streams=())
    pictures: Iterator[VideoFrame] = chain([first], decoded)
    if deinterlace == "always" or (info.interlaced and deinterlace == "auto"):
        pictures = deinterlace_frames(pictures, stream, every=deinterlace == "always")
    return info, with_timestamps(pictures, info)


def upscale_stream(
    pictures: Iterator[Picture],
    engine: Engine,
    *,
    size: tuple[int, int],
    turn: Orientation = UPRIGHT,
    chunk: int = 8,
) -> Iterator[Tensor]:
    """Upscale pictures that can be read only once; yields finished frames (3, H, W).

    size: (height, width) of the output before rotation.
    turn: rotation of the pixels.
    chunk: frames buffered between the stages.
    """
    marked = mark_cuts(picture.rgb() for picture in pictures)
    for frame in prefetch(upscale_marked(prefetch(marked, chunk), engine), chunk):
        yield orient(fitted(frame, *size), turn)


def write_y4m(frames: Iterable[Tensor], encoding: Encoding, out: IO[bytes]) -> int:
    """Write frames to a pipe as they come; returns how many."""
    encoder = Encoder(encoding)
    count = 0
    try:
        out.write(y4m_header(encoding))
        for frame in frames:
            for packet in encoder.encode(frame):
                out.write(Y4M_FRAME + packet.data)
            count += 1
        out.flush()
    except BrokenPipeError as error:
        raise VideoError("the reader of the output pipe has closed it") from error
    return count


def write_parts(frames: Iterable[Tensor], encoding: Encoding, folder: WorkFolder) -> list[Path]:
    """Encode frames into part files, as a job with a file as its source does."""
    parts: list[Path] = []
    stream = iter(frames)
    while group := list(islice(stream, 1)):
        parts.append(folder.part(len(parts)))
        frames_of_part = chain(group, islice(stream, PART_FRAMES - 1))
        write_packets(parts[-1], encode_frames(frames_of_part, encoding))
    return parts


def upscale_pipe(
    path: str, target: str, options: UpscaleOptions, raw: str | None, on_progress: OnProgress
) -> str:
    """Upscale from standard input or to standard output; such a job cannot be resumed.

    path, target: of the videos; `-` for the standard input or output.
    options: of the job.
    raw: size, format and rate of rawvideo on standard input, such as `320x180,yuv420p,25`.
    on_progress: called after every frame.

    Returns a line about the finished video.
    """
    with ExitStack() as stack:
        if path == "-":
            deinterlace = "never" if options.deinterlace == "refuse" else options.deinterlace
            info, pictures = stack.enter_context(
                piped(
                    sys.stdin.buffer,
                    RawVideo.parse(raw) if raw else None,
                    deinterlace=deinterlace,
                    spool=None if target == "-" else Path(target).absolute().parent,
                )
            )
            source = configure_input(Source(path=Path("-"), info=info), options)
            pictures = select_span(pictures, source)
        else:
            source = open_input(path, options)
            pictures = source.pictures()
        times: list[int] = []
        read = counted(pictures, times, on_progress, source.info.frames)
        if target == "-":
            return _to_pipe(source, options, read)
        return _pipe_to_file(source, target, options, read, times)


def counted(
    pictures: Iterator[Picture], times: list[int], on_progress: OnProgress, total: int | None
) -> Iterator[Picture]:
    """Pass the pictures on, append their times to `times` and report progress."""
    for picture in pictures:
        yield picture
        times.append(picture.time)
        on_progress(Progress(stage="upscale", done=len(times), total=total))


def _to_pipe(source: Source, options: UpscaleOptions, pictures: Iterator[Picture]) -> str:
    with TemporaryDirectory(prefix="vsrkit-") as scratch:
        prepared = prepare(source, options, suffix=".y4m", scratch=Path(scratch), by_rows=False)
        assert prepared.encoding is not None
        frames = upscale_stream(
            pictures,
            prepared.engine,
            size=(prepared.height, prepared.width),
            turn=source.info.orientation,
            chunk=prepared.memory.chunk,
        )
        count = write_y4m(frames, prepared.encoding, sys.stdout.buffer)
    return f"{count} frames of {prepared.width}x{prepared.height}"


@contextmanager
def _cleared_on_failure(folder: WorkFolder) -> Iterator[None]:
    """Clear the work folder before the job and if it fails: a pipe cannot be read again."""
    folder.clear()
    try:
        yield
    except KeyboardInterrupt as interrupt:
        folder.clear()
        raise StoppedError(
            "stopped; a job that reads a pipe cannot be resumed, start it again"
        ) from interrupt
    except BaseException:
        folder.clear()
        raise


def _pipe_to_file(
    source: Source,
    target: str,
    options: UpscaleOptions,
    pictures: Iterator[Picture],
    times: list[int],
) -> str:
    goal = open_target(target, source, overwrite=options.overwrite)
    if goal.images:
        raise VideoError(
            "from a pipe only a video file or a pipe can be written, such as out.mkv or -"
        )
    folder = WorkFolder.beside(goal.path)
    with folder.locked(), _cleared_on_failure(folder):
        suffix = goal.path.suffix.lower()
        prepared = prepare(source, options, suffix=suffix, scratch=folder.path, by_rows=False)
        for line in prepared.notes:
            log.warning("%s", line)
        assert prepared.encoding is not None
        size = (prepared.height, prepared.width)
        frames = upscale_stream(
            pictures,
            prepared.engine,
            size=size,
            turn=source.info.orientation if goal.turns else UPRIGHT,
            chunk=prepared.memory.chunk,
        )
        parts = write_parts(frames, prepared.encoding, folder)
        step = round(1 / source.info.frame_rate / source.info.time_base)
        clock = Clock(times, max(1, step), source.info.time_base)
        mux_parts(goal.path, parts, folder, prepared.encoding, clock, source)
    folder.remove()
    return f"{goal.path}: {len(times)} frames of {prepared.width}x{prepared.height}"
