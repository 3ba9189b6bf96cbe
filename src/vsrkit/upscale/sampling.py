"""A few frames from all over a video, without reading what lies between."""

from collections.abc import Iterator

import av
import torch
from av.video.frame import VideoFrame
from torch import Tensor

from vsrkit.video.colour import rgb_of
from vsrkit.video.images import read_image
from vsrkit.video.probe import opened, video_stream
from vsrkit.video.read import Source


def spread(frames: int, runs: int, length: int) -> list[int]:
    """Where up to `runs` runs of `length` frames begin: evenly spread, not overlapping."""
    runs = max(1, min(runs, frames // length))
    return [number * max(0, frames - length) // max(1, runs - 1) for number in range(runs)]


def count_frames(source: Source) -> int:
    """As the file says, or else by its duration, within the span; 0 if neither is known."""
    info = source.info
    frames = info.frames or round((info.duration_s or 0) * info.frame_rate)
    begin, end = (None if s is None else round(s * info.frame_rate) for s in source.span)
    return max(0, min(frames, frames if end is None else end) - (begin or 0))


def pictures_from(source: Source, frame: int) -> Iterator[VideoFrame]:
    """Decoded frames of a video file from the key frame before `frame` on, as they are stored.

    Where a file offers no place to jump to, from its beginning. Damaged packets are passed over.
    """
    with opened(source.path) as container:
        stream = video_stream(container, source.path)
        stream.thread_type = "AUTO"
        if frame > 0:
            offset = round(frame / source.info.frame_rate / source.info.time_base)
            try:
                container.seek(offset + (stream.start_time or 0), stream=stream)
            except (av.FFmpegError, ValueError):
                container.seek(0)
        size: tuple[int, int] | None = None
        try:
            for packet in container.demux(stream):
                try:
                    pictures = packet.decode()
                except (av.FFmpegError, ValueError):
                    continue
                for picture in pictures:
                    size = size or (picture.height, picture.width)
                    if size == (picture.height, picture.width):
                        yield picture
        except (av.FFmpegError, ValueError):
            return


def frames_from(source: Source, frame: int) -> Iterator[Tensor]:
    """The same as RGB, (3, H, W) each; image files as well."""
    if source.images:
        yield from (read_image(path) for path in source.images[frame:])
    else:
        for picture in pictures_from(source, frame):
            yield rgb_of(picture, source.info.colour)


def sample(source: Source, length: int) -> list[Tensor]:
    """`length` frames in a row from the middle; a shorter video repeats its last."""
    start = max(0, (count_frames(source) - length) // 2)
    frames: list[Tensor] = []
    for place in dict.fromkeys((start, 0)):  # a file may end before its header says
        frames = []
        for frame in frames_from(source, place):
            frames.append(frame)
            if len(frames) == length:
                return frames
    return frames + frames[-1:] * (length - len(frames))


def middle(frames: list[Tensor], height: int, width: int) -> Tensor:
    """The middle part of frames, at most `height` x `width`: (T, 3, H', W')."""
    high, wide = frames[0].shape[-2:]
    height, width = min(height, high), min(width, wide)
    top, left = (high - height) // 2, (wide - width) // 2
    return torch.stack([f[:, top : top + height, left : left + width] for f in frames])
