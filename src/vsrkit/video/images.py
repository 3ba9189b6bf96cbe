"""Read and write frames as image files. Writes PNG of 8 or 16 bits, reads other formats, too."""

import re
import struct
import zlib
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
from av.codec.context import CodecContext
from av.video.codeccontext import VideoCodecContext
from av.video.reformatter import Interpolation
from torch import Tensor

from vsrkit.errors import DataError
from vsrkit.hardware.files import write_atomically

DECODERS = {
    ".png": "png",
    ".jpg": "mjpeg",
    ".jpeg": "mjpeg",
    ".bmp": "bmp",
    ".webp": "webp",
    ".tif": "tiff",
    ".tiff": "tiff",
}
# For JPEG's YUV: without these flags, swscale darkens pictures by about 1/255.
ACCURATE = Interpolation.BILINEAR | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def is_image(path: Path) -> bool:
    """Whether a file has the suffix of a supported image; hidden files do not count."""
    return path.suffix.lower() in DECODERS and not path.name.startswith(".")


def natural_order(path: Path) -> list[tuple[int, Any]]:
    """Sort key that puts im10 after im9."""
    parts = re.split(r"(\d+)", path.name)
    return [(0, int(part)) if part.isdigit() else (1, part) for part in parts]


def find_numbered(pattern: Path) -> list[Path]:
    """The files that match a pattern such as `%04d.png`, in numerical order."""
    before, after = re.split(r"%0?\d*d", pattern.name, maxsplit=1)
    name = re.compile(re.escape(before) + r"(\d+)" + re.escape(after))
    if not pattern.parent.is_dir():
        return []
    found = [
        (match, path) for path in pattern.parent.iterdir() if (match := name.fullmatch(path.name))
    ]
    return [path for match, path in sorted(found, key=lambda pair: int(pair[0][1]))]


def read_image(path: Path) -> Tensor:
    """Read a frame (3, H, W) float32 RGB in [0, 1]; alpha is dropped."""
    pixels = _decode(path)
    scale = 65535 if pixels.dtype == np.uint16 else 255
    return torch.from_numpy(pixels.astype(np.float32) / scale).permute(2, 0, 1).contiguous()


def read_image_size(path: Path) -> tuple[int, int]:
    """(height, width) of an image; for PNG only the header is read."""
    if path.suffix.lower() == ".png":
        width, height, _, _ = _png_header(path)
        return height, width
    pixels = _decode(path)
    return pixels.shape[0], pixels.shape[1]


def read_image_format(path: Path) -> str:
    """The planar pixel format that holds an image; for PNG only the header is read."""
    if path.suffix.lower() == ".png":
        _, _, bits, colour_type = _png_header(path)
        alpha = "a" if colour_type in (4, 6) else ""
        return f"gbr{alpha}p16le" if bits == 16 else f"gbr{alpha}p"
    return "gbrp16le" if _decode(path).dtype == np.uint16 else "gbrp"


def _png_header(path: Path) -> tuple[int, int, int, int]:
    """Width, height, bit depth and colour type of a PNG file."""
    with path.open("rb") as file:
        start = file.read(26)
    if len(start) < 26 or not start.startswith(PNG_SIGNATURE):
        raise DataError(f"{path} is damaged: it does not start with the PNG signature")
    width, height, bits, colour_type = struct.unpack(">IIBB", start[16:])
    if start[12:16] != b"IHDR" or not (width and height):
        raise DataError(f"{path} is damaged: it does not begin with the size of a picture")
    return width, height, bits, colour_type


def check_image(path: Path) -> None:
    """Raise DataError if a file is damaged. PNG files are verified by their checksums."""
    if path.suffix.lower() == ".png":
        _check_png(path, path.read_bytes())
    else:
        _decode(path)


def write_image(path: Path, frame: Tensor, *, bits: int = 8) -> None:
    """Write (3, H, W) RGB in [0, 1] as PNG of 8 or 16 bits; creates the folder."""
    write_atomically(path, encode_png(frame, bits=bits))


def encode_png(frame: Tensor, *, bits: int = 8) -> bytes:
    """Encode (3, H, W) RGB in [0, 1] as the bytes of a PNG file of 8 or 16 bits."""
    if bits not in (8, 16):
        raise ValueError(f"PNG files must have 8 or 16 bits, not {bits}")
    height, width = frame.shape[-2:]
    encoder = CodecContext.create("png", "w")
    assert isinstance(encoder, VideoCodecContext)
    encoder.width, encoder.height = width, height
    encoder.pix_fmt = "rgb24" if bits == 8 else "rgb48be"
    encoder.framerate = encoder.time_base = 1  # type: ignore[assignment]  # any; PNG has no timing
    encoder.options = {"compression_level": "3", "pred": "up"}  # as small in half the time
    picture = av.VideoFrame.from_ndarray(_integers(frame, bits), format=encoder.pix_fmt)
    packets = [*encoder.encode(picture), *encoder.encode(None)]
    return b"".join(bytes(packet) for packet in packets)


def _integers(frame: Tensor, bits: int) -> np.ndarray:
    """(H, W, 3) integers, contiguous; PyAV stores uint16 big-endian, as PNG requires."""
    top = 2**bits - 1
    values = (frame.detach().cpu().double().clamp(0, 1) * top).round().permute(1, 2, 0).numpy()
    return np.ascontiguousarray(values.astype(np.uint8 if bits == 8 else np.uint16))


def _decode(path: Path) -> np.ndarray:
    """(H, W, 3) uint8 or uint16."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    if path.suffix.lower() not in DECODERS:
        raise DataError(f"{path} is not a supported image; supported are {', '.join(DECODERS)}")
    if path.suffix.lower() == ".png":
        _check_png(path, data)
    decoder = CodecContext.create(DECODERS[path.suffix.lower()], "r")
    assert isinstance(decoder, VideoCodecContext)
    try:
        frames = [*decoder.decode(av.Packet(data)), *decoder.decode(None)]
    except av.FFmpegError as error:
        raise DataError(f"{path} is damaged and cannot be decoded: {error.strerror}") from error
    if not frames:
        raise DataError(f"{path} is damaged: it contains no image")
    return _rgb(frames[0])


def _rgb(picture: av.VideoFrame) -> np.ndarray:
    deep = max(component.bits for component in picture.format.components) > 8
    if picture.format.name.startswith("gray"):  # swscale would compress its range
        grey = picture.to_ndarray(format="gray16le" if deep else "gray")
        return np.repeat(grey[..., None], 3, axis=2)
    wanted = "rgb48le" if deep else "rgb24"
    return picture.reformat(format=wanted, interpolation=ACCURATE).to_ndarray()


def _check_png(path: Path, data: bytes) -> None:
    """Raise DataError if a PNG is damaged; FFmpeg would decode what is left of it."""
    if not data.startswith(PNG_SIGNATURE):
        raise DataError(f"{path} is damaged: it does not start with the PNG signature")
    place, kind = len(PNG_SIGNATURE), b""
    while kind != b"IEND":
        if place + 12 > len(data):
            raise DataError(f"{path} is damaged: it is truncated after {len(data)} bytes")
        length, kind = struct.unpack(">I4s", data[place : place + 8])
        end = place + 12 + length
        if end > len(data):
            raise DataError(f"{path} is damaged: it is truncated after {len(data)} bytes")
        (checksum,) = struct.unpack(">I", data[end - 4 : end])
        if zlib.crc32(data[place + 4 : end - 4]) != checksum:
            raise DataError(f"{path} is damaged: the checksum of its {kind!r} chunk is wrong")
        place = end
