"""Frames of a video, of image files or of a pipe, one by one, each with its time."""

import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Literal, TypeAlias

import av
import torch
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from torch import Tensor

from vsrkit.errors import VideoError
from vsrkit.video.colour import FULL, Colour, rgb_of
from vsrkit.video.images import (
    is_image,
    natural_order,
    read_image,
    read_image_format,
    read_image_size,
)
from vsrkit.video.probe import Turn, VideoInfo, opened, probe, video_stream
from vsrkit.video.timestamp_resets import JUMP

log = logging.getLogger("vsrkit")

Span = tuple[Fraction, Fraction | None]  # seconds from the first frame: begin and end (exclusive)
Deinterlace: TypeAlias = Literal["auto", "always", "never"]  # auto: video flagged as interlaced
EVERYTHING: Span = (Fraction(0), None)
OnDamaged = Callable[[Exception], None]


@dataclass(frozen=True, slots=True)
class Picture:
    """A decoded frame; it becomes RGB only when asked, so that skipping one costs little."""

    time: int  # in units of the source's time base
    duration: int  # the same; 0 where the source does not say
    read: Callable[[slice], Tensor]  # rows -> (3, H, W) float32

    def rgb(self, rows: slice = slice(None)) -> Tensor:
        """(3, H, W) float32, 0 black, 1 white, not clipped: all rows or some."""
        return self.read(rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where frames come from: a video file, or image files in the order of time."""

    path: Path
    info: VideoInfo
    images: tuple[Path, ...] = ()
    deinterlace: Deinterlace = "auto"
    span: Span = EVERYTHING

    def pictures(self, on_damaged: OnDamaged | None = None) -> Iterator[Picture]:
        """Every frame in the order of time; times increase strictly.

        on_damaged: called with the error for each packet of a video that cannot be decoded.
        """
        read = self._read_images() if self.images else self._read_video(on_damaged)
        return in_span(read, self)

    def frames(self) -> Iterator[Tensor]:
        """The same as RGB, (3, H, W) each."""
        return (picture.rgb() for picture in self.pictures())

    def turned_size(self, height: int, width: int) -> tuple[int, int]:
        """(height, width) of a picture of this source after its rotation."""
        return (width, height) if self.info.rotation % 180 else (height, width)

    def _read_images(self) -> Iterator[Picture]:
        for number, path in enumerate(self.images):
            yield Picture(number, 1, partial(_read_image, path, self.info))

    def _read_video(self, on_damaged: OnDamaged | None) -> Iterator[Picture]:
        with opened(self.path) as container:
            stream = video_stream(container, self.path)
            # Slices, not frames: how a damaged frame is patched up must not depend on timing.
            stream.thread_type = "SLICE"
            decoded = decode(container, stream, self.path, on_damaged)
            every = self.deinterlace == "always"
            if every or (self.info.interlaced and self.deinterlace == "auto"):
                decoded = deinterlaced(decoded, stream, every=every)
            yield from timed(decoded, self.info)


def open_source(path: str | Path, *, frame_rate: Fraction = Fraction(25)) -> Source:
    """A video file, a folder of images, or a pattern such as `frames/%04d.png`.

    frame_rate: of image files, which do not know theirs.
    """
    path = Path(path)
    if path.is_dir():
        images = sorted((p for p in path.iterdir() if is_image(p)), key=natural_order)
        if not images:
            raise VideoError(f"{path} is a folder without images")
        return _image_source(path, images, frame_rate)
    if re.search(r"%0?\d*d", path.name) and not path.exists():  # not "my%20dog.mp4"
        images = matching(path)
        if not images:
            raise VideoError(f"no file matches {path}")
        return _image_source(path, images, frame_rate)
    if is_image(path):
        if not path.exists():
            raise VideoError(f"{path} does not exist")
        return _image_source(path, [path], frame_rate)
    return Source(path=path, info=probe(path))


def read_video(path: str | Path) -> Iterator[Tensor]:
    """Yield the frames of a video file, (3, H, W) RGB, clipped to [0, 1]."""
    return (frame.clamp(0, 1) for frame in open_source(path).frames())


def exact_span(begin: Fraction | float, end: Fraction | float | None) -> Span:
    """Times as they are written: 0.2 is a fifth, not the float, which is a little more.

    Else the frame at just that time would be lost.
    """
    try:
        return Fraction(str(begin)), None if end is None else Fraction(str(end))
    except ValueError as error:
        raise VideoError(f"from {begin} to {end} is no span of seconds") from error


def in_span(pictures: Iterator[Picture], source: Source) -> Iterator[Picture]:
    """Those in the time that was asked for, their times strictly increasing.

    Where times begin anew (see `restarts`), they go on from the frame before.
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
            yield Picture(last, picture.duration, picture.read)


def matching(pattern: Path) -> list[Path]:
    """Files named by a pattern with one number in it, in the order of their numbers."""
    before, after = re.split(r"%0?\d*d", pattern.name, maxsplit=1)
    name = re.compile(re.escape(before) + r"(\d+)" + re.escape(after))
    if not pattern.parent.is_dir():
        return []
    found = [
        (match, path) for path in pattern.parent.iterdir() if (match := name.fullmatch(path.name))
    ]
    return [path for match, path in sorted(found, key=lambda pair: int(pair[0][1]))]


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
        sample_aspect=Fraction(1),
        rotation=0,
        display_matrix=None,
        interlaced=False,
        streams=(),
    )
    return Source(path=path, info=info, images=tuple(images))


def _read_image(path: Path, info: VideoInfo, rows: slice) -> Tensor:
    frame = read_image(path)
    if frame.shape[-2:] != (info.height, info.width):
        raise VideoError(
            f"{path} is {frame.shape[-1]}x{frame.shape[-2]}, the first image is "
            f"{info.width}x{info.height}; a video has one size"
        )
    return frame[:, rows]


def decode(
    container: av.container.InputContainer,
    stream: VideoStream,
    path: Path,
    on_damaged: OnDamaged | None = None,
) -> Iterator[VideoFrame]:
    """Decode to the end; a damaged packet is passed over, as players do, and counted."""
    damaged, any_frame = 0, False
    try:
        for packet in container.demux(stream):
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
        log.warning("%s ends early: %s; what was read before that is used", path, error.strerror)
        if on_damaged:
            on_damaged(error)
    if not any_frame:
        raise VideoError(f"{path} has a video stream, but not one frame can be decoded")
    if damaged:
        log.warning("%s: %d damaged packets could not be decoded", path, damaged)


def deinterlaced(
    pictures: Iterator[VideoFrame], stream: VideoStream, *, every: bool = False
) -> Iterator[VideoFrame]:
    """One progressive frame for each interlaced one; other frames stay as they are.

    every: deinterlace all frames, not only those that are flagged as interlaced.

    A filter is made for one size and kind of picture: where they change, another begins.
    """
    for _, alike in groupby(pictures, lambda p: (p.width, p.height, p.format.name)):
        graph: av.filter.Graph | None = None
        for picture in alike:
            graph = graph or _bwdif(picture, stream, every)
            graph.vpush(picture)
            yield from _pull(graph)
        assert graph is not None
        graph.vpush(None)
        yield from _pull(graph)


def _bwdif(picture: VideoFrame, stream: VideoStream, every: bool) -> av.filter.Graph:
    """The filter for pictures like this one."""
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


def timed(pictures: Iterator[VideoFrame], info: VideoInfo) -> Iterator[Picture]:
    """Decoded frames with their times."""
    step = max(1, round(1 / info.frame_rate / info.time_base))
    expected = 0
    for picture in pictures:
        # A frame without a time follows the one before it at the usual distance.
        ticks = (picture.time_base or info.time_base) / info.time_base  # a filter has its own
        time = expected if picture.pts is None else round(picture.pts * ticks)
        duration = round((picture.duration or 0) * ticks)
        expected = time + (duration or step)
        yield Picture(time, duration, partial(_rgb, picture, info))


def _rgb(picture: VideoFrame, info: VideoInfo, rows: slice) -> Tensor:
    """RGB at the size of the first frame; a stream may change its size on the way."""
    if (picture.height, picture.width) != (info.height, info.width):
        picture = picture.reformat(width=info.width, height=info.height, interpolation="BICUBIC")
    return rgb_of(picture, info.colour, rows)


def turned(frame: Tensor, turn: Turn) -> Tensor:
    """A frame as players show it, by multiples of 90 degrees."""
    frame = frame.flip(-2) if turn.mirrored else frame
    return torch.rot90(frame, round(turn.degrees / 90) % 4, (-2, -1))
