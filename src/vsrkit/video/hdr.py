"""HDR10's words about a video: the display it was graded on, and its brightest pixels."""

import struct
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from av.video.frame import VideoFrame

# FFmpeg's structures: ten fractions and two flags; two numbers.
DISPLAY = struct.Struct("=22i")
LIGHT = struct.Struct("=2I")


@dataclass(frozen=True, slots=True)
class Hdr:
    """What is known; None where the video does not say it.

    display: x and y of red, green, blue and white (CIE 1931), then the darkest and the brightest
        that it showed, in cd/m2.
    light: of the brightest pixel and of the brightest frame's mean, in cd/m2.
    """

    display: tuple[Fraction, ...] | None
    light: tuple[int, int] | None


def hdr_of(picture: VideoFrame) -> Hdr | None:
    """What a decoded frame has with it."""
    side_data: Any = picture.side_data  # PyAV's annotation does not fit its class
    found = {data.type.name: bytes(data) for data in side_data}
    display = _display(found.get("MASTERING_DISPLAY_METADATA", b""))
    light = found.get("CONTENT_LIGHT_LEVEL", b"")
    levels = LIGHT.unpack_from(light) if len(light) >= LIGHT.size else None
    return Hdr(display, levels) if display or levels else None


def hdr_options(codec: str, hdr: Hdr | None) -> dict[str, str]:
    """The same as options of an encoder; none for those that have no place for it."""
    if hdr is None or codec not in ("libx264", "libx265", "libsvtav1"):
        return {}
    words = []
    av1 = codec == "libsvtav1"
    if hdr.display:
        # H.264 and HEVC count in steps of 1/50000 and 1/10000, AV1's encoder takes decimals.
        red, green, blue, white = (
            ",".join(_number(value, 1 if av1 else 50000) for value in hdr.display[i : i + 2])
            for i in (0, 2, 4, 6)
        )
        dark, bright = (_number(value, 1 if av1 else 10000) for value in hdr.display[8:])
        name = "master-display" if codec == "libx265" else "mastering-display"
        words.append(f"{name}=G({green})B({blue})R({red})WP({white})L({bright},{dark})")
    if hdr.light:
        name = {"libx264": "cll", "libx265": "max-cll"}.get(codec, "content-light")
        words.append(f"{name}={hdr.light[0]},{hdr.light[1]}")
    return {codec.removeprefix("lib") + "-params": ":".join(words)}


def _number(value: Fraction, steps: int) -> str:
    return f"{float(value):.5f}" if steps == 1 else str(round(value * steps))


def _display(data: bytes) -> tuple[Fraction, ...] | None:
    if len(data) < DISPLAY.size:
        return None
    *numbers, has_primaries, has_luminance = DISPLAY.unpack_from(data)
    pairs = list(zip(numbers[0::2], numbers[1::2], strict=True))
    if not (has_primaries and has_luminance and all(below for _, below in pairs)):
        return None
    return tuple(Fraction(above, below) for above, below in pairs)
