"""Read the properties of a video file: size, timing, colours, HDR metadata, streams."""

import re
import struct
import threading
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import get_args

import av
from av.container import InputContainer
from av.stream import Disposition
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from vsrkit.errors import VideoError
from vsrkit.video.colour import FULL, LIMITED, Colour, Siting, effective_matrix, planar_format
from vsrkit.video.encryption import encrypted_streams, encryption_of, is_encrypted
from vsrkit.video.opening import open_container, packets, video_stream
from vsrkit.video.side_data import Hdr, hdr_of, not_kept, side_data

VIDEO_SUFFIXES = frozenset(
    {".mp4", ".mkv", ".mov", ".avi", ".webm", ".m4v", ".y4m", ".mpg", ".mpeg", ".ts", ".mts",
     ".m2ts", ".wmv", ".flv", ".3gp", ".ogv", ".vob"}
)  # fmt: skip
PROBED_FRAMES = 8  # frames decoded at each position to detect interlacing
# Packets that are decoded at each position until frames come out: more than between key frames.
PROBED_PACKETS = 3000
LARGEST_SIDE = 16384  # pixels; a larger picture is taken for a damaged header


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream of a file; `index` is its number in the file."""

    index: int
    kind: str  # video, audio, subtitle, attachment, data
    codec: str
    language: str | None = None
    title: str | None = None
    attached: bool = False  # a cover picture


@dataclass(frozen=True, slots=True)
class Orientation:
    """How a player displays the stored picture: mirrored top to bottom, then rotated."""

    degrees: int = 0  # counter-clockwise
    mirrored: bool = False

    def __bool__(self) -> bool:
        return bool(self.degrees % 360) or self.mirrored


UPRIGHT = Orientation()


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoInfo:
    """The properties of a video, from its header and its first frames."""

    container: str  # FFmpeg's name of the format: "mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm", ...
    codec: str
    height: int  # of the stored picture, before rotation
    width: int
    pix_fmt: str
    bits: int
    colour: Colour  # with defaults for missing tags
    colour_tagged: bool  # whether the file specifies its matrix
    time_base: Fraction
    frame_rate: Fraction  # average, also where it is variable
    frames: int | None  # from the header, or counted; None if unknown before decoding
    duration_s: float | None
    sample_aspect: Fraction = Fraction(1)  # width of a pixel / its height
    rotation: int = 0  # degrees counter-clockwise at which players display the picture
    display_matrix: tuple[int, ...] | None = None  # nine numbers, if the file has one
    interlaced: bool = False
    streams: tuple[StreamInfo, ...] = ()
    hdr: Hdr | None = None
    not_kept: tuple[str, ...] = ()  # what the pictures carry and no new picture will
    # Whether the container has no display times, as AVI: frames appear when they are decoded.
    shown_as_decoded: bool = False

    @property
    def orientation(self) -> Orientation:
        """How players display the stored picture."""
        a, b, _, c, d, *_ = self.display_matrix or (1, 0, 0, 0, 1)
        return Orientation(self.rotation, mirrored=a * d < b * c)

    def has(self, kind: str) -> bool:
        """Whether the file has a stream of this kind."""
        return any(stream.kind == kind for stream in self.streams)


def is_video(path: Path) -> bool:
    """Whether a file has the suffix of a video; hidden files do not count."""
    return path.suffix.lower() in VIDEO_SUFFIXES and not path.name.startswith(".")


def probe(source: str | Path, *, count: bool = False, follow_references: bool = False) -> VideoInfo:
    """Read the properties of a video file.

    count: count the frames (by packets) if the header does not tell their number.
    follow_references: as for `open_container`.
    """
    path = Path(source)
    with open_container(path, follow_references=follow_references) as container:
        stream = video_stream(container, path)
        pictures = first_pictures(container, stream)
        # Of Windows Media, encrypted frames are decoded to noise.
        unreadable = not pictures or container.format.name == "asf"
        if unreadable and stream.index in encrypted_streams(container):
            raise VideoError(encryption_of(path))
        if not pictures:
            raise VideoError(f"{path} has a video stream, but no frame of it can be decoded")
        info = describe(container, stream, pictures)
        if not info.interlaced and _interlaced_later(container, stream):
            info = replace(info, interlaced=True)
    if count and info.frames is None:
        # Opened again: not every format can be read from its beginning once more.
        with open_container(path, follow_references=follow_references) as container:
            stream = video_stream(container, path)
            info = replace(info, frames=_count_packets(container, stream))
    return info


def first_pictures(container: InputContainer, stream: VideoStream) -> list[VideoFrame]:
    """The first frames that can be decoded, from the current position; some packets are tried."""
    pictures: list[VideoFrame] = []
    try:
        for packet in islice(packets(container, stream), PROBED_PACKETS):
            if is_encrypted(packet):
                raise VideoError(encryption_of(Path(container.name)))
            try:
                pictures += packet.decode()
            except (av.FFmpegError, ValueError):
                continue  # damaged packet; try the next one
            if len(pictures) >= PROBED_FRAMES:
                break
    except (av.FFmpegError, ValueError):
        pass  # truncated file
    return pictures


def _interlaced_later(container: InputContainer, stream: VideoStream) -> bool:
    """Whether frames in the rest of the file are interlaced; recordings may mix both."""
    for place in (1, 2, 3):
        if not container.duration:
            return False
        try:
            container.seek((container.start_time or 0) + container.duration * place // 4)
        except av.FFmpegError:
            return False  # not seekable
        if any(picture.interlaced_frame for picture in first_pictures(container, stream)):
            return True
    return False


def describe(
    container: InputContainer, stream: VideoStream, pictures: list[VideoFrame]
) -> VideoInfo:
    """Collect the properties of an open video from its header and its first frames."""
    first = pictures[0]
    if max(first.height, first.width) > LARGEST_SIDE:
        raise VideoError(
            f"{container.name.removeprefix('file:')} claims a size of "
            f"{first.width}x{first.height}; at most {LARGEST_SIDE} pixels per side are supported"
        )
    check_convertible(first, container.name)
    rate = stream.average_rate or stream.guessed_rate or stream.base_rate or Fraction(25)
    time_base = stream.time_base or 1 / rate
    seconds: float | None = None
    if stream.duration:
        seconds = float(stream.duration * time_base)
    elif container.duration:
        seconds = container.duration / av.time_base
    matrix_tag = first.colorspace
    matrix = effective_matrix(matrix_tag, height=first.height, width=first.width)
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
                codec=codec_name(other),
                language=other.language,
                title=other.metadata.get("title"),
                attached=bool(other.disposition & Disposition.attached_pic),
            )
            for other in container.streams
        ),
        hdr=hdr_of(first),
        not_kept=not_kept(container, stream, pictures),
        shown_as_decoded=_shown_as_decoded(container, stream, pictures),
    )


def check_convertible(picture: VideoFrame, name: str) -> None:
    """Raise VideoError for a pixel format that FFmpeg does not convert, such as bgr4."""
    form = picture.format.name
    try:
        picture.reformat(format=planar_format(form))
    except (av.FFmpegError, ValueError) as error:
        raise VideoError(f"{name}: pictures in the format {form} are not supported") from error


def _shown_as_decoded(
    container: InputContainer, stream: VideoStream, pictures: list[VideoFrame]
) -> bool:
    """Whether the display times that FFmpeg states are guesses: frames in order with mixed times.

    AVI has none, MXF often has none. MPEG streams have, and theirs may be reset.
    """
    name = container.format.name
    if name == "avi" and stream.codec_context.has_b_frames:
        return True
    times = [picture.pts for picture in pictures if picture.pts is not None]
    return name not in ("mpegts", "mpeg") and times != sorted(times)


def _count_packets(container: InputContainer, stream: VideoStream) -> int:
    try:
        return sum(packet.size > 0 for packet in packets(container, stream))
    except av.FFmpegError as error:
        raise VideoError(f"{container.name} cannot be read to its end: {error.strerror}") from error


def codec_name(stream: av.stream.Stream) -> str:
    """FFmpeg's name of a stream's codec, or `unknown`."""
    context = getattr(stream, "codec_context", None)
    return context.name if context is not None else "unknown"


def _range(picture: VideoFrame) -> int:
    """The tagged range; without a tag full for RGB and JPEG's YUV, limited for all others."""
    if picture.color_range in (LIMITED, FULL):
        return picture.color_range
    name = picture.format.name
    return FULL if picture.format.is_rgb or name.startswith(("yuvj", "pal", "mono")) else LIMITED


def _display_matrix(picture: VideoFrame) -> tuple[int, ...] | None:
    found = side_data(picture).get("DISPLAYMATRIX")
    return struct.unpack("<9i", found) if found else None


_log_lock = threading.Lock()  # FFmpeg's log level is global


def _siting(picture: VideoFrame) -> Siting:
    """The chroma siting; left, the default since MPEG-2, if the file does not specify it.

    PyAV does not expose it, so it is read from the log of FFmpeg's `showinfo` filter.
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
    with _log_lock:
        before = av.logging.get_level()
        av.logging.set_level(av.logging.INFO)
        try:
            with av.logging.Capture(local=False) as lines:
                graph.vpush(picture)
                graph.vpull()
        finally:
            av.logging.set_level(before)
    match = re.search(r"\bcl:(\w+)", "".join(message for _, _, message in lines))
    return match[1] if match and match[1] in get_args(Siting) else "left"  # type: ignore[return-value]
