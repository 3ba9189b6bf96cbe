"""What is read from videos: properties, remarks, pictures. Runs in a worker process."""

from collections import deque
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import torch
from PIL import Image
from torch import Tensor

from vsrkit.errors import VideoError
from vsrkit.hardware.files import write_atomically
from vsrkit.inference.shots import mark_cuts
from vsrkit.models.layers.resample import fitted
from vsrkit.upscale.source_checks import check_source, count_frames, warnings
from vsrkit.video.images import encode_png
from vsrkit.video.probe import VideoInfo
from vsrkit.video.read import EntryPoint, Picture, Source, open_source, orient

THUMBNAIL_WIDTH = 320
LONGEST_TEXT = 200  # characters of the titles in strangers' files
# Pixels that are decoded to find the shots of a video: a few seconds. Longer videos get MOMENTS.
SCANNED = 300_000_000
MOMENTS = 12
MOST_SHOTS = 200
HDR_TRANSFERS = (16, 18)  # PQ and HLG, H.273
FACTOR = 4  # of the output size that remarks about large videos mention
# Codecs that browsers play, by FFmpeg's name of the decoder.
PLAYABLE = {
    "h264": ("yuv420p", "yuvj420p"),
    "vp8": ("yuv420p",),
    "vp9": ("yuv420p",),
    "av1": ("yuv420p", "yuv420p10le"),
}


def inspect(path: Path, thumbnail: Path) -> dict[str, Any]:
    """The properties of a video for the library; writes its thumbnail."""
    source = open_file(path)
    frames = count_frames(source)
    middle = frames / source.info.frame_rate / 3
    write_atomically(thumbnail, _jpeg(shown_frame(source, float(middle))[1], THUMBNAIL_WIDTH))
    return describe(source.info, frames)


def describe(info: VideoInfo, frames: int) -> dict[str, Any]:
    """The properties of a video as plain values."""
    width, height = info.width, info.height
    if info.rotation % 180:
        width, height = height, width
    return {
        "width": width,
        "height": height,
        "fps": float(info.frame_rate),
        "frame_rate": str(info.frame_rate),
        "frames": frames,
        "duration_s": info.duration_s,
        "codec": codec_of(info),
        "pix_fmt": info.pix_fmt,
        "bits": info.bits,
        "pixel_aspect": float(
            1 / info.sample_aspect if info.rotation % 180 else info.sample_aspect
        ),
        "interlaced": info.interlaced,
        "hdr": info.hdr is not None or info.colour.transfer in HDR_TRANSFERS,
        "playable": is_playable(info),
        "streams": [
            {
                "kind": stream.kind,
                "codec": stream.codec,
                "language": stream.language and stream.language[:LONGEST_TEXT],
                "title": stream.title and stream.title[:LONGEST_TEXT],
            }
            for stream in info.streams
        ],
    }


def codec_of(info: VideoInfo) -> str:
    """The name of a codec; decoders of AV1 have several."""
    return "av1" if "av1" in info.codec else info.codec


def is_playable(info: VideoInfo) -> bool:
    """Whether browsers know the codec and the pixel format of a video."""
    return info.pix_fmt in PLAYABLE.get(codec_of(info), ())


def remarks(path: Path) -> list[str]:
    """What the source checks say about a video, for an output of four times its size."""
    source = open_file(path)
    info = source.info
    size = (FACTOR * info.height, FACTOR * info.width)
    return warnings(info, check_source(source), size, source.deinterlace)


def strip(path: Path) -> dict[str, Any]:
    """The shots of a video with a time in the middle of each; of long ones, moments."""
    source = open_file(path)
    info = source.info
    frames = count_frames(source)
    length = info.duration_s or float(frames / info.frame_rate)
    if frames * info.height * info.width > SCANNED:
        return _strip("moments", [length * number / MOMENTS for number in range(MOMENTS + 1)])
    times: list[Fraction] = []

    def read() -> Iterator[Tensor]:
        for picture in source.pictures():
            times.append(picture.time * info.time_base)
            yield picture.rgb().clamp_(0, 1)

    cuts = [number for number, (_, begins) in enumerate(mark_cuts(read())) if begins]
    if not times:
        raise VideoError(f"{path.name} has no frames")
    end = times[-1] + 1 / info.frame_rate
    steps = [times[number] for number in (0, *cuts[: MOST_SHOTS - 1])]
    return _strip("shots", [float(time - times[0]) for time in (*steps, end)])


def _strip(kind: str, steps: list[float]) -> dict[str, Any]:
    shots = [{"start_s": a, "end_s": b, "time_s": (a + b) / 2} for a, b in pairwise(steps)]
    return {"kind": kind, "shots": shots}


def frame(path: Path, seconds: float, width: int | None) -> tuple[bytes, float]:
    """The frame that is shown at a time, and its own time.

    width: of a JPEG; None for a lossless PNG of full size.
    """
    source = open_file(path)
    time, rgb = shown_frame(source, seconds)
    if width is not None:
        return _jpeg(rgb, width), time
    return encode_png(rgb, bits=16 if source.info.bits > 8 else 8), time


def shown_frame(source: Source, seconds: float) -> tuple[float, Tensor]:
    """Time and RGB (3, H, W) of the frame that a player displays at a time.

    seconds: from the first frame; times outside of the video give its first or last frame.
    """
    (found,), _ = pictures_around(source, seconds, 0, 0)
    rgb = orient(found.rgb().clamp_(0, 1), source.info.orientation)
    return float((found.time - first_time(source)) * source.info.time_base), rgb


def pictures_around(
    source: Source, seconds: float, before: int, after: int
) -> tuple[list[Picture], int]:
    """The picture that a player displays at a time, its neighbours, and its place among these.

    seconds: as for `shown_frame`.
    before, after: numbers of neighbours; there are fewer at the ends of the video.
    """
    info = source.info
    first = first_time(source)
    wanted = max(first, first + round(Fraction(seconds) / info.time_base))
    # One more, because the first frame after a seek is wrong if a filter reads the one before it.
    begin = wanted - round((before + source.deinterlaced) / info.frame_rate / info.time_base)
    for back in (0, 2, 10):  # seconds to seek further back: the index of some files is wrong
        time = begin - round(back / info.time_base)
        if time <= first:
            break
        read = source.pictures_after_seek(EntryPoint(time, None, None))
        if found := _around(read, wanted, before, after):
            return found
    found = _around(source.pictures(), wanted, before, after)
    if found is None:
        raise VideoError(f"{source.path.name} has no frames")
    return found


def _around(
    pictures: Iterator[Picture], wanted: int, before: int, after: int
) -> tuple[list[Picture], int] | None:
    held: deque[Picture] = deque(maxlen=before + 1)
    later: list[Picture] = []
    try:
        for picture in pictures:
            if picture.time <= wanted:
                held.append(picture)
                continue
            if len(later) < after:
                later.append(picture)
            if len(later) == after:
                break
    except (VideoError, av.FFmpegError):  # nothing after the seek
        return None
    return ([*held, *later], len(held) - 1) if held else None


def first_time(source: Source) -> int:
    """The time of the first frame, in units of the source's time base."""
    return next(iter(source.pictures())).time


def open_file(path: Path) -> Source:
    """A video of the library; its properties are read once for each version of the file."""
    return _open(str(path), path.stat().st_mtime_ns)


@lru_cache(maxsize=16)
def _open(path: str, mtime_ns: int) -> Source:
    """An open source; `mtime_ns` tells apart versions of the file."""
    return open_source(path)


def _jpeg(rgb: Tensor, width: int) -> bytes:
    height = max(1, round(rgb.shape[-2] * width / rgb.shape[-1]))
    small = fitted(rgb, height, width) if width < rgb.shape[-1] else rgb
    values = (small.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).contiguous()
    file = BytesIO()
    Image.fromarray(values.numpy()).save(file, "JPEG", quality=80)
    return file.getvalue()
