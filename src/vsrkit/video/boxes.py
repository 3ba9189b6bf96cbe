"""The boxes of mp4 and mov files: only what tells whether FFmpeg can and should read them."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from vsrkit.errors import VideoError

# First boxes of mp4 and mov files. Old mov files begin with moov, mdat, free, skip or wide.
FIRST = {b"ftyp", b"styp", b"moov", b"moof", b"mdat", b"free", b"skip", b"wide", b"sidx", b"pnot"}
# On the way from the file to the tables of samples.
PARENTS = {b"moov", b"trak", b"mdia", b"minf", b"stbl"}
SAMPLES_PER_BYTE = 1  # a sample of less than a byte does not exist
# Sample entries of encrypted tracks: of Common Encryption, and of Apple's FairPlay.
ENCRYPTED = {b"encv", b"enca", b"enct", b"encs", b"drmi", b"drms", b"drmt"}
MOST_BOXES = 100_000  # that are looked at; fragmented files have two for each fragment


class Box(NamedTuple):
    """A box: where its content begins and ends in the file."""

    kind: bytes
    start: int
    stop: int


def is_mp4(head: bytes) -> bool:
    """Whether a file that begins with these bytes consists of boxes."""
    return head[4:8] in FIRST


def boxes(file: BinaryIO, start: int, stop: int) -> Iterator[Box]:
    """The boxes between two places of a file; ends at the first that is damaged."""
    for _ in range(MOST_BOXES):
        file.seek(start)
        head = file.read(16)
        if start + 8 > stop or len(head) < 8:
            return
        size, kind = struct.unpack(">I4s", head[:8])
        content = start + 8
        if size == 1 and len(head) == 16:
            (size,) = struct.unpack(">Q", head[8:])
            content += 8
        end = start + size if size else stop  # 0: up to the end
        if end < content:
            return
        yield Box(kind, content, min(end, stop))
        start = end


def check_boxes(file: BinaryIO, path: Path) -> None:
    """Raise VideoError for an mp4 that cannot be read, or that claims more than it contains."""
    size = path.stat().st_size
    top = list(boxes(file, 0, size))
    kinds = {box.kind for box in top}
    if not kinds & {b"moov", b"meta"}:  # AVIF and HEIF pictures have only meta
        if b"moof" in kinds:
            raise VideoError(
                f"{path} is a segment of a fragmented file without its header; join the "
                "initialisation segment and the segments first: cat init.mp4 *.m4s > whole.mp4"
            )
        raise VideoError(f"{path} is cut short: its index (moov) is missing")
    if not kinds & {b"mdat", b"moof", b"idat"} and b"mvex" in _children(file, top):
        raise VideoError(
            f"{path} is an initialisation segment, a header without any frames; join it and its "
            "segments first: cat init.mp4 *.m4s > whole.mp4"
        )
    for box in top:
        if box.kind == b"moov":
            _check_samples(file, box, size, path)


def encrypted_tracks(path: Path) -> set[int]:
    """Numbers of the encrypted tracks of an mp4, from 0 in the order of the file."""
    with path.open("rb") as file:
        tracks = [
            track
            for box in boxes(file, 0, path.stat().st_size)
            if box.kind == b"moov"
            for track in boxes(file, box.start, box.stop)
            if track.kind == b"trak"
        ]
        return {n for n, track in enumerate(tracks) if _sample_entries(file, track) & ENCRYPTED}


def _sample_entries(file: BinaryIO, parent: Box) -> set[bytes]:
    """Kinds of the sample entries below a box: the names of the codecs."""
    found = set()
    for box in boxes(file, parent.start, parent.stop):
        if box.kind in PARENTS:
            found |= _sample_entries(file, box)
        elif box.kind == b"stsd":  # its entries follow a version and their number
            found |= {entry.kind for entry in boxes(file, box.start + 8, box.stop)}
    return found


def _children(file: BinaryIO, top: list[Box]) -> set[bytes]:
    """Kinds of the boxes in the movie box."""
    return {
        inner.kind
        for box in top
        if box.kind == b"moov"
        for inner in boxes(file, box.start, box.stop)
    }


def _check_samples(file: BinaryIO, parent: Box, size: int, path: Path) -> None:
    """FFmpeg allocates memory for all samples that a table of a few bytes may claim."""
    for box in boxes(file, parent.start, parent.stop):
        if box.kind in PARENTS:
            _check_samples(file, box, size, path)
        elif box.kind == b"stsz":
            file.seek(box.start)
            table = file.read(12)
            if len(table) == 12 and (count := int.from_bytes(table[8:])) > SAMPLES_PER_BYTE * size:
                raise VideoError(f"{path} is damaged: it claims {count} samples in {size} bytes")


def leading_boxes(stream: BinaryIO, head: bytes, most: int) -> tuple[bytes, bool]:
    """Read a pipe up to the index or the data of an mp4, whichever comes first.

    head: what was read already.
    most: bytes to read at most.

    Returns all that was read, and whether the index comes first, so that frames can be decoded as
    they arrive.
    """
    place = 0
    while place + 16 <= most:
        head += stream.read(max(0, place + 16 - len(head)))
        if len(head) < place + 8:
            return head, False
        size, kind = struct.unpack(">I4s", head[place : place + 8])
        if kind in (b"moov", b"moof"):
            return head, True
        if size == 1:
            size = int.from_bytes(head[place + 8 : place + 16])
        if kind == b"mdat" or size < 8:
            return head, False
        place += size
        if place <= most:
            head += stream.read(max(0, place - len(head)))
    return head, False
