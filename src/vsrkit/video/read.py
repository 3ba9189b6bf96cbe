"""Read frames with timestamps from a video file, image files or a pipe."""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import av
import torch
from av.container import InputContainer
from av.format import Flags
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from torch import Tensor

from vsrkit.errors import VideoError
from vsrkit.video.animations import is_animated
from vsrkit.video.colour import FULL, Colour, checksum, to_rgb
from vsrkit.video.encryption import is_encrypted
from vsrkit.video.images import (
    find_numbered,
    is_image,
    natural_order,
    read_image,
    read_image_format,
    read_image_size,
)
from vsrkit.video.opening import open_container, packets, video_stream
from vsrkit.video.probe import Orientation, VideoInfo, probe

log = logging.getLogger("vsrkit")

# Timestamps that jump back by more seconds than this were reset; smaller jumps are errors.
JUMP = Fraction(1, 4)
Span = tuple[Fraction, Fraction | None]  # seconds from the first frame: begin and end (exclusive)
Deinterlace: TypeAlias = Literal["auto", "always", "never"]  # auto: video flagged as interlaced
WHOLE_VIDEO: Span = (Fraction(0), None)
OnDamaged = Callable[[Exception], None]
# Streams in which FFmpeg guesses the position of a time. Times may repeat or be missing.
UNINDEXED = Flags.ts_discont | Flags.no_timestamps


class EntryPoint(NamedTuple):
    """Where a key frame is in its file; None for what is unknown."""

    timestamp: int | None  # display time, in units of the source's time base
    decode_time: int | None  # the same unit
    position: int | None  # byte where its packet begins


@dataclass(frozen=True, slots=True)
class Picture:
    """A decoded frame that is converted to RGB on demand, so that skipping it is cheap."""

    time: int  # in units of the source's time base
    duration: int  # the same unit; 0 if unknown
    read: Callable[[slice], Tensor]  # rows -> (3, H, W) float32
    checksum: Callable[[], int] = int  # of the decoded samples; 0 for an image file
    timestamp: int | None = None  # the time that the file states, if it does
    entry: EntryPoint | None = None  # of a key frame

    def rgb(self, rows: slice = slice(None)) -> Tensor:
        """All rows or some as (3, H, W) float32 RGB; 0 is black, 1 is white, not clipped."""
        return self.read(rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A video file, or image files in display order."""

    path: Path
    info: VideoInfo
    images: tuple[Path, ...] = ()
    deinterlace: Deinterlace = "auto"
    span: Span = WHOLE_VIDEO
    follow_references: bool = False  # as for `open_container`

    def open(self) -> AbstractContextManager[InputContainer]:
        """Open the video file."""
        return open_container(self.path, follow_references=self.follow_references)

    def pictures(self, on_damaged: OnDamaged | None = None) -> Iterator[Picture]:
        """The frames of the span in display order; times are strictly increasing.

        on_damaged: called with the error for each packet of a video that cannot be decoded.
        """
        read = self._read_images() if self.images else self._read_video(on_damaged)
        return select_span(read, self)

    def frames(self) -> Iterator[Tensor]:
        """The same frames as RGB (3, H, W)."""
        return (picture.rgb() for picture in self.pictures())

    @property
    def format_flags(self) -> Flags:
        """FFmpeg's description of the container of a video."""
        return Flags(av.ContainerFormat(self.info.container.split(",")[0], "r").flags)

    @property
    def deinterlaced(self) -> bool:
        """Whether the frames pass through a deinterlacing filter."""
        return self.deinterlace == "always" or (self.info.interlaced and self.deinterlace == "auto")

    def oriented_size(self, height: int, width: int) -> tuple[int, int]:
        """(height, width) of a picture after the rotation of this source."""
        return (width, height) if self.info.rotation % 180 else (height, width)

    def _read_images(self) -> Iterator[Picture]:
        for number, path in enumerate(self.images):
            yield Picture(number, 1, partial(_read_image, path, self.info))

    def pictures_after_seek(self, entry: EntryPoint) -> Iterator[Picture]:
        """Frames from a key frame of a video on, or from somewhere before it, without the span.

        The first frames may be damaged or missing: nothing is certain after a seek.
        """
        return self._read_video(None, entry)

    def _read_video(
        self, on_damaged: OnDamaged | None, entry: EntryPoint | None = None
    ) -> Iterator[Picture]:
        with self.open() as container:
            stream = video_stream(container, self.path)
            # Not frame threads: concealment of damaged frames must not depend on timing.
            stream.thread_type = "SLICE"
            stream.codec_context.copy_opaque = True
            if entry:
                seek(container, stream, entry)
            decoded = decode(container, stream, self.path, on_damaged)
            if self.info.shown_as_decoded:
                decoded = map(_show_as_decoded, decoded)
            if self.deinterlaced:
                every = self.deinterlace == "always"
                decoded = deinterlace_frames(decoded, stream, every=every)
            yield from with_timestamps(decoded, self.info)


def open_source(
    path: str | Path, *, frame_rate: Fraction = Fraction(25), follow_references: bool = False
) -> Source:
    """Open a source of frames.

    path: a video file, an image, a folder of images, or a pattern such as `frames/%04d.png`.
    frame_rate: frame rate of an image sequence.
    follow_references: whether a playlist or another file that names files and addresses may make
        FFmpeg open them.
    """
    path = Path(path)
    if path.is_dir():
        images = sorted((p for p in path.iterdir() if is_image(p)), key=natural_order)
        if not images:
            raise VideoError(f"{path} contains no images")
        return _image_source(path, images, frame_rate)
    if re.search(r"%0?\d*d", path.name) and not path.exists():  # not "my%20dog.mp4"
        images = find_numbered(path)
        if not images:
            raise VideoError(f"no file matches {path}")
        return _image_source(path, images, frame_rate)
    if is_image(path) and not is_animated(path):
        if not path.exists():
            raise VideoError(f"{path} does not exist")
        return _image_source(path, [path], frame_rate)
    info = probe(path, follow_references=follow_references)
    return Source(path=path, info=info, follow_references=follow_references)


def read_video(path: str | Path) -> Iterator[Tensor]:
    """Yield the frames of a video file, (3, H, W) RGB, clipped to [0, 1]."""
    return (frame.clamp(0, 1) for frame in open_source(path).frames())


def parse_span(begin: Fraction | float, end: Fraction | float | None) -> Span:
    """A span of seconds as exact fractions: 0.2 becomes 1/5, not the nearest float.

    The float is slightly larger, so the frame at exactly that time would be lost.
    """
    try:
        return Fraction(str(begin)), None if end is None else Fraction(str(end))
    except ValueError as error:
        raise VideoError(f"{begin} to {end} is not a span of seconds") from error


def select_span(pictures: Iterator[Picture], source: Source) -> Iterator[Picture]:
    """The pictures in the span of the source, with strictly increasing times.

    Where timestamps are reset (see timestamps.py), times continue from the frame before.
    """
    begin, end = source.span
    base = source.info.time_base
    step = max(1, round(1 / source.info.frame_rate / base))
    first: int | None = None
    last, shift = None, 0
    for picture in pictures:
        time = picture.time + shift
        if last is not None and (last - time) * base > JUMP:
            shift += last + step - time
            time = last + step
        first = time if first is None else first
        last = time if last is None else max(time, last + 1)
        seconds = (last - first) * base
        if end is not None and seconds >= end:
            return
        if seconds >= begin:
            yield picture if picture.time == last else replace(picture, time=last)


def _image_source(path: Path, images: list[Path], rate: Fraction) -> Source:
    height, width = read_image_size(images[0])
    pix_fmt = read_image_format(images[0])
    info = VideoInfo(
        container="images",
        codec=images[0].suffix.lower().lstrip("."),
        height=height,
        width=width,
        pix_fmt=pix_fmt,
        bits=16 if pix_fmt.endswith("16le") else 8,
        colour=Colour(range=FULL, primaries=1, transfer=13),  # sRGB
        colour_tagged=True,
        time_base=1 / rate,
        frame_rate=rate,
        frames=len(images),
        duration_s=float(len(images) / rate),
    )
    return Source(path=path, info=info, images=tuple(images))


def _read_image(path: Path, info: VideoInfo, rows: slice) -> Tensor:
    frame = read_image(path)
    if frame.shape[-2:] != (info.height, info.width):
        raise VideoError(
            f"{path} is {frame.shape[-1]}x{frame.shape[-2]}, the first image is "
            f"{info.width}x{info.height}; all images must have the same size"
        )
    return frame[:, rows]


def seek(container: InputContainer, stream: VideoStream, entry: EntryPoint) -> None:
    """Move to a key frame, or to somewhere before it."""
    flags = Flags(container.format.flags)
    if flags & UNINDEXED and not flags & Flags.no_byte_seek and entry.position is not None:
        container.seek(entry.position, unsupported_byte_offset=True, stream=stream)
        return
    # The index of some containers has display times, that of others decoding times.
    shown = flags & Flags.seek_to_pts or container.format.name.startswith("matroska")
    time = entry.timestamp if shown or entry.decode_time is None else entry.decode_time
    if time is None:
        raise VideoError(f"{container.name} has no timestamps to seek to")
    container.seek(time, stream=stream)


def decode(
    container: InputContainer,
    stream: VideoStream,
    path: Path,
    on_damaged: OnDamaged | None = None,
) -> Iterator[VideoFrame]:
    """Decode all frames; damaged packets are skipped and counted."""
    damaged, any_frame = 0, False
    try:
        for packet in packets(container, stream):
            if is_encrypted(packet):
                raise VideoError(f"{path} is encrypted in parts; decrypt it first")
            if packet.is_keyframe:
                packet.opaque = packet.dts, packet.pos  # the decoder copies it to the frame
            try:
                frames = packet.decode()
            except (av.FFmpegError, ValueError) as error:
                damaged += 1
                if on_damaged:
                    on_damaged(error)
                continue
            any_frame = any_frame or bool(frames)
            yield from frames
    except av.FFmpegError as error:
        log.warning("%s ends early: %s; the frames before that are used", path, error.strerror)
        if on_damaged:
            on_damaged(error)
    if not any_frame:
        raise VideoError(f"{path} has a video stream, but no frame of it can be decoded")
    if damaged:
        log.warning("%s: %d damaged packets could not be decoded", path, damaged)


def _show_as_decoded(picture: VideoFrame) -> VideoFrame:
    picture.pts = picture.dts
    return picture


def deinterlace_frames(
    pictures: Iterator[VideoFrame], stream: VideoStream, *, every: bool = False
) -> Iterator[VideoFrame]:
    """Convert interlaced frames to one progressive frame each; other frames are not changed.

    every: deinterlace all frames, not only those that are flagged as interlaced.

    A new filter is used whenever the size or the pixel format changes.
    """
    for _, group in groupby(pictures, lambda p: (p.width, p.height, p.format.name)):
        graph: av.filter.Graph | None = None
        for picture in group:
            graph = graph or _bwdif(picture, stream, every)
            graph.vpush(picture)
            yield from _pull(graph)
        assert graph is not None
        graph.vpush(None)
        yield from _pull(graph)


def _bwdif(picture: VideoFrame, stream: VideoStream, every: bool) -> av.filter.Graph:
    """A deinterlacing filter for pictures of this size and format."""
    kind = "all" if every else "interlaced"
    graph = av.filter.Graph()
    width, height, base = picture.width, picture.height, stream.time_base
    nodes = (
        graph.add_buffer(width=width, height=height, format=picture.format, time_base=base),
        graph.add("bwdif", f"mode=send_frame:parity=auto:deint={kind}"),
        graph.add("buffersink"),
    )
    graph.link_nodes(*nodes).configure()
    return graph


def _pull(graph: av.filter.Graph) -> Iterator[VideoFrame]:
    while True:
        try:
            yield graph.vpull()
        except (av.BlockingIOError, av.EOFError):
            return


def with_timestamps(pictures: Iterator[VideoFrame], info: VideoInfo) -> Iterator[Picture]:
    """Decoded frames with their times; one without a timestamp follows the one before it."""
    step = max(1, round(1 / info.frame_rate / info.time_base))
    expected = 0
    for picture in pictures:
        ticks = (picture.time_base or info.time_base) / info.time_base  # filters have their own
        time = expected if picture.pts is None else round(picture.pts * ticks)
        duration = round((picture.duration or 0) * ticks)
        expected = time + (duration or step)
        timestamp = None if picture.pts is None else time
        place = picture.opaque if isinstance(picture.opaque, tuple) else (None, None)
        yield Picture(
            time,
            duration,
            partial(_rgb, picture, info),
            checksum=partial(checksum, picture),
            timestamp=timestamp,
            entry=EntryPoint(timestamp, *place) if picture.key_frame else None,
        )


def _rgb(picture: VideoFrame, info: VideoInfo, rows: slice) -> Tensor:
    """RGB at the size of the first frame; the size may change within a stream."""
    if (picture.height, picture.width) != (info.height, info.width):
        picture = picture.reformat(width=info.width, height=info.height, interpolation="BICUBIC")
    return to_rgb(picture, info.colour, rows)


def orient(frame: Tensor, orientation: Orientation) -> Tensor:
    """Mirror and rotate a frame (in steps of 90 degrees) as players display it."""
    frame = frame.flip(-2) if orientation.mirrored else frame
    return torch.rot90(frame, round(orientation.degrees / 90) % 4, (-2, -1))
