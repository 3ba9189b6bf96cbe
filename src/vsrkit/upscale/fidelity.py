"""The fidelity report: how well an upscaled video agrees with its source, shot by shot.

A real video has no ground truth, but its output can be compared with the input: downscaled, it
should equal the input; it should change from frame to frame as the input does; and its mean colours
should stay the same.
"""

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryFile

import torch
from torch import Tensor

from vsrkit.errors import VideoError
from vsrkit.evaluate.metric_weights import metric_available
from vsrkit.evaluate.metrics import NIQE_BLOCK, luma, worst_crop
from vsrkit.evaluate.niqe import niqe
from vsrkit.evaluate.page import inline_png, render_page
from vsrkit.hardware.files import write_atomically
from vsrkit.inference.shots import mark_cuts
from vsrkit.models.layers.resample import bicubic_matrix, resample
from vsrkit.video.images import encode_png
from vsrkit.video.probe import UPRIGHT
from vsrkit.video.read import Source, open_source, orient

CROP = (270, 480)  # (height, width) of the pictures, in output pixels
WORST = 8  # frames on the page
POINTS = 600  # of the curve, at most
NIQE_EVERY = 25  # frames
SAME = 99.0  # dB reported for equal frames


@dataclass(slots=True)
class Shot:
    """One shot and its scores; means over its frames.

    first: number of its first frame.
    start_s: time of that frame in seconds.
    consistency: PSNR in dB of the output, downscaled by antialiased bicubic, against the input.
    lowest, lowest_frame: the lowest consistency of a frame, and the number of this frame.
    flicker: mean absolute difference between the frame-to-frame change of the output and that of
        the bicubically enlarged input, in steps of 1/255 of luma.
    drift: mean of the output minus mean of the input, in steps of 1/255 (R, G, B).
    niqe: of the bicubically enlarged input and of the output, mean over every 25th frame; None if
        the weights of NIQE are not installed or the frames are too small.
    """

    first: int
    start_s: float
    frames: int = 0
    consistency: float = 0.0
    lowest: float = math.inf
    lowest_frame: int = 0
    flicker: float = 0.0
    drift: tuple[float, float, float] = (0.0, 0.0, 0.0)
    niqe: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class WorstCrop:
    """The crop of a frame with the largest deviation from the input, as PNG files."""

    frame: int
    shot: int
    consistency: float
    before: bytes  # bicubic enlargement of the input
    after: bytes  # output


@dataclass(slots=True)
class Fidelity:
    """The measurements that the page shows."""

    size: tuple[int, int]  # (height, width) of the input
    output_size: tuple[int, int]
    frames: int = 0
    missing: int = 0  # input frames minus output frames
    shots: list[Shot] = field(default_factory=list)
    worst: list[WorstCrop] = field(default_factory=list)
    curve: list[float] = field(default_factory=list)  # consistency of each frame


def write_report(source: Source | str | Path, target: Source | str | Path, page: Path) -> Fidelity:
    """Compare a video with its upscaled version and write the report.

    Args:
        source: the input.
        target: the output.
        page: HTML file to write.
    """
    source, target = (x if isinstance(x, Source) else open_source(x) for x in (source, target))
    fidelity = compare_videos(source, target)
    write_atomically(page, report_page(fidelity, source.path.name, target.path.name))
    return fidelity


def check_page(page: Path) -> None:
    """Raise VideoError if the report cannot be written, so that a long job is not run in vain."""
    if page.is_dir():
        raise VideoError(f"{page} is a folder; name the report as a file, such as report.html")
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=page.parent):
            pass
    except OSError as error:
        raise VideoError(f"cannot write the report {page}: {error.strerror}") from error


@torch.inference_mode()
def compare_videos(source: Source, target: Source) -> Fidelity:
    """Decode both videos in parallel and compare their frames; keeps a few frames in memory."""
    outputs = target.frames()
    times: deque[Fraction] = deque()  # of the frames that were read, but not yet compared

    def read() -> Iterator[Tensor]:
        for picture in source.pictures():
            times.append(picture.time * source.info.time_base)
            yield picture.rgb()

    same = source.info.orientation == target.info.orientation  # images are written upright
    turn = UPRIGHT if same else source.info.orientation
    meter: _Meter | None = None
    for frame, cut in mark_cuts(read()):
        lr, sr = orient(frame, turn), next(outputs, None)
        if meter is None:
            if sr is None:
                raise VideoError(f"{target.path} contains no frames to compare")
            meter = _Meter(lr, sr)
        if sr is None:
            meter.fidelity.missing += 1
            continue
        meter.add(lr, sr, cut=cut, seconds=float(times.popleft()))
    if meter is None:
        raise VideoError(f"{source.path} contains no frames to compare")
    meter.fidelity.missing -= sum(1 for _ in outputs)
    return meter.finished()


class _Meter:
    """Adds up the scores of frame pairs, shot by shot."""

    def __init__(self, lr: Tensor, sr: Tensor) -> None:
        self.fidelity = Fidelity(_size(lr), _size(sr))
        (height, width), (high, wide) = self.fidelity.size, self.fidelity.output_size
        if min(high, wide) < 1 or (high < height) or (wide < width):
            raise VideoError(
                f"the output is {wide}x{high}, smaller than the input ({width}x{height}); "
                "a report needs an upscaled video"
            )
        self.down = (
            bicubic_matrix(high, Fraction(height, high)),
            bicubic_matrix(wide, Fraction(width, wide)),
        )
        self.up = (
            bicubic_matrix(height, Fraction(high, height)),
            bicubic_matrix(width, Fraction(wide, width)),
        )
        self.before: tuple[Tensor, Tensor] | None = None  # previous bicubic and output luma
        large = min(high, wide) >= NIQE_BLOCK and max(high, wide) >= 2 * NIQE_BLOCK
        self.measures_niqe = large and metric_available("niqe")
        self.niqes: list[tuple[float, float]] = []  # of the current shot

    def add(self, lr: Tensor, sr: Tensor, *, cut: bool, seconds: float) -> None:
        fidelity = self.fidelity
        lr, sr = lr.clamp(0, 1), sr.clamp(0, 1)
        if cut or not fidelity.shots:
            fidelity.shots.append(Shot(first=fidelity.frames, start_s=seconds))
            self.before = None
            self.niqes = []
        shot = fidelity.shots[-1]
        if self.measures_niqe and shot.frames % NIQE_EVERY == 0:
            self.niqes.append((niqe(resample(lr, *self.up)), niqe(sr)))
            count = len(self.niqes)
            shot.niqe = (
                sum(a for a, _ in self.niqes) / count,
                sum(b for _, b in self.niqes) / count,
            )
        error = (resample(sr, *self.down) - lr).square().mean(0)  # (H, W)
        decibels = min(SAME, -10 * math.log10(max(float(error.mean()), 1e-12)))
        bicubic = resample(luma(lr * 255), *self.up)
        now = (bicubic, luma(sr * 255))
        if self.before is not None:
            change = (now[1] - self.before[1]) - (now[0] - self.before[0])
            shot.flicker += float(change.abs().mean())
        self.before = now
        drift = (sr.mean((1, 2)) - lr.mean((1, 2))) * 255
        shot.drift = tuple(a + float(b) for a, b in zip(shot.drift, drift, strict=True))  # type: ignore[assignment]
        shot.consistency += decibels
        shot.frames += 1
        if decibels < shot.lowest:
            shot.lowest, shot.lowest_frame = decibels, fidelity.frames
            self._keep_crop(lr, sr, error, decibels)
        fidelity.curve.append(round(decibels, 2))
        fidelity.frames += 1

    def _keep_crop(self, lr: Tensor, sr: Tensor, error: Tensor, decibels: float) -> None:
        """Keep a crop of this frame if it is among the worst; at most one per shot."""
        kept, shot = self.fidelity.worst, len(self.fidelity.shots) - 1
        others = [worst for worst in kept if worst.shot != shot]
        if len(others) >= WORST and decibels >= max(x.consistency for x in others):
            return
        top, left = _worst_crop(error, self.fidelity.output_size)
        part = (..., slice(top, top + CROP[0]), slice(left, left + CROP[1]))
        before = resample(lr, *self.up)[part]
        worst = WorstCrop(
            self.fidelity.frames, shot, decibels, encode_png(before), encode_png(sr[part])
        )
        self.fidelity.worst = sorted([*others, worst], key=lambda x: x.consistency)[:WORST]

    def finished(self) -> Fidelity:
        for shot in self.fidelity.shots:
            shot.consistency /= shot.frames
            shot.flicker /= max(shot.frames - 1, 1)
            shot.drift = tuple(total / shot.frames for total in shot.drift)  # type: ignore[assignment]
        return self.fidelity


def _size(frame: Tensor) -> tuple[int, int]:
    return frame.shape[-2], frame.shape[-1]


def _worst_crop(error: Tensor, output_size: tuple[int, int]) -> tuple[int, int]:
    """Top and left of the worst crop, in output pixels; `error` is that of each input pixel."""
    ratio = output_size[0] / error.shape[0], output_size[1] / error.shape[1]
    height, width = (
        max(1, min(side, round(crop / r)))
        for side, crop, r in zip(error.shape, CROP, ratio, strict=True)
    )
    top, left = worst_crop(error, height, width, step=max(1, min(height, width) // 4))
    return round(top * ratio[0]), round(left * ratio[1])


def report_page(fidelity: Fidelity, source: str, target: str) -> str:
    """The report as HTML, with all pictures inside.

    Args:
        fidelity: the measurements.
        source: name of the input, for the title.
        target: name of the output, for the title.
    """
    (height, width), (high, wide) = fidelity.size, fidelity.output_size
    worst = [
        asdict(crop) | {"before": inline_png(crop.before), "after": inline_png(crop.after)}
        for crop in fidelity.worst
    ]
    return render_page(
        "upscale/fidelity.html",
        title=f"Fidelity of {target} to {source}",
        summary=f"{fidelity.frames} frames, {width}x{height} to {wide}x{high}, "
        f"{len(fidelity.shots)} shot{'s' if len(fidelity.shots) != 1 else ''}.",
        warning=_warning(fidelity),
        report={
            "shots": [asdict(shot) for shot in fidelity.shots],
            "worst": worst,
            "curve": _thinned(fidelity.curve),
            "frames": fidelity.frames,
            "niqe": any(shot.niqe for shot in fidelity.shots),
        },
    )


def _warning(fidelity: Fidelity) -> str:
    count = abs(fidelity.missing)
    if not count:
        return ""
    frames = f"{count} frame{'s' if count != 1 else ''}"
    return f"The output has {frames} {'fewer' if fidelity.missing > 0 else 'more'} than the input."


def _thinned(curve: list[float]) -> list[list[float]]:
    """[frame, lowest value] of at most POINTS equal intervals, so that no bad frame is lost."""
    step = -(-len(curve) // POINTS) or 1
    return [[start, min(curve[start : start + step])] for start in range(0, len(curve), step)]
