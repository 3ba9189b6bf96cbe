"""Read frames of a video by number, with seeks that are proven to give the same frames.

Frames decoded after a seek can differ from those decoded in a row: open groups of pictures, gradual
refresh, damaged packets, deinterlacing and containers with a wrong index all cause that. So the
scan, which decodes the whole video, records a checksum of every frame. A frame that is read after
a seek is used only if it has that checksum; else the seek is repeated to an earlier key frame, and
at last the video is decoded from its start.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, product
from typing import NamedTuple, TypeAlias

import av
from av.format import Flags

from vsrkit.errors import VideoError
from vsrkit.video.read import UNINDEXED, EntryPoint, Picture, Source

KEY_DISTANCE = 24  # frames between recorded key frames, at least; some codecs have only key frames
SEEK_DISTANCE = 48  # frames; to decode fewer is as fast as to open the file again
ATTEMPTS = (1, 2, 5)  # which of the key frames before a frame are tried, counted from the last one
LOOKAHEAD = 32  # pictures among which a key frame is searched by its checksum

NumberedPicture: TypeAlias = tuple[int, Picture]


class KeyFrame(NamedTuple):
    """The first frame that is right after a seek to its entry point."""

    number: int
    timestamp: int | None  # as in `Picture`
    checksum: int
    entry: EntryPoint


@dataclass(frozen=True, slots=True)
class SeekTable:
    """What a scan recorded of a video: where to seek, and how to check the frames after that."""

    keys: tuple[KeyFrame, ...] = ()
    checksums: tuple[int, ...] = ()  # of consecutive frames
    first: int = 0  # number of the first of these

    def checksum(self, number: int) -> int | None:
        """The checksum of a frame; None if it was not recorded."""
        place = number - self.first
        return self.checksums[place] if 0 <= place < len(self.checksums) else None

    def keys_until(self, number: int) -> tuple[KeyFrame, ...]:
        """The key frames up to a frame, this one included."""
        return self.keys[: bisect_right(self.keys, number, key=lambda key: key.number)]

    def between(self, start: int, stop: int) -> "SeekTable":
        """The rows that suffice to read the frames `start` to `stop - 1`, about a kilobyte."""
        earlier = max(0, len(self.keys_until(start)) - max(ATTEMPTS))
        keys = self.keys_until(stop - 1)[earlier:]
        rows = self.checksums[max(0, start - self.first) : max(0, stop - self.first)]
        return SeekTable(keys, rows, max(start, self.first))


EMPTY_TABLE = SeekTable()


class SeekTableBuilder:
    """Collects a table while all pictures of a video pass in order.

    deinterlaced: whether they pass through a filter. It reads the picture before, so the first one
        after a seek is wrong.
    """

    def __init__(self, *, deinterlaced: bool) -> None:
        self._delayed: deque[EntryPoint | None] = deque([None] if deinterlaced else [])
        self._keys: list[KeyFrame] = []
        self._checksums: list[int] = []

    def add(self, picture: Picture) -> None:
        """Record the next picture."""
        number, checksum = len(self._checksums), picture.checksum()
        self._checksums.append(checksum)
        self._delayed.append(picture.entry)
        entry = self._delayed.popleft()
        far = not self._keys or number - self._keys[-1].number >= KEY_DISTANCE
        if entry and far:
            self._keys.append(KeyFrame(number, picture.timestamp, checksum, entry))

    def table(self) -> SeekTable:
        """The table of all pictures so far."""
        return SeekTable(tuple(self._keys), tuple(self._checksums))


Rule: TypeAlias = Callable[[KeyFrame, Iterator[Picture]], Iterator[NumberedPicture]]


class PictureReader:
    """Pictures of a source by number, fastest in increasing order; stays open from part to part.

    They are those of `source.pictures()`, with or without seeks. Pictures are held as decoded, in
    an eighth of the memory of RGB.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self._held: dict[int, Picture] = {}
        self._seekable = True
        self._begin(enumerate(source.pictures()), 0, False)

    def read(self, numbers: Sequence[int], table: SeekTable) -> list[Picture]:
        """The pictures with these numbers; those before and after them are dropped.

        table: what a scan recorded, at least of these pictures. If it is empty, a video is decoded
            from its start.
        """
        needed = range(min(numbers), max(numbers) + 1)
        self._held = {n: picture for n, picture in self._held.items() if n in needed}
        for number in needed:
            if number not in self._held:
                self._held[number] = self._find(number, table)
        return [self._held[number] for number in numbers]

    def _find(self, number: int, table: SeekTable) -> Picture:
        keys = table.keys_until(number) if self._seekable else ()
        seek_pays = bool(keys) and keys[-1].number - self._next >= SEEK_DISTANCE
        if self._next <= number and not seek_pays:
            picture = self._decode_until(number, table)
            if picture or not self._sought:
                return self._existing(picture)
        near = [keys[-back] for back in ATTEMPTS if back <= len(keys)]
        for key, rule in product(near, self._rules() if keys else ()):
            self._begin(rule(key, self.source.pictures_after_seek(key.entry)), key.number, True)
            if picture := self._decode_until(number, table):
                return picture
        self._seekable = not keys  # else each further attempt could cost decoding from the start
        self._begin(enumerate(self.source.pictures()), 0, False)
        return self._existing(self._decode_until(number, table))

    def _begin(self, numbered: Iterator[NumberedPicture], first: int, sought: bool) -> None:
        self._numbered = numbered
        self._next = first  # number of the picture that is decoded next
        self._sought = sought  # whether pictures must be checked

    def _decode_until(self, number: int, table: SeekTable) -> Picture | None:
        """Decode up to a picture; None if there is none or, after a seek, if it is another one."""
        try:
            for found, picture in self._numbered:
                self._next = found + 1
                if found == number:
                    equal = not self._sought or picture.checksum() == table.checksum(number)
                    return picture if equal else None
        except (av.FFmpegError, VideoError):
            if not self._sought:
                raise
        return None

    def _rules(self) -> tuple[Rule, ...]:
        """How to recognise a key frame after a seek, in the order to try."""
        flags = self.source.format_flags
        if flags & Flags.no_timestamps:
            return (from_checksum,)
        if flags & UNINDEXED:
            return from_checksum, from_timestamp
        return from_timestamp, from_checksum

    def _existing(self, picture: Picture | None) -> Picture:
        if picture is None:
            raise VideoError(
                f"{self.source.path} has fewer frames than when it was scanned; if the file has "
                "changed, run again with --restart"
            )
        return picture


def from_timestamp(key: KeyFrame, pictures: Iterator[Picture]) -> Iterator[NumberedPicture]:
    """Number the pictures from the one with the timestamp of a key frame on, wherever it is."""
    wanted = key.timestamp
    for picture in pictures:
        if wanted is None or (picture.timestamp or wanted) > wanted:
            return
        if picture.timestamp == wanted:
            yield from enumerate(chain([picture], pictures), key.number)
            return


def from_checksum(key: KeyFrame, pictures: Iterator[Picture]) -> Iterator[NumberedPicture]:
    """Number the pictures from the one with the checksum of a key frame on, among the first few."""
    for picture in islice(pictures, LOOKAHEAD):
        if picture.checksum() == key.checksum:
            yield from enumerate(chain([picture], pictures), key.number)
            return
