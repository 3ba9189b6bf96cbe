"""Store the pixel aspect ratio and exact audio delays in Matroska and WebM, which PyAV cannot do.

The tracks are written with a placeholder at the end of their titles. In the finished file, the
placeholders are replaced by the elements, and the rest of them by a Void element. The Tracks
element keeps its size, so that no other byte or index of the file changes.
"""

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import BinaryIO

PLACEHOLDER = "." * 24  # enough for two elements of six bytes, longer sizes, and a Void

SEGMENT, TRACKS, TRACK, VIDEO = 0x18538067, 0x1654AE6B, 0xAE, 0xE0
NAME, VOID, CHECKSUM = 0x536E, 0xEC, 0xBF
CHECKSUM_SIZE = 6

LARGEST_ENLARGEMENT = 2  # of the display size, to represent an aspect ratio exactly
DISPLAY_WIDTH, DISPLAY_HEIGHT, DISPLAY_UNIT = 0x54B0, 0x54BA, 0x54B2
CODEC_DELAY = 0x56AA
MILLISECOND, SECOND = 10**6, 10**9  # in its unit


@dataclass(frozen=True, slots=True)
class Element:
    """An element of an EBML file: its ID and its content."""

    kind: int
    content: bytes

    def __bytes__(self) -> bytes:
        return _whole_bytes(self.kind) + _length(len(self.content)) + self.content


def display_size(width: int, height: int, sample_aspect: Fraction) -> tuple[int, int]:
    """The (width, height) at which a video is displayed, neither smaller than stored.

    720x480 with an aspect ratio of 12/11 is 785.45x480. Rounding would change the ratio, so the
    next size with the exact ratio is used, 792x484, unless it is more than twice as large.
    """
    shown = Fraction(width, height) * sample_aspect
    wide, high = (width * sample_aspect, height) if sample_aspect >= 1 else (width, width / shown)
    times = ceil(high / shown.denominator)
    if times * shown.denominator <= high * LARGEST_ENLARGEMENT:
        return times * shown.numerator, times * shown.denominator
    return round(wide), round(high)


def finish_tracks(
    path: Path, *, size: tuple[int, int] | None = None, delays: Iterable[Fraction | None] = ()
) -> None:
    """Set the display size and the delays of the tracks whose titles end with PLACEHOLDER.

    size: (width, height) of the video track; None if its title has no placeholder.
    delays: seconds that a player subtracts from the times of each audio track, and whose samples it
        drops at its start; None keeps that of the muxer.
    """
    left = iter(delays)
    with path.open("r+b") as file:
        start, room = _find_tracks(file)
        file.seek(start)
        found = list(_elements(file.read(room)))
        if size and not any(map(_is_marked_video, found)):
            raise ValueError("the title of the video track has no placeholder")
        content = _joined(_finished(track, size, left) for track in found if track.kind == TRACK)
        has_checksum = found[0].kind == CHECKSUM
        content += _void(room - len(content) - (CHECKSUM_SIZE if has_checksum else 0))
        if has_checksum:  # of all elements that follow it
            check = zlib.crc32(content).to_bytes(4, "little")
            content = bytes(Element(CHECKSUM, check)) + content
        file.seek(start)
        file.write(content)


def _is_marked_video(track: Element) -> bool:
    children = list(_elements(track.content)) if track.kind == TRACK else []
    marked = any(c.kind == NAME and c.content.endswith(PLACEHOLDER.encode()) for c in children)
    return marked and any(child.kind == VIDEO for child in children)


def _finished(
    track: Element, size: tuple[int, int] | None, delays: Iterator[Fraction | None]
) -> Element:
    """The track with its original title and the new values; as it is without a placeholder."""
    children = list(_elements(track.content))
    title = next((child.content for child in children if child.kind == NAME), b"")
    original = title.removesuffix(PLACEHOLDER.encode())
    if title == original:
        return track
    kept = [child for child in children if child.kind != NAME]
    kept += [Element(NAME, original)] if original else []
    if any(child.kind == VIDEO for child in kept):
        kept = [_with_display_size(c, *size) if size and c.kind == VIDEO else c for c in kept]
    elif (delay := next(delays, None)) is not None:
        kept = [child for child in kept if child.kind != CODEC_DELAY]
        kept += [Element(CODEC_DELAY, _whole_bytes(round(delay * SECOND)))] if delay else []
    return Element(TRACK, _joined(kept))


def _with_display_size(video: Element, width: int, height: int) -> Element:
    # The muxer sets the unit to "unknown"; without the element it is pixels.
    kept = [element for element in _elements(video.content) if element.kind != DISPLAY_UNIT]
    kept.append(Element(DISPLAY_WIDTH, _whole_bytes(width)))
    kept.append(Element(DISPLAY_HEIGHT, _whole_bytes(height)))
    return Element(VIDEO, _joined(kept))


def muxer_delay(file: BinaryIO) -> Fraction:
    """Seconds that the muxer adds to the times of the first track of a file: its rounded delay."""
    start, size = _find_tracks(file)
    file.seek(start)
    track = next(element for element in _elements(file.read(size)) if element.kind == TRACK)
    for child in _elements(track.content):
        if child.kind == CODEC_DELAY:
            nanoseconds = int.from_bytes(child.content)
            return Fraction((2 * nanoseconds + MILLISECOND) // (2 * MILLISECOND), 1000)
    return Fraction(0)


def _find_tracks(file: BinaryIO) -> tuple[int, int]:
    """Offset and size of the content of the Tracks element."""
    place = 0
    while True:
        file.seek(place)
        head = file.read(12)  # the longest ID and size
        if not head:
            raise ValueError("the file has no Tracks element")
        kind, after = _number(head, 0, marked=True)
        size, after = _number(head, after)
        if kind == TRACKS:
            return place + after, size
        place += after if kind == SEGMENT else after + size


def _joined(elements: Iterable[Element]) -> bytes:
    return b"".join(map(bytes, elements))


def _elements(content: bytes) -> Iterator[Element]:
    place = 0
    while place < len(content):
        kind, place = _number(content, place, marked=True)
        size, place = _number(content, place)
        yield Element(kind, content[place : place + size])
        place += size


def _number(content: bytes, place: int, *, marked: bool = False) -> tuple[int, int]:
    """A variable-size integer, and the offset after it.

    marked: keep the bit that marks its length, as element IDs do.
    """
    count = 9 - content[place].bit_length()
    number = int.from_bytes(content[place : place + count], "big")
    return number if marked else number & ((1 << 7 * count) - 1), place + count


def _length(size: int, count: int | None = None) -> bytes:
    """Encode a size as variable-size integer; all ones is reserved for "unknown"."""
    count = count or next(n for n in range(1, 9) if size < (1 << 7 * n) - 1)
    return (size | 1 << 7 * count).to_bytes(count, "big")


def _void(size: int) -> bytes:
    """A Void element of `size` bytes in total."""
    if size == 0:
        return b""
    count = 1 if size < 0x80 else 8
    if size < 1 + count:
        raise ValueError("the placeholder in the title of the video track is too short")
    return _whole_bytes(VOID) + _length(size - 1 - count, count) + bytes(size - 1 - count)


def _whole_bytes(number: int) -> bytes:
    return number.to_bytes(max(1, (number.bit_length() + 7) // 8), "big")
