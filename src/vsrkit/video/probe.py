"""What a video is, before hours are spent on it: size, time, colours, streams."""

import re
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

import av
from av.container import InputContainer
from av.stream import Disposition
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from vsrkit.errors import VideoError
from vsrkit.video.chroma import Siting
from vsrkit.video.colour import FULL, LIMITED, Colour, known_matrix
from vsrkit.video.hdr import Hdr, hdr_of

VIDEO_SUFFIXES = frozenset(
    {".mp4", ".mkv", ".mov", ".avi", ".webm", ".m4v", ".y4m", ".mpg", ".mpeg", ".ts", ".mts",
     ".m2ts", ".wmv", ".flv", ".3gp", ".ogv", ".vob"}
)  # fmt: skip
LOOKED_AT = 8  # frames that are decoded to find out whether a video is interlaced
LARGEST_SIDE = 16384  # of a picture that we take for meant, and not for a damaged header


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream of a file; `index` is its place in it."""

    index: int
    kind: str  # video, audio, subtitle, attachment, data
    codec: str
    language: str | None = None
    title: str | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """What a player does with a stored picture: mirror it top to bottom, then turn it."""

    degrees: int = 0  # counter-clockwise
    mirrored: bool = False

    def __bool__(self) -> bool:
        return bool(self.degrees % 360) or self.mirrored


UPRIGHT = Turn()


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoInfo:
    """What is known of a video from its header and its first frames."""

    container: str  # FFmpeg's name of the format: "mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm", ...
    codec: str
    height: int  # of the stored picture, before it is turned by `rotation`
    width: int
    pix_fmt: str
    bits: int
    colour: Colour  # what is assumed where the file is silent
    colour_tagged: bool  # whether the file names its matrix
    time_base: Fraction
    frame_rate: Fraction  # average; a variable one has it, too
    frames: int | None  # as the file says, or counted; None where only decoding can tell
    duration_s: float | None
    sample_aspect: Fraction  # width of a pixel / its height
    rotation: int  # degrees counter-clockwise that a player turns the picture by
    display_matrix: tuple[int, ...] | None  # nine numbers, where the file has them
    interlaced: bool
    streams: tuple[StreamInfo, ...]
    hdr: Hdr | None = None

    @property
    def turn(self) -> Turn:
        """How a player brings the stored picture upright."""
        a, b, _, c, d, *_ = self.display_matrix or (1, 0, 0, 0, 1)
        return Turn(self.rotation, mirrored=a * d < b * c)

    def has(self, kind: str) -> bool:
        """Whether there is a stream of this kind."""
        return any(stream.kind == kind for stream in self.streams)


def is_video(path: Path) -> bool:
    """Whether a file has the suffix of a video; hidden files do not count."""
    return path.suffix.lower() in VIDEO_SUFFIXES and not path.name.startswith(".")


def probe(source: str | Path, *, count: bool = False) -> VideoInfo:
    """Look at a video file; `count` counts its frames (by packets) where the header is silent."""
    path = Path(source)
    with opened(path) as container:
        stream = video_stream(container, path)
        pictures = first_pictures(container, stream)
        if not pictures:
            raise VideoError(f"{path} has a video stream, but not one frame can be decoded")
        info = describe(container, stream, pictures)
        if not info.interlaced and _interlaced_later(container, stream):
            info = replace(info, interlaced=True)
    if count and info.frames is None:
        counted = _count_packets(path)
        info = with_frames(info, counted)
    return info


@contextmanager
def opened(path: Path) -> Iterator[InputContainer]:
    """An open container; what FFmpeg cannot open is a VideoError."""
    if not path.exists():
        raise VideoError(f"{path} does not exist")
    if path.is_dir():
        raise VideoError(f"{path} is a folder; a video file is wanted")
    try:
        # With its protocol: else "Part 1:2.mp4" is taken for an address.
        container = av.open(f"file:{path}", metadata_errors="replace")
    except (av.FFmpegError, OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise VideoError(f"cannot read {path} as a video: {reason}") from error
    with container:
        yield container


def video_stream(container: InputContainer, path: Path) -> VideoStream:
    """The first video stream that is not a cover picture."""
    for stream in container.streams.video:
        if not stream.disposition & (Disposition.attached_pic | Disposition.timed_thumbnails):
            if stream.codec_context is None:
                raise VideoError(f"{path}: its video codec is unknown to this build of FFmpeg")
            return stream
    raise VideoError(f"{path} has no video stream")


def first_pictures(container: InputContainer, stream: VideoStream) -> list[VideoFrame]:
    """The first few frames that can be decoded."""
    pictures: list[VideoFrame] = []
    try:
        for packet in container.demux(stream):
            try:
                pictures += packet.decode()
            except (av.FFmpegError, ValueError):
                continue  # a damaged packet; the next may be whole
            if len(pictures) >= LOOKED_AT:
                break
    except (av.FFmpegError, ValueError):
        pass  # a file that ends early
    return pictures


def _interlaced_later(container: InputContainer, stream: VideoStream) -> bool:
    """Whether there are interlaced frames further on: many a recording begins with film."""
    for place in (1, 2, 3):
        if not container.duration:
            return False
        try:
            container.seek((container.start_time or 0) + container.duration * place // 4)
        except av.FFmpegError:
            return False  # no way to jump in this file
        if any(picture.interlaced_frame for picture in first_pictures(container, stream)):
            return True
    return False


def describe(
    container: InputContainer, stream: VideoStream, pictures: list[VideoFrame]
) -> VideoInfo:
    """Gather what the header and the first frames tell."""
    first = pictures[0]
    if max(first.height, first.width) > LARGEST_SIDE:
        raise VideoError(
            f"{container.name.removeprefix('file:')} says its pictures are "
            f"{first.width}x{first.height}; nothing larger than {LARGEST_SIDE} pixels a side "
            "is taken"
        )
    rate = stream.average_rate or stream.guessed_rate or stream.base_rate or Fraction(25)
    time_base = stream.time_base or 1 / rate
    seconds: float | None = None
    if stream.duration:
        seconds = float(stream.duration * time_base)
    elif container.duration:
        seconds = container.duration / av.time_base
    matrix_tag = first.colorspace
    matrix = known_matrix(matrix_tag, height=first.height, width=first.width)
    aspect = stream.sample_aspect_ratio
    return VideoInfo(
        container=container.format.name,
        codec=stream.codec_context.name,
        height=first.height,
        width=first.width,
        pix_fmt=first.format.name,
        bits=max(component.bits for component in first.format.components),
        colour=Colour(
            matrix=matrix,
            range=_range(first),
            primaries=first.color_primaries,
            transfer=first.color_trc,
            siting=_siting(first),
        ),
        colour_tagged=matrix == matrix_tag,
        time_base=time_base,
        frame_rate=Fraction(rate),
        frames=stream.frames or None,
        duration_s=seconds,
        sample_aspect=aspect if aspect and aspect > 0 else Fraction(1),
        rotation=first.rotation,
        display_matrix=_display_matrix(first),
        interlaced=any(picture.interlaced_frame for picture in pictures),
        streams=tuple(
            StreamInfo(
                index=other.index,
                kind=other.type,
                codec=_codec_name(other),
                language=other.language,
                title=other.metadata.get("title"),
            )
            for other in container.streams
        ),
        hdr=hdr_of(first),
    )


def with_frames(info: VideoInfo, frames: int) -> VideoInfo:
    """The same with another number of frames."""
    return replace(info, frames=frames)


def _count_packets(path: Path) -> int:
    with opened(path) as container:
        try:
            return sum(packet.size > 0 for packet in container.demux(video_stream(container, path)))
        except av.FFmpegError as error:
            raise VideoError(f"{path} cannot be read to its end: {error.strerror}") from error


def _codec_name(stream: av.stream.Stream) -> str:
    context = getattr(stream, "codec_context", None)
    return context.name if context is not None else "unknown"


def _range(picture: VideoFrame) -> int:
    """Tagged, or else full for RGB and JPEG's YUV and limited for the rest."""
    if picture.color_range in (LIMITED, FULL):
        return picture.color_range
    name = picture.format.name
    return FULL if picture.format.is_rgb or name.startswith(("yuvj", "pal", "mono")) else LIMITED


def _display_matrix(picture: VideoFrame) -> tuple[int, ...] | None:
    side_data: Any = picture.side_data  # PyAV's annotation does not fit its class
    found = [bytes(data) for data in side_data if data.type.name == "DISPLAYMATRIX"]
    return struct.unpack("<9i", found[0]) if found else None


_logging = threading.Lock()  # FFmpeg's log level is one for the whole process


def _siting(picture: VideoFrame) -> Siting:
    """Where chroma lies. PyAV does not tell, but FFmpeg's filter `showinfo` writes it in its log.

    Left, as MPEG-2 and later have it, where the file is silent.
    """
    graph = av.filter.Graph()
    buffer = graph.add_buffer(
        width=picture.width,
        height=picture.height,
        format=picture.format,
        time_base=Fraction(1, 1000),
    )
    graph.link_nodes(buffer, graph.add("showinfo", "checksum=0"), graph.add("buffersink"))
    graph.configure()
    with _logging:
        before = av.logging.get_level()
        av.logging.set_level(av.logging.INFO)
        try:
            with av.logging.Capture(local=False) as lines:
                graph.vpush(picture)
                graph.vpull()
        finally:
            av.logging.set_level(before)
    said = re.search(r"\bcl:(\w+)", "".join(message for _, _, message in lines))
    return said[1] if said and said[1] in get_args(Siting) else "left"  # type: ignore[return-value]
