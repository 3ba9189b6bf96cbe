"""Encode frames to packets, store packets in files, and write simple videos.

The same frames and settings always give the same bytes.
"""

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO

import av
import torch.nn.functional as F
from av.codec.context import CodecContext
from av.video.codeccontext import VideoCodecContext
from av.video.stream import VideoStream
from torch import Tensor

from vsrkit.errors import VideoError
from vsrkit.hardware.device import has_avx512
from vsrkit.hardware.files import temporary_path, write_atomically
from vsrkit.hardware.memory import Rows, as_tensor
from vsrkit.video.codecs import CONTAINERS, Encoding, rule_of
from vsrkit.video.colour import BT709, LIMITED, Colour, from_rgb, layout_of, set_colour_tags

os.environ.setdefault("SVT_LOG", "1")  # errors only: SVT-AV1 does not use FFmpeg's log

# A file of packets: MAGIC, for each packet a HEAD and its data, a HEAD of length 0, a TAIL.
MAGIC = b"vsrkit packets 1\n"
HEAD = struct.Struct("<qBI")  # frame number, keyframe, length
TAIL = struct.Struct("<I")  # CRC-32 of everything before it
BLOCK = 1 << 20  # bytes read at a time for the checksum

WRITTEN_COLOUR = Colour(matrix=BT709, range=LIMITED, primaries=BT709, transfer=BT709)


@dataclass(frozen=True, slots=True)
class EncodedPacket:
    """An encoded packet; `number` is the index of its frame in display order."""

    number: int
    keyframe: bool
    data: bytes


class Encoder:
    """An encoder for consecutive frames."""

    def __init__(self, encoding: Encoding) -> None:
        self.encoding = encoding
        self._frames = 0
        self._alone = rule_of(encoding).alone
        self._context = open_encoder(encoding)

    def encode(self, frame: Tensor | Rows) -> list[EncodedPacket]:
        """Encode a frame (3, H, W) and return the packets that are ready."""
        encoding = self.encoding
        if frame.shape[-2:] != (encoding.height, encoding.width):  # subsampled chroma: even sides
            frame = _pad(as_tensor(frame), encoding.height, encoding.width)
        picture = from_rgb(frame, encoding.pix_fmt, encoding.colour)
        picture.pts = self._frames
        picture.time_base = 1 / encoding.rate
        self._frames += 1
        packets = [_encoded_packet(packet) for packet in self._context.encode(picture)]
        if self._alone:
            packets += self.finish()
            self._context = open_encoder(encoding)
        return packets

    def finish(self) -> list[EncodedPacket]:
        """Flush the encoder and return its last packets."""
        return [_encoded_packet(packet) for packet in self._context.encode(None)]


def encode_frames(frames: Iterable[Tensor | Rows], encoding: Encoding) -> Iterator[EncodedPacket]:
    """Encode frames (3, H, W) and yield their packets in decoding order."""
    encoder = Encoder(encoding)
    for frame in frames:
        yield from encoder.encode(frame)
        del frame  # free it before the next allocation
    yield from encoder.finish()


def open_encoder(encoding: Encoding) -> VideoCodecContext:
    """Open an encoder; raises VideoError for an option or a size that it does not support."""
    context = CodecContext.create(encoding.codec, "w")
    assert isinstance(context, VideoCodecContext)
    configure(context, encoding)
    known = context.supported_options
    names = {option.name for option in (*known.generic, *known.private)}
    if unknown := [key for key, _ in encoding.options if key not in names]:
        raise VideoError(f"{encoding.codec} has no option {unknown[0]!r}")
    try:
        context.open()
    except (av.FFmpegError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        given = ", ".join(f"{key}={value}" for key, value in encoding.options)
        raise VideoError(
            f"{encoding.codec} does not support {encoding.width}x{encoding.height} "
            f"{encoding.pix_fmt} with {given or 'its defaults'}: {reason}"
        ) from error
    return context


def configure(context: VideoCodecContext, encoding: Encoding) -> None:
    """Configure an encoder before it is opened."""
    context.width, context.height = encoding.width, encoding.height
    context.pix_fmt = encoding.pix_fmt
    context.framerate, context.time_base = encoding.rate, 1 / encoding.rate
    context.sample_aspect_ratio = encoding.sample_aspect
    context.thread_count = encoding.threads
    # Not slice threads, PyAV's default: those of x264 race and sometimes give other bytes.
    context.thread_type = "FRAME"
    context.flags |= av.codec.context.Flags.global_header | av.codec.context.Flags.bitexact
    options = dict(encoding.options)
    layout = layout_of(encoding.pix_fmt)
    if layout and layout.halvings == (1, 1):
        options["chroma_sample_location"] = encoding.colour.siting
    if encoding.codec == "libx264" and has_avx512():
        # Its AVX-512 code for mbtree reads uninitialised memory: other bytes in each run.
        given = options.get("x264-params")
        options["x264-params"] = f"{given}:asm=avx2" if given else "asm=avx2"
    context.options = options
    set_colour_tags(context, encoding.colour)


def _encoded_packet(packet: "av.Packet[av.video.stream.VideoStream]") -> EncodedPacket:
    assert packet.pts is not None
    return EncodedPacket(packet.pts, packet.is_keyframe, bytes(packet))


def write_packets(path: Path, packets: Iterable[EncodedPacket]) -> None:
    """Write packets to a file, atomically and synced to disk."""
    write_atomically(path, packet_chunks(packets), sync=True)


def packet_chunks(packets: Iterable[EncodedPacket]) -> Iterator[bytes]:
    """The content of a packet file in chunks, as `write_packets` writes it."""
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
    """Read packets one at a time, in the order they were written.

    Raises VideoError before the first packet if the file is damaged.
    """
    with path.open("rb") as file:
        _check_packets(file, path)
        file.seek(len(MAGIC))
        while True:
            number, keyframe, length = HEAD.unpack(file.read(HEAD.size))
            if length == 0:
                return
            yield EncodedPacket(number, bool(keyframe), file.read(length))


def _check_packets(file: BinaryIO, path: Path) -> None:
    """Raise VideoError if the checksum of a packet file is wrong."""
    check, left = 0, path.stat().st_size - TAIL.size
    has_magic = file.read(len(MAGIC)) == MAGIC
    file.seek(0)
    while left > 0:
        block = file.read(min(left, BLOCK))
        check = zlib.crc32(block, check)
        left -= len(block) or left
    if not has_magic or file.read() != TAIL.pack(check):
        raise VideoError(f"{path} is damaged; delete it and run the same command again")


def write_video(
    path: Path, frames: Iterable[Tensor], *, frames_per_second: Fraction, crf: int = 17
) -> int:
    """Write frames as H.264 in BT.709, limited range; returns the number of frames.

    path: an mp4, mkv or mov file, written atomically.
    frames: (3, H, W) in [0, 1]; odd sides are padded by one pixel, because chroma is 4:2:0.
    crf: quality, lower is better.
    """
    container = CONTAINERS[path.suffix.lower()]
    try:
        with (
            temporary_path(path) as temporary,
            av.open(f"file:{temporary}", "w", format=container) as file,
        ):
            return _write_frames(file, frames, frames_per_second, crf)
    except (OSError, av.FFmpegError) as error:
        raise VideoError(f"cannot write {path} ({error}); no file was kept") from error


def _write_frames(
    file: av.container.OutputContainer,
    frames: Iterable[Tensor],
    frames_per_second: Fraction,
    crf: int,
) -> int:
    stream: VideoStream | None = None
    count = 0
    for frame in frames:
        height, width = (side + side % 2 for side in frame.shape[-2:])
        if stream is None:
            stream = file.add_stream("libx264", rate=frames_per_second, options={"crf": str(crf)})
            stream.height, stream.width, stream.pix_fmt = height, width, "yuv420p"
            set_colour_tags(stream.codec_context, WRITTEN_COLOUR)
        even = _pad(frame, height, width).clamp(0, 1)
        picture = from_rgb(even, "yuv420p", WRITTEN_COLOUR)
        picture.pts = count
        file.mux(stream.encode(picture))
        count += 1
    if stream is not None:
        file.mux(stream.encode(None))
    return count


def _pad(frame: Tensor, height: int, width: int) -> Tensor:
    """Repeat the last row and column of a frame (3, H, W) up to a size."""
    missing = (0, width - frame.shape[-1], 0, height - frame.shape[-2])
    return F.pad(frame[None], missing, "replicate")[0]
