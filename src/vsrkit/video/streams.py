"""Copy audio, subtitles, other videos, attachments and covers; convert what cannot be held."""

import html
import io
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import av
from av.audio.stream import AudioStream
from av.container import InputContainer, OutputContainer
from av.stream import Disposition, Stream
from av.subtitles.stream import SubtitleStream
from av.video.stream import VideoStream

from vsrkit.errors import VideoError
from vsrkit.video.audio import CopiedAudio, Packet, convert_audio
from vsrkit.video.copied_video import CopiedVideo
from vsrkit.video.encryption import encrypted_streams
from vsrkit.video.matroska import PLACEHOLDER, muxer_delay
from vsrkit.video.opening import is_alpha_of_avif, is_still_item, packets, video_stream
from vsrkit.video.probe import codec_name

TEXT_SUBTITLES = {"subrip", "srt", "ass", "ssa", "webvtt", "mov_text", "text"}
# Subtitle codecs that each container supports, and the codec that text is converted to.
SUBTITLES = {
    "matroska": ({"subrip", "ass", "ssa", "webvtt", "dvdsub", "pgssub", "dvbsub", "dvd_subtitle",
                  "hdmv_pgs_subtitle", "dvb_subtitle", "srt"}, "srt"),
    "webm": ({"webvtt"}, "webvtt"),
    "mp4": ({"mov_text"}, "mov_text"),
    "mov": ({"mov_text"}, "mov_text"),
}  # fmt: skip

# Metadata that is no longer true of the new file.
STALE_KEYS = {"encoder", "duration", "major_brand", "minor_version", "compatible_brands"}
STALE_PREFIXES = ("_statistics", "bps", "number_of_", "duration-", "bps-", "vendor_id", "rotate")

# Encoders of text subtitles need a header with styles, even if they do not store it.
PLAIN_STYLE = b"""[Script Info]
ScriptType: v4.00+
PlayResX: 384
PlayResY: 288

[V4+ Styles]
Format: Name, Fontname, Fontsize, PrimaryColour, SecondaryColour, OutlineColour, BackColour, Bold, \
Italic, Underline, StrikeOut, ScaleX, ScaleY, Spacing, Angle, BorderStyle, Outline, Shadow, \
Alignment, MarginL, MarginR, MarginV, Encoding
Style: Default,Arial,16,&Hffffff,&Hffffff,&H0,&H0,0,0,0,0,100,100,0,0,1,1,0,2,10,10,10,1

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
"""

STYLE_TAGS = {"srt": "ibus", "webvtt": "ibu"}  # italic, bold, underline, strikethrough
_DRAWING = re.compile(r"\{[^}]*\\p[1-9][^}]*\}.*?(?:\{[^}]*\\p0[^}]*\}|$)", re.DOTALL)
_BRACES = str.maketrans({"\x02": "{", "\x03": "}"})

Warn = Callable[[str], None]  # receives one line about a stream that is changed or dropped
Packets: TypeAlias = Iterable[Packet]


class OutputStream(Protocol):
    """A stream of the new file that is made from a stream of the old one."""

    @property
    def distinct_times(self) -> bool:
        """Whether the container requires strictly increasing timestamps."""

    @property
    def lead(self) -> Fraction:
        """Seconds before the kept range from which packets are needed."""

    def receive(self, packet: Packet) -> None:
        """Correct the time of a packet of the old stream."""

    def convert(self, packet: Packet) -> Packets:
        """The packets of the new stream for a packet of the old one."""

    def finish(self) -> Packets:
        """The last packets, after the end of the old stream."""


def copy_streams(
    old: InputContainer, target: OutputContainer, *, warn: Warn
) -> dict[int, OutputStream]:
    """Add a stream to `target` for each stream of `old` except the one that is upscaled.

    warn: called with a line about each stream that is converted or dropped.

    Returns the new streams by their index in the old file.
    """
    kept: dict[int, OutputStream] = {}
    picture = video_stream(old, Path(old.name))
    encrypted = encrypted_streams(old)
    for stream in old.streams:
        if stream is picture:
            continue
        if stream.index in encrypted:
            warn(f"{_label(stream)} is encrypted and is not copied")
            continue
        match stream.type:
            case "audio":
                made = _audio(stream, target, warn)
            case "subtitle":
                made = _subtitle(stream, target, warn)
            case "attachment":
                _attach(stream, target, warn)
                continue
            case "video" if stream.disposition & Disposition.attached_pic:
                made = _cover(stream, old, target, warn)
            case "video" if is_alpha_of_avif(old, stream):
                continue  # see VideoInfo.not_kept
            case "video":
                made = _other_video(stream, old, target, warn)
            case "data" if old.chapters() and old.format.name.startswith("mov"):
                continue  # chapter track; chapters are copied separately
            case "data" if "timecode" in stream.metadata:
                continue  # also part of the video's metadata
            case _:
                warn(f"{_label(stream)} is not copied")
                continue
        if made is not None:
            kept[stream.index] = made
    return kept


@dataclass(frozen=True)
class CopiedStream:
    """Packets are copied unchanged."""

    stream: Stream
    distinct_times: bool = False
    lead: Fraction = Fraction(0)

    def receive(self, packet: Packet) -> None:
        pass

    def convert(self, packet: Packet) -> Packets:
        packet.stream = self.stream
        return [packet]

    def finish(self) -> Packets:
        return []


class ConvertedSubtitle(CopiedStream):
    """Text subtitles, converted to the codec of the container."""

    def convert(self, packet: Packet) -> Packets:
        codec = self.stream.codec_context.name
        text = _subtitle_text(packet, codec)
        if not text.strip():
            return []
        data = text.encode()
        if codec == "mov_text":
            data = len(data).to_bytes(2, "big") + data
        made: Packet = av.Packet(data)
        made.stream = self.stream
        made.time_base = packet.time_base
        made.pts = made.dts = packet.pts
        made.duration = packet.duration
        return [made]


def valid_metadata(metadata: dict[str, str]) -> dict[str, str]:
    """The metadata of a file or stream that is still true of the new file."""
    return {
        key: value
        for key, value in metadata.items()
        if key.lower() not in STALE_KEYS and not key.lower().startswith(STALE_PREFIXES)
    }


def _label(stream: Stream) -> str:
    language = f" {stream.language}" if getattr(stream, "language", None) else ""
    return f"{stream.type} stream {stream.index} ({codec_name(stream)}{language})"


def _copy_metadata(made: Stream, old: Stream) -> None:
    metadata = valid_metadata(old.metadata)
    if "name" in metadata and "title" not in metadata:  # FFmpeg's key for track titles in mp4
        metadata["title"] = metadata.pop("name")
    made.metadata.update(metadata)
    made.disposition = old.disposition


def _copy(stream: Stream, target: OutputContainer) -> CopiedStream:
    """Add a stream to `target` whose packets are copied."""
    made = target.add_stream_from_template(stream)
    _copy_metadata(made, stream)
    return CopiedStream(made)


def _copy_audio(stream: AudioStream, target: OutputContainer) -> CopiedAudio:
    """Add an audio stream to `target` whose packets are copied."""
    made = target.add_stream_from_template(stream)
    _copy_metadata(made, stream)
    if target.format.name not in ("matroska", "webm"):
        return CopiedAudio(made, muxer_delay=None)
    made.metadata["title"] = made.metadata.get("title", "") + PLACEHOLDER  # see finish_tracks
    return CopiedAudio(made, muxer_delay=muxer_delay(_header(target.format.name, stream)))


def _audio(stream: Stream, target: OutputContainer, warn: Warn) -> OutputStream | None:
    if stream.codec_context is None:
        warn(f"{_label(stream)} has an unknown codec and is not copied")
        return None
    form = target.format.name
    pcm = stream.codec_context.name.startswith("pcm_")
    # mp4 can hold PCM, but few players support it.
    assert isinstance(stream, AudioStream)
    if not (pcm and form == "mp4") and _supports(form, stream):
        return _copy_audio(stream, target)
    if not (stream.rate and stream.layout.nb_channels):  # in the header, but without data
        warn(f"{_label(stream)} contains no readable audio and is left out")
        return None
    made = convert_audio(stream, target)
    _copy_metadata(made.stream, stream)
    codec = made.stream.codec_context.name
    warn(f"{_label(stream)} is converted to {codec}: {form} does not support it")
    return made


def _other_video(
    stream: Stream, old: InputContainer, target: OutputContainer, warn: Warn
) -> CopiedVideo | None:
    """Copy a video that is not upscaled, if the container supports its codec."""
    form, codec = target.format.name, codec_name(stream)
    reason = f"{form} does not support it"
    if isinstance(stream, VideoStream) and is_still_item(stream):
        reason = "it is a still picture"
    elif isinstance(stream, VideoStream) and codec not in ("unknown", "rawvideo"):
        if old.format.name == "avi" and stream.codec_context.has_b_frames:
            reason = "avi does not store when its frames are displayed"
        elif _supports(form, stream):
            # Opaque: there is no encoder of the same name for some decoders, as of AV1.
            made = target.add_stream_from_template(stream, opaque=True)
            _copy_metadata(made, stream)
            made.disposition &= ~Disposition.default  # players show the upscaled one
            return CopiedVideo(made)
    warn(f"{_label(stream)}, another picture, is not copied: {reason}")
    return None


def _supports(form: str, stream: Stream) -> bool:
    """Whether a container supports a stream; some report an error only when writing the header."""
    try:
        _header(form, stream)
    except (ValueError, av.FFmpegError):
        return False
    return True


def _header(form: str, stream: Stream) -> io.BytesIO:
    """A file with a copy of a stream, but without any packets."""
    file = io.BytesIO()
    with av.open(file, "w", format=form) as trial:
        trial.add_stream_from_template(stream, opaque=True)  # see `_other_video`; and mp3float
        trial.start_encoding()
    return file


def _subtitle(stream: Stream, target: OutputContainer, warn: Warn) -> OutputStream | None:
    supported, form = SUBTITLES[target.format.name]
    codec = codec_name(stream)
    if codec in supported:
        return _copy(stream, target)
    if codec in TEXT_SUBTITLES:
        made = target.add_stream(form)
        assert isinstance(made, SubtitleStream)
        made.codec_context.subtitle_header = PLAIN_STYLE
        _copy_metadata(made, stream)
        warn(f"{_label(stream)} is converted to {form}")
        return ConvertedSubtitle(made)
    warn(f"{_label(stream)} is left out: {target.format.name} does not support it")
    return None


def _attach(stream: Any, target: OutputContainer, warn: Warn) -> None:
    name = stream.metadata.get("filename", f"attachment{stream.index}")
    if target.format.name != "matroska":
        warn(f"the attachment {name} is left out: only mkv supports attachments")
        return
    kind = stream.mimetype or stream.metadata.get("mimetype", "application/octet-stream")
    target.add_attachment(name, kind, stream.data)


def _cover(
    stream: Stream, old: InputContainer, target: OutputContainer, warn: Warn
) -> OutputStream | None:
    """Copy a cover picture: as a stream in mp4, as an attachment in mkv."""
    if target.format.name == "mp4" and _supports("mp4", stream):
        return _copy(stream, target)
    if target.format.name != "matroska":
        warn("the cover picture is left out: only mkv and mp4 support it")
        return None
    try:
        packet = next(p for p in packets(old, stream) if p.size)
    except (StopIteration, av.FFmpegError) as error:
        raise VideoError("the cover picture cannot be read") from error
    kind, suffix = ("png", "png") if stream.codec_context.name == "png" else ("jpeg", "jpg")
    name = stream.metadata.get("filename", f"cover.{suffix}")
    target.add_attachment(name, f"image/{kind}", bytes(packet))
    return None


def _subtitle_text(packet: Packet, codec: str) -> str:
    """The text of a subtitle packet with the markup of `codec`; empty if it cannot be decoded."""
    lines = []
    try:
        rectangles: Any = packet.decode()
        for rectangle in rectangles:
            text = getattr(rectangle, "dialogue", b"") or getattr(rectangle, "text", b"")
            lines.append(bytes(text).decode(errors="replace"))
    except av.FFmpegError:
        return ""
    return "\n".join(convert_ass_text(line, codec) for line in lines)


def convert_ass_text(text: str, codec: str) -> str:
    r"""Convert ASS markup such as `{\i1}` to the tags of `codec`; drop what it does not support."""
    text = text.replace(r"\{", "\x02").replace(r"\}", "\x03")  # escaped braces
    text = _DRAWING.sub("", text)
    text = text.replace(r"\N", "\n").replace(r"\n", "\n").replace(r"\h", "\N{NO-BREAK SPACE}")
    supported, is_open = STYLE_TAGS.get(codec, ""), ""
    made = []
    for number, part in enumerate(re.split(r"\{([^}]*)\}", text)):
        if number % 2 == 0:
            made.append(html.escape(part, quote=False) if codec == "webvtt" else part)
            continue
        for name, value in re.findall(r"\\([ibusr])(?![a-z])(\d*)", part):
            enabled = value not in ("", "0")
            if name == "r" or (name in is_open and not enabled):
                made += [f"</{tag}>" for tag in reversed(is_open)]
                is_open = "" if name == "r" else is_open.replace(name, "")
                made += [f"<{tag}>" for tag in is_open]
            elif name in supported and name not in is_open and enabled:
                made.append(f"<{name}>")
                is_open += name
    made += [f"</{tag}>" for tag in reversed(is_open)]
    return "".join(made).translate(_BRACES)
