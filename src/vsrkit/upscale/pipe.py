"""Upscale video from or to a pipe, holding only the frames that the model needs."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, islice
from pathlib import Path
from typing import IO, BinaryIO

from av.container import InputContainer
from av.video.frame import VideoFrame
from torch import Tensor

from vsrkit.errors import VideoError
from vsrkit.hardware.threads import prefetch
from vsrkit.inference.engine import Engine, upscale_marked
from vsrkit.inference.shots import mark_cuts
from vsrkit.models.layers.resample import fitted
from vsrkit.upscale.produce import PART_FRAMES
from vsrkit.upscale.work_folder import WorkFolder
from vsrkit.video.codecs import Encoding
from vsrkit.video.encode import Encoder, encode_frames, write_packets
from vsrkit.video.mux import Y4M_FRAME, y4m_header
from vsrkit.video.opening import open_pipe, video_stream
from vsrkit.video.probe import UPRIGHT, Orientation, VideoInfo, describe
from vsrkit.video.read import (
    Deinterlace,
    Picture,
    decode,
    deinterlace_frames,
    orient,
    with_timestamps,
)


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
