"""Animated images that FFmpeg cannot read or that look like a single image."""

from fractions import Fraction
from io import BytesIO
from pathlib import Path

import av
import numpy as np
from PIL import Image, UnidentifiedImageError

from vsrkit.errors import VideoError

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
MILLISECOND = Fraction(1, 1000)


def is_animated_webp(head: bytes) -> bool:
    """Whether a file that begins with these bytes is an animated WebP."""
    has_flags = head[:4] == b"RIFF" and head[8:16] == b"WEBPVP8X"
    return has_flags and bool(head[20:21]) and bool(head[20] & 2)


def is_animated(path: Path) -> bool:
    """Whether an image file is an animation: an animated WebP or an animated PNG."""
    try:
        with path.open("rb") as file:
            head = file.read(1024)
            if not head.startswith(PNG_SIGNATURE):
                return is_animated_webp(head)
            place = len(PNG_SIGNATURE)
            while True:  # the chunk acTL is somewhere before the first IDAT
                file.seek(place)
                chunk = file.read(8)
                if len(chunk) < 8 or chunk[4:] == b"IDAT":
                    return False
                if chunk[4:] == b"acTL":
                    return True
                place += 12 + int.from_bytes(chunk[:4])
    except OSError:
        return False


def as_mov(path: Path) -> bytes:
    """An animated WebP as a mov file of PNG frames with their times and alpha."""
    out = BytesIO()
    try:
        with Image.open(path) as image, av.open(out, "w", format="mov") as file:
            stream = file.add_stream("png", rate=1000)
            stream.width, stream.height = image.size
            stream.pix_fmt = "rgba" if image.mode == "RGBA" else "rgb24"
            stream.time_base = stream.codec_context.time_base = MILLISECOND
            time = 0
            for number in range(getattr(image, "n_frames", 1)):
                image.seek(number)
                image.load()
                pixels = np.asarray(image.convert("RGBA" if stream.pix_fmt == "rgba" else "RGB"))
                picture = av.VideoFrame.from_ndarray(pixels, format=stream.pix_fmt)
                picture.pts, picture.time_base = time, MILLISECOND
                duration = max(1, round(image.info.get("duration", 0)))
                for packet in stream.encode(picture):  # PNG gives one for each picture
                    packet.duration = duration
                    file.mux(packet)
                time += duration
            file.mux(stream.encode(None))
    except (OSError, ValueError, EOFError, UnidentifiedImageError, Image.DecompressionBombError,
            av.FFmpegError) as error:  # fmt: skip
        raise VideoError(f"{path} is damaged and cannot be decoded: {error}") from error
    return out.getvalue()
