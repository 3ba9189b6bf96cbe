"""The words of text subtitles, from FFmpeg's form (that of ASS) to those of the containers."""

import html
import re
from typing import Any

import av

from vsrkit.video.audio import Packet

TAGS = {"srt": "ibus", "webvtt": "ibu"}  # italic, bold, underlined, struck through, where there are
_DRAWING = re.compile(r"\{[^}]*\\p[1-9][^}]*\}.*?(?:\{[^}]*\\p0[^}]*\}|$)", re.DOTALL)
_BRACES = str.maketrans({"\x02": "{", "\x03": "}"})


def subtitle_text(packet: Packet, codec: str) -> str:
    """What a packet says, in the form of `codec`; empty where it cannot be read."""
    lines = []
    try:
        rectangles: Any = packet.decode()
        for rectangle in rectangles:
            words = getattr(rectangle, "dialogue", b"") or getattr(rectangle, "text", b"")
            lines.append(bytes(words).decode(errors="replace"))
    except av.FFmpegError:
        return ""
    return "\n".join(from_ass(line, codec) for line in lines)


def from_ass(text: str, codec: str) -> str:
    r"""ASS marks such as `{\i1}` as the tags that `codec` has, the others left out."""
    text = text.replace(r"\{", "\x02").replace(r"\}", "\x03")  # braces that are meant
    text = _DRAWING.sub("", text)
    text = text.replace(r"\N", "\n").replace(r"\n", "\n").replace(r"\h", "\N{NO-BREAK SPACE}")
    known, is_open = TAGS.get(codec, ""), ""
    made = []
    for number, part in enumerate(re.split(r"\{([^}]*)\}", text)):
        if number % 2 == 0:
            made.append(html.escape(part, quote=False) if codec == "webvtt" else part)
            continue
        for name, value in re.findall(r"\\([ibusr])(?![a-z])(\d*)", part):
            wanted = value not in ("", "0")
            if name == "r" or (name in is_open and not wanted):
                made += [f"</{tag}>" for tag in reversed(is_open)]
                is_open = "" if name == "r" else is_open.replace(name, "")
                made += [f"<{tag}>" for tag in is_open]
            elif name in known and name not in is_open and wanted:
                made.append(f"<{name}>")
                is_open += name
    made += [f"</{tag}>" for tag in reversed(is_open)]
    return "".join(made).translate(_BRACES)
