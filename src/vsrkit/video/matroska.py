"""Tell a Matroska or WebM file the shape of its pixels, for which PyAV gives the muxer no word.

The video track gets a title with room behind it. When the file is written, the room becomes
DisplayWidth and DisplayHeight, and what is left of it becomes Void. The list of tracks keeps its
length, so nothing else moves and no index in the file has to be changed.
"""

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import BinaryIO

ROOM = "." * 24  # two elements of up to six bytes, lengths that become longer, and a Void

SEGMENT, TRACKS, TRACK, VIDEO = 0x18538067, 0x1654AE6B, 0xAE, 0xE0
NAME, VOID, CHECKSUM = 0x536E, 0xEC, 0xBF
CHECKSUM_SIZE = 6

LARGER = 2  # times the picture is a size that may be said for the sake of its shape
DISPLAY_WIDTH, DISPLAY_HEIGHT, DISPLAY_UNIT = 0x54B0, 0x54BA, 0x54B2


@dataclass(frozen=True, slots=True)
class Element:
    """A piece of an EBML file: what it is, and what is in it."""

    kind: int
    content: bytes

    def __bytes__(self) -> bytes:
        return _whole_bytes(self.kind) + _length(len(self.content)) + self.content


def needs_room(form: str, sample_aspect: Fraction) -> bool:
    """Whether a file of this format is to be told the shape of its pixels by us."""
    return form in ("matroska", "webm") and sample_aspect != 1


def display_size(width: int, height: int, sample_aspect: Fraction) -> tuple[int, int]:
    """Width and height as they are shown, neither below what is stored.

    720x480 with pixels of 12/11 is 785.45x480. Rounded, the pixels would have another shape, so
    the next size that has it exactly is taken, 792x484, unless that is twice as large.
    """
    shown = Fraction(width, height) * sample_aspect
    wide, high = (width * sample_aspect, height) if sample_aspect >= 1 else (width, width / shown)
    times = ceil(high / shown.denominator)
    if times * shown.denominator <= high * LARGER:
        return times * shown.numerator, times * shown.denominator
    return round(wide), round(high)


def use_room(path: Path, *, width: int, height: int) -> None:
    """Let the first track of a file, whose title ends with ROOM, be shown in this size."""
    with path.open("r+b") as file:
        start, size = _find_tracks(file)
        file.seek(start)
        found = list(_elements(file.read(size)))
        first, *others = [element for element in found if element.kind == TRACK]
        content = _joined([_shown(first, width, height), *others])
        summed = found[0].kind == CHECKSUM
        content += _void(size - len(content) - (CHECKSUM_SIZE if summed else 0))
        if summed:  # of all that follows it
            check = zlib.crc32(content).to_bytes(4, "little")
            content = bytes(Element(CHECKSUM, check)) + content
        file.seek(start)
        file.write(content)


def _shown(track: Element, width: int, height: int) -> Element:
    """The track with its own title, or none, and the size in which it is shown."""
    children = []
    for child in _elements(track.content):
        if child.kind == NAME:
            title = child.content.removesuffix(ROOM.encode())
            if title == child.content:
                raise ValueError("the title of the video track has no room for the shape of pixels")
            children += [Element(NAME, title)] if title else []
        elif child.kind == VIDEO:
            # The muxer has said that the unit is unknown; pixels are what is meant without it.
            kept = [e for e in _elements(child.content) if e.kind != DISPLAY_UNIT]
            kept.append(Element(DISPLAY_WIDTH, _whole_bytes(width)))
            kept.append(Element(DISPLAY_HEIGHT, _whole_bytes(height)))
            children.append(Element(VIDEO, _joined(kept)))
        else:
            children.append(child)
    return Element(TRACK, _joined(children))


def _find_tracks(file: BinaryIO) -> tuple[int, int]:
    """Where the content of the list of tracks begins, and its length."""
    place = 0
    while True:
        file.seek(place)
        head = file.read(12)  # of the longest kind and length that there are
        if not head:
            raise ValueError("there is no list of tracks")
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
    """A number whose leading zeros tell its length, and the place after it.

    marked: with the bit that ends those zeros, as kinds of elements are written.
    """
    count = 9 - content[place].bit_length()
    number = int.from_bytes(content[place : place + count], "big")
    return number if marked else number & ((1 << 7 * count) - 1), place + count


def _length(size: int, count: int | None = None) -> bytes:
    """The inverse of `_number`; all ones would mean that the length is not known."""
    count = count or next(n for n in range(1, 9) if size < (1 << 7 * n) - 1)
    return (size | 1 << 7 * count).to_bytes(count, "big")


def _void(size: int) -> bytes:
    """An element without meaning that takes so many bytes."""
    if size == 0:
        return b""
    count = 1 if size < 0x80 else 8
    if size < 1 + count:
        raise ValueError("the title of the video track has too little room")
    return _whole_bytes(VOID) + _length(size - 1 - count, count) + bytes(size - 1 - count)


def _whole_bytes(number: int) -> bytes:
    return number.to_bytes(max(1, (number.bit_length() + 7) // 8), "big")
