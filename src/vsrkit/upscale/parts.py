"""The scan of a source for times and cuts, and the parts that a job is divided into."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal, TypeAlias

from torch import Tensor

from vsrkit.errors import VideoError
from vsrkit.inference.shots import mark_cuts
from vsrkit.inference.windows import PiecePlan, plan_pieces
from vsrkit.models.spec import Context
from vsrkit.video.read import WHOLE_VIDEO, Source
from vsrkit.video.timestamps import Clock

PART_FRAMES = 48  # least number in every part but the last: the most that a crash can cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a job is. `shot` is the one of the frame that was finished last, from 1."""

    stage: Literal["scan", "upscale", "write"]
    done: int
    total: int | None  # None during the scan of a source whose header has no number of frames
    shot: int = 0
    shots: int = 0


OnProgress: TypeAlias = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Index:
    """The frames of a source by number: when each is shown, and which ones begin a shot."""

    times: tuple[int, ...]  # in units of the source's time base
    last_duration: int
    cuts: tuple[int, ...]

    @property
    def shots(self) -> list[range]:
        """The frames of each shot."""
        return [range(a, b) for a, b in pairwise((0, *self.cuts, len(self.times)))]

    def clock(self, source: Source) -> Clock:
        """The times in the form that the muxer takes."""
        return Clock(self.times, self.last_duration, source.info.time_base)


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive frames of the output that are written as one file, and their pieces."""

    number: int
    start: int
    stop: int
    pieces: tuple[PiecePlan, ...]


def scan(source: Source, on_progress: OnProgress) -> Index:
    """Decode a source once to find times and cuts; calls `on_progress` after every frame."""
    total = source.info.frames if source.span == WHOLE_VIDEO else None
    times: list[int] = []
    durations: list[int] = []

    def frames() -> Iterator[Tensor]:
        for picture in source.pictures():
            times.append(picture.time)
            durations.append(picture.duration)
            yield picture.rgb().clamp(0, 1)

    cuts = []
    for number, (_, begins) in enumerate(mark_cuts(frames())):
        if begins and number:
            cuts.append(number)
        on_progress(Progress(stage="scan", done=number + 1, total=total))
    if not times:
        raise VideoError(f"{source.path} has no frames between --start and --end")
    usual = round(1 / source.info.frame_rate / source.info.time_base)
    return Index(tuple(times), durations[-1] or max(1, usual), tuple(cuts))


def fingerprint(source: Source) -> str:
    """A hash of the content of the source's files."""
    digest = hashlib.blake2b(digest_size=16)
    for path in source.images or (source.path,):
        if source.images:
            digest.update(path.name.encode())
        _add_file(digest, path)
    return digest.hexdigest()


def _add_file(digest: "hashlib.blake2b", path: Path) -> None:
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise VideoError(f"cannot read {path}: {error.strerror}") from error


def plan_parts(
    shots: Iterable[range], context: Context, *, stride: int = 1, frames: int | None = None
) -> Iterator[Part]:
    """Divide a video into parts; they depend on the video and the model only.

    A part consists of whole pieces of one or more shots, so that no frame is computed twice.

    shots: frame numbers of each shot.
    context: frames that the model needs around each one.
    stride: frames to keep of each window, see `plan_pieces`.
    frames: least number of frames of a part; None takes PART_FRAMES.
    """
    least = PART_FRAMES if frames is None else frames
    pieces: list[PiecePlan] = []
    number = start = stop = 0
    for shot in shots:
        for piece in plan_pieces(shot.start, shot.stop, context, stride=stride):
            pieces.append(piece)
            stop = piece.kept[-1] + 1
            if stop - start >= least:
                yield Part(number, start, stop, tuple(pieces))
                pieces, number, start = [], number + 1, stop
    if pieces:
        yield Part(number, start, stop, tuple(pieces))
