"""The first look at a whole video: when each frame is shown, and where shots begin."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from torch import Tensor

from vsrkit.errors import VideoError
from vsrkit.inference.shots import mark_cuts
from vsrkit.video.mux import Clock
from vsrkit.video.read import Source


@dataclass(frozen=True, slots=True)
class Index:
    """The frames of a video by number: their times and the first ones of its shots."""

    times: tuple[int, ...]  # in units of the source's time base
    last_duration: int
    cuts: tuple[int, ...]

    @property
    def shots(self) -> list[range]:
        """The frames of each shot."""
        return [range(a, b) for a, b in pairwise((0, *self.cuts, len(self.times)))]

    def clock(self, source: Source) -> Clock:
        """The times as the output needs them."""
        return Clock(self.times, self.last_duration, source.info.time_base)


def scan(source: Source, on_frame: Callable[[int], None]) -> Index:
    """Decode a source once. `on_frame(n)` is told after n frames."""
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
        on_frame(number + 1)
    if not times:
        raise VideoError(f"{source.path} has no frames in the time that was asked for")
    usual = round(1 / source.info.frame_rate / source.info.time_base)
    return Index(tuple(times), durations[-1] or max(1, usual), tuple(cuts))


def fingerprint(source: Source) -> str:
    """A hash of everything that the source holds."""
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
