"""Encoded packets in a file of our own: each with its frame's number, the whole checked."""

import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from vsrkit.errors import VideoError
from vsrkit.hardware.files import write_atomically
from vsrkit.video.encode import EncodedPacket

MAGIC = b"vsrkit packets 1\n"
HEAD = struct.Struct("<qBI")  # number, keyframe, length; a length of zero ends the file
TAIL = struct.Struct("<I")  # checksum of everything before it
BLOCK = 1 << 20  # bytes that are read at once: a part of large frames does not fit into memory


def write_packets(path: Path, packets: Iterable[EncodedPacket]) -> None:
    """Write a file that is there whole or not at all, whatever happens meanwhile."""
    write_atomically(path, _blocks(packets), sync=True)


def _blocks(packets: Iterable[EncodedPacket]) -> Iterator[bytes]:
    """The content of a file, packet by packet: those of a large video do not fit into memory."""
    check = zlib.crc32(MAGIC)
    yield MAGIC
    for packet in packets:
        head = HEAD.pack(packet.number, packet.keyframe, len(packet.data))
        check = zlib.crc32(packet.data, zlib.crc32(head, check))
        yield head
        yield packet.data
    end = HEAD.pack(0, False, 0)
    yield end + TAIL.pack(zlib.crc32(end, check))


def read_packets(path: Path) -> Iterator[EncodedPacket]:
    """Packets in the order they were written, one at a time; the file is checked before."""
    with path.open("rb") as file:
        _check(file, path)
        file.seek(len(MAGIC))
        while True:
            number, keyframe, length = HEAD.unpack(file.read(HEAD.size))
            if length == 0:
                return
            yield EncodedPacket(number, bool(keyframe), file.read(length))


def _check(file: BinaryIO, path: Path) -> None:
    """Refuse a file that is not as it was written."""
    check, left = 0, path.stat().st_size - TAIL.size
    begins = file.read(len(MAGIC)) == MAGIC
    file.seek(0)
    while left > 0:
        block = file.read(min(left, BLOCK))
        check = zlib.crc32(block, check)
        left -= len(block) or left
    if not begins or file.read() != TAIL.pack(check):
        raise VideoError(f"{path} is damaged; delete it and run the same command again")
