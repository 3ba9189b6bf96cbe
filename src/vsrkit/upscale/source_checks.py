"""Checks of a source video: interlacing, telecine, black bars, compression.

A few runs of consecutive frames, spread over the file, are decoded; only their luma is examined.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice, pairwise
from typing import Literal, TypeAlias, get_args

import av
import numpy as np
from av.filter import Graph
from av.video.format import VideoFormat
from av.video.frame import VideoFrame
from numpy.typing import NDArray
from torch import Tensor

from vsrkit.errors import VideoError
from vsrkit.upscale.options import Deinterlace
from vsrkit.video.colour import to_rgb
from vsrkit.video.images import read_image
from vsrkit.video.opening import packets, video_stream
from vsrkit.video.probe import VideoInfo
from vsrkit.video.read import Source

Grey = NDArray[np.int16]  # (H, W), 0..255
# The brightness of each row and each column of a frame.
Brightness: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]
Field: TypeAlias = Literal["even", "odd"]  # the even or the odd lines

TIME_BASE = Fraction(1, 25)  # of the filter graph; any will do
RUNS, RUN_LENGTH = 4, 26  # five periods of 3:2 pulldown and one frame to compare the first with
PERIOD = 5  # frames after which 3:2 pulldown repeats its pattern
INTERLACED = 0.5  # share of interlaced frames from which a video is called interlaced
PROGRESSIVE = 0.1  # share of interlaced frames below which a video is called progressive
REPEATED_FRAME = 0.35  # mean difference, in grey levels, below which a frame repeats the last one
CHANGED_FIELD = 0.1  # mean difference, in grey levels, from which a field has changed
REPEATED_FIELD = 0.6  # a repeated field changes by less than this share of the other's change
BLACK = 24  # grey level; limited-range black is 16, and encoders add noise
BAR = 0.02  # share of the height or width from which a black edge is a bar
BLOCKY = 1.8  # `blockiness` from which a video is called heavily compressed
LARGE_STEP = 16  # grey levels; larger steps are edges of objects, not of blocks
LARGE = (2160, 3840)  # (height, width) of 4K
# Bits per pixel below which encoders of this kind lose visible detail.
SPARSE = {"h264": 0.04, "hevc": 0.025, "av1": 0.02, "libdav1d": 0.02, "vp9": 0.025}
SPARSE |= {"mpeg2video": 0.12, "mpeg4": 0.06, "mjpeg": 0.25, "vp8": 0.05, "mpeg1video": 0.12}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceChecks:
    """Results of the checks.

    interlaced: share of interlaced frames among those that idet could classify; None if these are
        too few, as in still scenes.
    telecine: whether a run shows the pattern of 3:2 pulldown.
    bars: black lines at the top and bottom, black columns on the left and right.
    blockiness: see `blockiness`.
    bits_per_pixel: of the encoded video; None for images or if unknown.
    """

    interlaced: float | None
    telecine: bool
    bars: tuple[int, int, int, int]
    blockiness: float
    bits_per_pixel: float | None


def check_source(source: Source) -> SourceChecks:
    """Examine a few runs of frames of a video, as stored (not deinterlaced)."""
    interlaced, progressive, telecine = 0, 0, False
    brightness: list[Brightness] = []
    blocks: list[float] = []
    for start in spread(count_frames(source), RUNS, RUN_LENGTH):
        run = list(islice(_grey_frames(source, start), RUN_LENGTH))
        run = [frame for frame in run if frame.shape == run[0].shape]  # images may differ in size
        # A percentile, not the maximum: noise in a bar is ignored.
        brightness += [
            (np.percentile(frame, 98, axis=1), np.percentile(frame, 98, axis=0)) for frame in run
        ]
        blocks += [blockiness(frame) for frame in run[:: max(1, len(run) // 4)]]
        flags = interlaced_frames(run)
        interlaced += flags.count(True)
        progressive += flags.count(False)
        telecine = telecine or has_pulldown(run, flags)
    classified = interlaced + progressive
    return SourceChecks(
        interlaced=interlaced / classified if classified >= PERIOD else None,
        telecine=telecine,
        bars=_find_bars(brightness),
        blockiness=float(np.median(blocks)) if blocks else 1.0,
        bits_per_pixel=None if source.images else _bits_per_pixel(source),
    )


def warnings(
    info: VideoInfo, checks: SourceChecks, output_size: tuple[int, int], deinterlace: Deinterlace
) -> list[str]:
    """One line for each problem, with what to do about it.

    Args:
        info: the source.
        checks: the result of `check_source`.
        output_size: (height, width) of the output.
        deinterlace: as in `UpscaleOptions`.
    """
    lines = [_interlacing(info, checks, deinterlace), _bars(info, checks.bars)]
    lines.append(_compression(info, checks))
    if info.height >= LARGE[0] or info.width >= LARGE[1]:
        lines.append(
            f"already large: {info.width}x{info.height} would become "
            f"{output_size[1]}x{output_size[0]}, which few players can show"
        )
    if not info.has("audio"):
        lines.append("no audio: the source has no audio stream, so the output has none")
    return [line for line in lines if line]


def _interlacing(info: VideoInfo, checks: SourceChecks, deinterlace: Deinterlace) -> str | None:
    if checks.telecine:
        return (
            "telecine: frames or fields repeat in the 3:2 pattern of film transferred to video; "
            "undo it first (FFmpeg filters fieldmatch and decimate)"
        )
    share = checks.interlaced
    progressive = share is not None and share < PROGRESSIVE
    if deinterlace == "never":
        combs = "interlaced: --deinterlace never upscales the combs of moving edges as well"
        interlaced = info.interlaced or (share or 0) >= INTERLACED
        return combs if interlaced and not progressive else None
    if deinterlace == "always":
        soft = "looks progressive: --deinterlace always costs some sharpness"
        return soft if progressive else None
    if info.interlaced and progressive:
        return (
            "flagged interlaced, but looks progressive; deinterlacing costs some sharpness, "
            "use --deinterlace never to avoid it"
        )
    if info.interlaced:
        return "interlaced: it will be deinterlaced (bwdif), one output frame per input frame"
    if share is not None and share >= INTERLACED:
        return (
            "looks interlaced, but is not flagged as such, so it will not be deinterlaced; "
            "use --deinterlace always"
        )
    return None


def _bars(info: VideoInfo, bars: tuple[int, int, int, int]) -> str | None:
    if not any(bars):
        return None
    top, bottom, left, right = bars
    black = 1 - (1 - (top + bottom) / info.height) * (1 - (left + right) / info.width)
    return (
        f"black bars: {top} lines at the top, {bottom} at the bottom, {left} columns on the left, "
        f"{right} on the right; they take {black:.0%} of the computation, crop them first"
    )


def _compression(info: VideoInfo, checks: SourceChecks) -> str | None:
    bits = checks.bits_per_pixel
    if bits is not None and bits < SPARSE.get(info.codec, 0):
        return (
            f"heavily compressed: {bits:.3f} bits per pixel of {info.codec}; "
            "detail that the encoder removed cannot be restored"
        )
    if checks.blockiness > BLOCKY:
        return (
            f"heavily compressed: steps at block edges are {checks.blockiness:.1f} times as large "
            "as elsewhere; the blocks will be enlarged, too"
        )
    return None


def interlaced_frames(run: Sequence[Grey]) -> list[bool | None]:
    """Classify frames with FFmpeg's idet: True interlaced, False progressive, None undetermined."""
    if not run or run[0].shape[0] < 8:
        return [None] * len(run)
    interlaced = _idet(run, "ends_with", "ff")  # tff or bff: top or bottom field first
    progressive = _idet(run, "same_str", "progressive")
    return [n in interlaced if n in interlaced | progressive else None for n in range(len(run))]


def _idet(run: Sequence[Grey], function: str, value: str) -> set[int]:
    """Numbers of the frames whose class, given by idet, compares to `value` by `function`."""
    # The filter `metadata` drops the other frames: PyAV before 18.1 cannot read a frame's metadata.
    select = f"mode=select:key=lavfi.idet.single.current_frame:value={value}:function={function}"
    height, width = run[0].shape
    graph = Graph()
    graph.link_nodes(
        graph.add_buffer(
            width=width, height=height, format=VideoFormat("gray8"), time_base=TIME_BASE
        ),
        graph.add("idet"),
        graph.add("metadata", select),
        graph.add("buffersink"),
    ).configure()
    for number, grey in enumerate(run):
        frame = VideoFrame.from_ndarray(grey.astype(np.uint8), format="gray8")
        frame.pts, frame.time_base = number, TIME_BASE
        graph.vpush(frame)
    graph.vpush(None)
    found: set[int] = set()
    while True:
        try:
            found.add(graph.vpull().pts or 0)
        except (av.BlockingIOError, av.EOFError):
            return found


def has_pulldown(run: Sequence[Grey], interlaced: Sequence[bool | None]) -> bool:
    """Whether frames show the pattern of 3:2 pulldown in one of its three forms.

    Two of five frames are woven from different film frames (idet then reports four of five, since
    it compares neighbours), each field is repeated once in five frames (visible even in motion too
    slow for idet), or one of five frames is repeated.

    Args:
        run: consecutive frames.
        interlaced: what `interlaced_frames` returned for them.
    """
    if len(run) <= 3 * PERIOD:
        return False
    pairs = list(pairwise(run))
    fields = [repeated_field(*pair) for pair in pairs]
    return (
        is_periodic([bool(flag) for flag in interlaced[1:-1]], 4)
        or all(is_periodic([field == name for field in fields], 1) for name in get_args(Field))
        or is_periodic([is_repeated(*pair) for pair in pairs], 1)
    )


def is_repeated(before: Grey, now: Grey) -> bool:
    """Whether a frame repeats the one before, up to the noise of an encoder."""
    return bool(np.abs(now - before).mean() < REPEATED_FRAME)


def repeated_field(before: Grey, now: Grey) -> Field | None:
    """The field that is repeated while the other one changes, if any."""
    if len(now) < 2:
        return None
    change = np.abs(now - before)
    even, odd = float(change[::2].mean()), float(change[1::2].mean())
    if max(even, odd) < CHANGED_FIELD or min(even, odd) > REPEATED_FIELD * max(even, odd):
        return None
    return "even" if even < odd else "odd"


def is_periodic(events: Sequence[bool], count: int) -> bool:
    """Whether `count` adjacent events of every five are True; one in ten may deviate."""
    deviations = [
        sum(event != ((n + phase) % PERIOD < count) for n, event in enumerate(events))
        for phase in range(PERIOD)
    ]
    return min(deviations) <= len(events) // 10


def blockiness(frame: Grey) -> float:
    """Typical step across the edges of an 8x8 grid, relative to steps elsewhere; 1 for no blocks.

    Uses medians, and limits large steps: the blocks of an encoder cause small steps on the whole
    grid, while edges of objects, bars and drawings cause large ones in a few places.
    """
    ratios = [
        _grid_ratio(before, after)
        for before, after in ((frame[:, :-1], frame[:, 1:]), (frame[:-1].T, frame[1:].T))
    ]
    return float(np.mean(ratios))


def _grid_ratio(before: Grey, after: Grey) -> float:
    """The ratio along the second axis; `before` and `after` are neighbours along it."""
    visible = (before > BLACK) & (after > BLACK)
    counts = visible.sum(0)
    usable = counts > len(visible) / 8
    steps = np.minimum(np.abs(after - before), LARGE_STEP) * visible
    means = steps.sum(0)[usable] / counts[usable]
    on_grid = (np.arange(len(counts)) % 8 == 7)[usable]
    if not on_grid.any() or on_grid.all():
        return 1.0
    # The constant keeps the ratio near 1 in flat frames.
    return float((np.median(means[on_grid]) + 0.1) / (np.median(means[~on_grid]) + 0.1))


def _find_bars(brightness: Sequence[Brightness]) -> tuple[int, int, int, int]:
    """Black lines at the top and bottom, columns on the left and right, black in all frames."""
    sizes = [tuple(map(len, frame)) for frame in brightness]
    same = [frame for frame, size in zip(brightness, sizes, strict=True) if size == sizes[0]]
    if not same:
        return 0, 0, 0, 0
    rows, columns = (np.max(values, axis=0) for values in zip(*same, strict=True))
    if rows.max() <= BLACK:  # all frames are black
        return 0, 0, 0, 0
    return *_dark_ends(rows), *_dark_ends(columns)


def _dark_ends(brightness: NDArray[np.float64]) -> tuple[int, int]:
    bright = np.flatnonzero(brightness > BLACK)
    first, last = int(bright[0]), len(brightness) - 1 - int(bright[-1])
    least = BAR * len(brightness)
    return (first if first >= least else 0), (last if last >= least else 0)


def _bits_per_pixel(source: Source, count: int = 1000) -> float | None:
    """Bits per pixel of the encoded video, from the sizes of its first packets."""
    with source.open() as container:
        stream = video_stream(container, source.path)
        try:
            sizes = [packet.size for packet in islice(packets(container, stream), count)]
        except (av.FFmpegError, ValueError):
            return None
    sizes = [size for size in sizes if size]
    pixels = len(sizes) * source.info.height * source.info.width
    return 8 * sum(sizes) / pixels if pixels else None


def spread(frames: int, runs: int, length: int) -> list[int]:
    """First frames of up to `runs` runs of `length` frames, evenly spread, not overlapping."""
    runs = max(1, min(runs, frames // length))
    return [number * max(0, frames - length) // max(1, runs - 1) for number in range(runs)]


def count_frames(source: Source) -> int:
    """Number of frames within the span, by the header or the duration; 0 if neither is known."""
    info = source.info
    frames = info.frames or round((info.duration_s or 0) * info.frame_rate)
    begin, end = (None if s is None else round(s * info.frame_rate) for s in source.span)
    return max(0, min(frames, frames if end is None else end) - (begin or 0))


def sample(source: Source, length: int) -> list[Tensor]:
    """`length` consecutive frames (3, H, W) from the middle; short videos repeat their last."""
    start = max(0, (count_frames(source) - length) // 2)
    frames: list[Tensor] = []
    for place in dict.fromkeys((start, 0)):  # a file may be shorter than its header says
        frames = list(islice(_rgb_frames(source, place), length))
        if len(frames) == length:
            break
    if not frames:
        raise VideoError(f"no frame of {source.path} can be decoded again after the first ones")
    return frames + frames[-1:] * (length - len(frames))


def _rgb_frames(source: Source, start: int) -> Iterator[Tensor]:
    """Frames (3, H, W) from number `start` on."""
    if source.images:
        yield from (read_image(path) for path in source.images[start:])
    else:
        yield from (to_rgb(frame, source.info.colour) for frame in _decoded(source, start))


def _grey_frames(source: Source, start: int) -> Iterator[Grey]:
    """Frames as luma from number `start` on; of a video, FFmpeg copies the luma plane."""
    if source.images:
        for frame in _rgb_frames(source, start):
            yield (frame.mean(0) * 255).round().numpy().astype(np.int16)
    else:
        for picture in _decoded(source, start):
            yield picture.reformat(format="gray8").to_ndarray().astype(np.int16)


def _decoded(source: Source, start: int) -> Iterator[VideoFrame]:
    """Decoded frames of a video file, as stored, from the last key frame before `start` on.

    Begins with the first frame if the file is not seekable. Skips damaged packets and frames of
    another size.
    """
    with source.open() as container:
        stream = video_stream(container, source.path)
        stream.thread_type = "AUTO"
        if start > 0:
            offset = round(start / source.info.frame_rate / source.info.time_base)
            try:
                container.seek(offset + (stream.start_time or 0), stream=stream)
            except (av.FFmpegError, ValueError):
                container.seek(0)
        size: tuple[int, int] | None = None
        try:
            for packet in packets(container, stream):
                try:
                    frames = packet.decode()
                except (av.FFmpegError, ValueError):
                    continue
                for frame in frames:
                    size = size or (frame.height, frame.width)
                    if size == (frame.height, frame.width):
                        yield frame
        except (av.FFmpegError, ValueError):
            return
