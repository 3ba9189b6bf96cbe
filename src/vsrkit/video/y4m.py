"""YUV4MPEG2: uncompressed video for pipes; a line of text, then the samples of each frame."""

from fractions import Fraction

from vsrkit.errors import VideoError
from vsrkit.video.colour import FULL, layout_of
from vsrkit.video.encode import Encoding

FRAME = b"FRAME\n"
RATIOS = {(1, 1): "420", (0, 1): "422", (0, 0): "444"}
SITINGS = {"left": "mpeg2", "center": "jpeg", "topleft": "paldv", "top": "jpeg"}


def y4m_header(encoding: Encoding) -> bytes:
    """The first line of a stream of such frames."""
    layout = layout_of(encoding.pix_fmt)
    if layout is None or layout.kind != "yuv" or layout.halvings not in RATIOS:
        raise VideoError(f"y4m holds YUV 4:2:0, 4:2:2 or 4:4:4, not {encoding.pix_fmt}")
    chroma = RATIOS[layout.halvings]
    if layout.bits > 8:
        chroma += f"p{layout.bits}"
    elif chroma == "420":
        chroma += SITINGS[encoding.colour.siting]
    rate, aspect = encoding.rate, Fraction(encoding.sample_aspect)
    span = "FULL" if encoding.colour.range == FULL else "LIMITED"
    return (
        f"YUV4MPEG2 W{encoding.width} H{encoding.height} F{rate.numerator}:{rate.denominator} "
        f"Ip A{aspect.numerator}:{aspect.denominator} C{chroma} XCOLORRANGE={span}\n"
    ).encode()
