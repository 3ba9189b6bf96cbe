"""What decoded frames carry besides pixels: alpha, HDR10 metadata, captions and more."""

import struct
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Any

from av.container import InputContainer
from av.sidedata.sidedata import Type
from av.video.format import VideoFormat
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from vsrkit.video.opening import is_alpha_of_avif

# By FFmpeg's types of side data.
NOT_KEPT = {
    "closed captions (CEA-608/708)": {"A53_CC"},
    "Dolby Vision metadata": {"DOVI_METADATA", "DOVI_RPU_BUFFER"},
    "HDR10+ metadata": {"DYNAMIC_HDR_PLUS"},
    "HDR Vivid metadata": {"DYNAMIC_HDR_VIVID"},
    "3D stereo information": {"STEREO3D"},
    "360 degree information": {"SPHERICAL"},
}
# FFmpeg's structures: ten fractions and two flags; two integers.
MASTERING_DISPLAY = struct.Struct("=22i")
LIGHT_LEVEL = struct.Struct("=2I")


@dataclass(frozen=True, slots=True)
class Hdr:
    """HDR10 metadata; None for what the video does not contain.

    display: x and y (CIE 1931) of red, green, blue and white of the mastering display, then its
        minimum and maximum luminance in cd/m2.
    light: luminance of the brightest pixel and of the brightest frame on average, in cd/m2.
    """

    display: tuple[Fraction, ...] | None
    light: tuple[int, int] | None


def side_data(picture: VideoFrame) -> dict[str, bytes]:
    """FFmpeg's side data of a decoded frame, by type."""
    found: Any = picture.side_data  # PyAV's annotation is wrong
    return {data.type.name: bytes(data) for data in found}


def _unknown_type(kind: type[Enum], value: object) -> Enum:
    """A member for a type of side data that FFmpeg has and PyAV does not, such as 31, Exif."""
    member = object.__new__(kind)
    member._name_, member._value_ = f"TYPE_{value}", value
    kind._value2member_map_[value] = member
    return member


# Without this, `side_data` raises an error for a frame with such a type and gives none of the
# others, which has ended whole runs. Enum calls it for values that have no member.
Type._missing_ = classmethod(_unknown_type)  # type: ignore[assignment]


def has_alpha(pix_fmt: str) -> bool:
    """Whether a pixel format has an alpha channel."""
    return any(component.is_alpha for component in VideoFormat(pix_fmt).components)


def not_kept(
    container: InputContainer, stream: VideoStream, pictures: list[VideoFrame]
) -> tuple[str, ...]:
    """What the pictures of a video carry and new pictures will not, for messages."""
    kinds = {kind for picture in pictures for kind in side_data(picture)}
    found = [name for name, names in NOT_KEPT.items() if kinds & names]
    # VP8 and VP9 have their alpha channel in a layer of its own, which FFmpeg does not decode.
    if (
        any(map(_is_transparent, pictures))
        or stream.metadata.get("alpha_mode", "0") != "0"
        or any(is_alpha_of_avif(container, other) for other in container.streams)
    ):
        found.insert(0, "the alpha channel")
    return tuple(found)


def _is_transparent(picture: VideoFrame) -> bool:
    """Whether a picture has an alpha channel; those of GIF always have, so there it is examined."""
    if picture.format.name == "bgra":
        return bool((picture.to_ndarray()[..., 3] < 255).any())
    return has_alpha(picture.format.name)


def hdr_of(picture: VideoFrame) -> Hdr | None:
    """The HDR10 metadata of a frame."""
    found = side_data(picture)
    display = _mastering_display(found.get("MASTERING_DISPLAY_METADATA", b""))
    light = found.get("CONTENT_LIGHT_LEVEL", b"")
    levels = LIGHT_LEVEL.unpack_from(light) if len(light) >= LIGHT_LEVEL.size else None
    return Hdr(display, levels) if display or levels else None


def _mastering_display(data: bytes) -> tuple[Fraction, ...] | None:
    if len(data) < MASTERING_DISPLAY.size:
        return None
    *numbers, has_primaries, has_luminance = MASTERING_DISPLAY.unpack_from(data)
    pairs = list(zip(numbers[0::2], numbers[1::2], strict=True))
    if not (has_primaries and has_luminance and all(denominator for _, denominator in pairs)):
        return None
    return tuple(Fraction(*pair) for pair in pairs)
