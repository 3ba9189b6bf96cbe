"""The elements of files: boxes of MP4, elements of Matroska, chunks of RIFF and PNG, packets."""

import json
import re
import struct
import zlib
from dataclasses import dataclass

MP4_PARENTS = b"moov trak mdia minf stbl dinf edts moof traf mvex udta mfra sinf schi".split()
EBML_PARENTS = {
    bytes.fromhex(name)
    for name in """
    18538067 1549a966 1654ae6b ae e0 e1 1f43b675 a0 1c53bb6b bb b7 1254c367 7373 63c0 67c8 1941a469
    61a7 1043a770 45b9 b6 80 6d80 6240 5035 1a45dfa3 114d9b74 4dbb 55b0 55d0
    """.split()  # noqa: SIM905  long lists read better so
}
ASF_HEADER = bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c")


@dataclass(frozen=True)
class Element:
    """A piece of a file; the length of what `counts` says is stored at `size_at`."""

    start: int
    body: int
    end: int
    size_at: int = 0
    form: str = ""  # of the length: a struct format, "vint", or "" if there is none
    counts: str = "body"  # or "all"
    parents: tuple["Element", ...] = ()
    width: int = 0  # of a vint

    def size_field(self, change=0, size=None):
        """(place, bytes) of the length if the element grew by `change`, or with any `size`."""
        if size is None:
            size = self.end - (self.body if self.counts == "body" else self.start) + change
        if self.form == "vint":
            most = (1 << 7 * self.width) - 1
            return self.size_at, ((1 << 7 * self.width) | (size & most)).to_bytes(self.width, "big")
        bits = 8 * struct.calcsize(self.form)
        return self.size_at, struct.pack(self.form, size % (1 << bits))


def elements_of(data):
    """All elements of a file, by its first bytes; empty for one without structure."""
    if data[4:8] in (b"ftyp", b"moov", b"wide", b"mdat"):
        return list(_boxes(data, 0, len(data), ()))
    if data.startswith(bytes.fromhex("1a45dfa3")):
        return list(_ebml(data, 0, len(data), ()))
    if data.startswith((b"RIFF", b"FORM")):
        return list(_riff(data, 0, len(data), (), "<I" if data[:4] == b"RIFF" else ">I"))
    if data.startswith(b"\x89PNG"):
        return list(_png(data))
    if data.startswith(ASF_HEADER):
        return list(_asf(data))
    if data.startswith(b"FLV"):
        return list(_flv(data))
    if len(data) > 376 and data[0] == data[188] == data[376] == 0x47:
        return [Element(at, at + 4, at + 188) for at in range(0, len(data) - 187, 188)]
    if data.startswith(b"OggS"):
        return _between(data, rb"OggS", 27)
    if data.startswith(b"\xff\xd8"):
        return _between(data, rb"\xff[\xc0-\xfe]", 4)
    if data.startswith(b"YUV4MPEG2"):
        return _between(data, rb"(?<=[ \n])[A-Z]", 1)
    return _between(data, rb"\x00\x00\x01", 4)  # MPEG, H.264, HEVC


def _boxes(data, at, end, parents):
    while at + 8 <= end:
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        head, form, size_at = 8, ">I", at
        if size == 1 and at + 16 <= end:
            (size,) = struct.unpack(">Q", data[at + 8 : at + 16])
            head, form, size_at = 16, ">Q", at + 8
        if size == 0:
            size = end - at
        if size < head or at + size > end:
            return
        box = Element(at, at + head, at + size, size_at, form, "all", parents)
        yield box
        skipped = {b"meta": 4, b"stsd": 8, b"dref": 8}.get(kind)
        if kind in MP4_PARENTS or skipped:
            yield from _boxes(data, box.body + (skipped or 0), box.end, (*parents, box))
        at += size


def _vint(data, at, *, keep):
    """A number of Matroska and its width; None at the end."""
    if at >= len(data) or data[at] == 0:
        return None
    width = 9 - data[at].bit_length()
    value = int.from_bytes(data[at : at + width], "big")
    return (value if keep else value & ((1 << 7 * width) - 1)), width


def _ebml(data, at, end, parents):
    while at < end:
        name = _vint(data, at, keep=True)
        size = name and _vint(data, at + name[1], keep=False)
        if not size:
            return
        size_at = at + name[1]
        body = size_at + size[1]
        unknown = size[0] == (1 << 7 * size[1]) - 1
        stop = end if unknown else body + size[0]
        if stop > end:
            return
        made = Element(at, body, stop, size_at, "vint", "body", parents, size[1])
        yield made
        if data[at:size_at] in EBML_PARENTS:
            yield from _ebml(data, body, stop, (*parents, made))
        at = stop


def _riff(data, at, end, parents, form):
    while at + 8 <= end:
        kind = data[at : at + 4]
        (size,) = struct.unpack(form, data[at + 4 : at + 8])
        stop = at + 8 + size
        if stop > end:
            return
        made = Element(at, at + 8, stop, at + 4, form, "body", parents)
        yield made
        if kind in (b"RIFF", b"LIST", b"FORM"):
            yield from _riff(data, at + 12, stop, (*parents, made), form)
        at = stop + size % 2


def _png(data):
    at = 8
    while at + 12 <= len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        if at + 12 + size > len(data):
            return
        yield Element(at, at + 8, at + 12 + size, at, ">I", "body")
        at += 12 + size


def _asf(data):
    at = 0
    while at + 24 <= len(data):
        (size,) = struct.unpack("<Q", data[at + 16 : at + 24])
        if size < 24 or at + size > len(data):
            return
        made = Element(at, at + 24, at + size, at + 16, "<Q", "all")
        yield made
        if at == 0:
            place = 30
            while place + 24 <= size:
                (inner,) = struct.unpack("<Q", data[place + 16 : place + 24])
                if inner < 24 or place + inner > size:
                    break
                yield Element(place, place + 24, place + inner, place + 16, "<Q", "all", (made,))
                place += inner
        at += size


def _flv(data):
    at = 13
    while at + 15 <= len(data):
        size = int.from_bytes(data[at + 1 : at + 4], "big")
        if at + 15 + size > len(data):
            return
        yield Element(at, at + 11, at + 15 + size)
        at += 15 + size


def _between(data, pattern, head):
    starts = [match.start() for match in re.finditer(pattern, data)][:4000]
    if not starts:
        return []
    return [
        Element(a, min(a + head, b), b)
        for a, b in zip(starts, [*starts[1:], len(data)], strict=True)
    ]


def with_png_checksums(data):
    """A PNG file whose chunks have right checksums again, so that what changed is decoded."""
    made = bytearray(data)
    for chunk in _png(data):
        made[chunk.end - 4 : chunk.end] = struct.pack(
            ">I", zlib.crc32(data[chunk.start + 4 : chunk.end - 4])
        )
    return bytes(made)


def safetensors_header(data):
    """The header of a safetensors file as JSON, and the tensors after it."""
    (size,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def as_safetensors(header, rest):
    """A safetensors file with any header."""
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + rest
