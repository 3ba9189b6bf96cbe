"""What the pictures of a video say about its past: interlacing, telecine, black bars, blocks.

Looks at brightness alone, as 8-bit grey, in a few runs of frames spread over the file.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Literal, TypeAlias, get_args

import av
import numpy as np
from numpy.typing import NDArray

from vsrkit.upscale.sampling import count_frames, frames_from, pictures_from, spread
from vsrkit.video.probe import VideoInfo, opened, video_stream
from vsrkit.video.read import Source

Grey = NDArray[np.int16]  # (H, W), 0..255
Field: TypeAlias = Literal["even", "odd"]  # its lines

RUNS, RUN_LENGTH = 4, 26  # five periods of telecine and one frame to compare the first with
MOVED = 12  # grey steps between two frames where something moves
TOOTH = 12 * 12  # product of two steps, to the line above and to the line below, of a comb
COMBED = 0.08  # share of the moving pixels that sit on a comb, from which a frame counts as combed
STIRRED = 0.01  # share of the pixels that must move before a frame says anything about combs
REPEATED = 0.35  # grey steps (mean) below which a frame repeats the one before
CHANGED = 0.1  # grey steps (mean) that the other field changes by where one is repeated
STILL = 0.6  # of the other field's change is what noise and encoder leave in a repeated one
PERIOD = 5  # frames: 3:2 pulldown combs two of them, or repeats one
BLACK = 24  # grey: limited-range black is 16, and encoders leave a little
BAR = 0.02  # share of the height or width from which a black edge is a bar
BLOCKY = 1.8  # steps across the edges of 8x8 blocks, against steps inside
LARGE_STEP = 16  # grey: what is larger is an edge of something, not of a block
LARGE = (2160, 3840)  # 4K
INTERLACED = 0.5  # share of the frames with combs from which a video is called interlaced
# Bits per pixel below which an encoder of this kind had to leave out what one sees.
SPARSE = {"h264": 0.04, "hevc": 0.025, "av1": 0.02, "libdav1d": 0.02, "vp9": 0.025}
SPARSE |= {"mpeg2video": 0.12, "mpeg4": 0.06, "mjpeg": 0.25, "vp8": 0.05, "mpeg1video": 0.12}


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What was seen; None where too little moved to say."""

    combed: float | None  # share of the frames with motion that have combs
    telecine: bool
    bars: tuple[int, int, int, int]  # black pixels at top, bottom, left and right
    blockiness: float  # 1: no edge stands out
    bits_per_pixel: float | None


def look_for_faults(source: Source) -> Faults:
    """Decode a few runs of frames from all over a video (as stored: not deinterlaced)."""
    flags: list[list[tuple[bool | None, bool]]] = []
    fields: list[list[Field | None]] = []
    edges, blocks = _Edges(), []
    for run in _runs(source):
        pictures = list(run)
        for picture in pictures:
            edges.add(picture)
        blocks += [blockiness(picture) for picture in pictures[:: max(1, len(pictures) // 4)]]
        flags.append([(is_combed(a, b), is_repeated(a, b)) for a, b in pairwise(pictures)])
        fields.append([repeated_field(a, b) for a, b in pairwise(pictures)])
    told = [combed for run_flags in flags for combed, _ in run_flags if combed is not None]
    return Faults(
        combed=sum(told) / len(told) if len(told) >= PERIOD else None,
        telecine=any(map(has_pulldown, flags)) or any(map(repeats_fields, fields)),
        bars=edges.bars(),
        blockiness=float(np.median(blocks)) if blocks else 1.0,
        bits_per_pixel=None if source.images else _bits_per_pixel(source),
    )


def warnings(info: VideoInfo, faults: Faults, output_size: tuple[int, int]) -> list[str]:
    """What one would want to know before, each in a line that says what to do."""
    lines = [
        _interlacing(info, faults),
        _bars(info, faults.bars),
        _compression(info, faults),
    ]
    if info.height >= LARGE[0] or info.width >= LARGE[1]:
        lines.append(
            f"already large: {info.width}x{info.height} would become "
            f"{output_size[1]}x{output_size[0]}; few players show that"
        )
    if not info.has("audio"):
        lines.append("no audio: the source has none, and neither will the output")
    return [line for line in lines if line]


def _interlacing(info: VideoInfo, faults: Faults) -> str | None:
    if faults.telecine:
        return (
            "telecine: frames repeat or are combed in the 3:2 rhythm of film on video; "
            "undo it first (ffmpeg's filters fieldmatch and decimate)"
        )
    combed = faults.combed is not None and faults.combed >= INTERLACED
    if info.interlaced and faults.combed is not None and faults.combed < INTERLACED / 5:
        return (
            "marked as interlaced, but no combs were seen; --deinterlace never leaves it alone, "
            "deinterlacing costs some sharpness"
        )
    if info.interlaced:
        return "interlaced: it will be deinterlaced (bwdif), one frame for each frame"
    if combed:
        return (
            "looks interlaced, but is not marked as such, so it will not be deinterlaced; "
            "do that first (ffmpeg's filter bwdif)"
        )
    return None


def _bars(info: VideoInfo, bars: tuple[int, int, int, int]) -> str | None:
    top, bottom, left, right = bars
    black = 1 - (1 - (top + bottom) / info.height) * (1 - (left + right) / info.width)
    if not any(bars):
        return None
    return (
        f"black bars: {top} and {bottom} lines at top and bottom, {left} and {right} columns left "
        f"and right; {black:.0%} of the work goes into them, crop them first"
    )


def _compression(info: VideoInfo, faults: Faults) -> str | None:
    bits = faults.bits_per_pixel
    if bits is not None and bits < SPARSE.get(info.codec, 0):
        return (
            f"heavily compressed: {bits:.3f} bits per pixel of {info.codec}; "
            "what the encoder threw away is not there to be found"
        )
    if faults.blockiness > BLOCKY:
        return (
            f"heavily compressed: edges of blocks stand out {faults.blockiness:.1f} times; "
            "they will be enlarged with the rest"
        )
    return None


def is_combed(before: Grey, now: Grey) -> bool | None:
    """Whether moving parts are torn between even and odd lines; None if nothing moves."""
    if now.shape[0] < 8:
        return None
    moves = np.abs(now - before)[2:-2] > MOVED
    if moves.mean() < STIRRED:
        return None
    # Two neighbours on the same side of a line's value: a tooth. Lines of one field among
    # themselves have none there, but fine texture has both.
    torn = _teeth(now, 1)[1:-1] & ~_teeth(now, 2)
    return bool((torn & moves).sum() > COMBED * moves.sum())


def _teeth(picture: Grey, distance: int) -> NDArray[np.bool_]:
    """Where the lines `distance` above and below both differ to the same side."""
    middle = picture[distance:-distance].astype(np.int32)
    above, below = picture[: -2 * distance] - middle, picture[2 * distance :] - middle
    return above * below > TOOTH


def is_repeated(before: Grey, now: Grey) -> bool:
    """Whether a frame is the one before once more (an encoder may have touched it)."""
    return bool(np.abs(now - before).mean() < REPEATED)


def has_pulldown(flags: Sequence[tuple[bool | None, bool]]) -> bool:
    """Whether combs (two of five frames) or repeats (one of five) come in the rhythm of 3:2.

    flags: (combed, repeated) for each frame after the first of a run.
    """
    if len(flags) < 3 * PERIOD:
        return False
    combed = [bool(comb) for comb, _ in flags]
    repeated = [repeat for _, repeat in flags]
    return _in_rhythm(combed, 2) or (_in_rhythm(repeated, 1) and not any(combed))


def repeated_field(before: Grey, now: Grey) -> Field | None:
    """The field that stays as it was while the other one changes, however little that is."""
    if len(now) < 2:
        return None
    change = np.abs(now - before)
    even, odd = float(change[::2].mean()), float(change[1::2].mean())
    if max(even, odd) < CHANGED or min(even, odd) > STILL * max(even, odd):
        return None
    return "even" if even < odd else "odd"


def repeats_fields(fields: Sequence[Field | None]) -> bool:
    """Whether each field is repeated once in five frames: 3:2, even where no comb can be seen."""
    if len(fields) < 3 * PERIOD:
        return False
    return all(_in_rhythm([field == name for field in fields], 1) for name in get_args(Field))


def _in_rhythm(events: Sequence[bool], of_five: int) -> bool:
    """Whether events fall on the same `of_five` neighbours of every five, but for one in ten."""
    for phase in range(PERIOD):
        expected = [(number + phase) % PERIOD < of_five for number in range(len(events))]
        wrong = sum(a != b for a, b in zip(events, expected, strict=True))
        if wrong <= len(events) // 10:
            return True
    return False


def blockiness(picture: Grey) -> float:
    """Typical step across the edges of an 8x8 grid against that elsewhere; 1 for none.

    Medians of steps that are not large: an encoder's blocks stand out a little and everywhere, but
    edges of things, of bars or of drawings may lie on the grid, too.
    """
    ratios = [
        _on_grid_against_off(before, after)
        for before, after in (
            (picture[:, :-1], picture[:, 1:]),
            (picture[:-1].T, picture[1:].T),
        )
    ]
    return float(np.mean(ratios))


def _on_grid_against_off(before: Grey, after: Grey) -> float:
    """Neighbours in (lines, places along a line), the first eight of them inside a block."""
    seen = (before > BLACK) & (after > BLACK)
    counts = seen.sum(0)
    told = counts > len(seen) / 8
    steps = np.minimum(np.abs(after - before), LARGE_STEP) * seen
    means = steps.sum(0)[told] / counts[told]
    on_grid = (np.arange(len(counts)) % 8 == 7)[told]
    if not on_grid.any() or on_grid.all():
        return 1.0
    # A tenth of a step more on both sides: where all is flat, nothing stands out.
    return float((np.median(means[on_grid]) + 0.1) / (np.median(means[~on_grid]) + 0.1))


class _Edges:
    """The brightest value that each row and each column ever had."""

    def __init__(self) -> None:
        self.rows: NDArray[np.float64] | None = None
        self.columns: NDArray[np.float64] | None = None

    def add(self, picture: Grey) -> None:
        # Not quite the brightest: a speck of noise in a bar is no picture.
        rows, columns = (np.percentile(picture, 98, axis=axis) for axis in (1, 0))
        if self.rows is None or self.columns is None:
            self.rows, self.columns = rows, columns
        elif rows.shape == self.rows.shape and columns.shape == self.columns.shape:
            self.rows, self.columns = (
                np.maximum(self.rows, rows),
                np.maximum(self.columns, columns),
            )

    def bars(self) -> tuple[int, int, int, int]:
        if self.rows is None or self.columns is None or self.rows.max() <= BLACK:
            return 0, 0, 0, 0  # nothing but black
        top, bottom = _dark_ends(self.rows)
        left, right = _dark_ends(self.columns)
        return top, bottom, left, right


def _dark_ends(brightest: NDArray[np.float64]) -> tuple[int, int]:
    bright = np.flatnonzero(brightest > BLACK)
    first, last = int(bright[0]), len(brightest) - 1 - int(bright[-1])
    least = BAR * len(brightest)
    return (first if first >= least else 0), (last if last >= least else 0)


def _runs(source: Source) -> Iterator[Iterable[Grey]]:
    for start in spread(count_frames(source), RUNS, RUN_LENGTH):
        read = _grey_images(source, start) if source.images else _grey_pictures(source, start)
        yield islice(read, RUN_LENGTH)


def _grey_images(source: Source, start: int) -> Iterator[Grey]:
    for frame in frames_from(source, start):
        yield (frame.mean(0) * 255).round().numpy().astype(np.int16)


def _grey_pictures(source: Source, start: int) -> Iterator[Grey]:
    """FFmpeg takes the luma plane as it is."""
    for picture in pictures_from(source, start):
        yield picture.reformat(format="gray8").to_ndarray().astype(np.int16)


def _bits_per_pixel(source: Source, packets: int = 1000) -> float | None:
    """What the encoder spent on a pixel, from the sizes of the first packets."""
    with opened(source.path) as container:
        stream = video_stream(container, source.path)
        try:
            sizes = [packet.size for packet in islice(container.demux(stream), packets)]
        except (av.FFmpegError, ValueError):
            return None
    sizes = [size for size in sizes if size]
    pixels = len(sizes) * source.info.height * source.info.width
    return 8 * sum(sizes) / pixels if pixels else None
