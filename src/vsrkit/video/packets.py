"""Encoded packets in a file of our own: each with its frame's number, the whole checked."""

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from vsrkit.errors import VideoError
from vsrkit.video.encode import EncodedPacket

MAGIC = b"vsrkit packets 1\n"
HEAD = struct.Struct("<qBI")  # number, keyframe, length; a length of zero ends the file
TAIL = struct.Struct("<I")  # checksum of everything before it


def write_packets(path: Path, packets: Iterable[EncodedPacket]) -> None:
    """Write a file that is there whole or not at all, whatever happens meanwhile."""
    write_whole(path, _blocks(packets))


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
    """Packets in the order they were written."""
    content = path.read_bytes()
    body = memoryview(content)[: -TAIL.size]
    if not content.startswith(MAGIC) or TAIL.pack(zlib.crc32(body)) != content[-TAIL.size :]:
        raise VideoError(f"{path} is damaged; delete it and run the same command again")
    place = len(MAGIC)
    while True:
        number, keyframe, length = HEAD.unpack_from(body, place)
        if length == 0:
            return
        place += HEAD.size
        yield EncodedPacket(number, bool(keyframe), bytes(body[place : place + length]))
        place += length


def write_whole(path: Path, blocks: Iterable[bytes]) -> None:
    """Write a file under another name, wait until it is on the disk, then give it its own."""
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as file:
            file.writelines(blocks)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:  # also what goes wrong while the blocks are made
        part.unlink(missing_ok=True)
        raise
