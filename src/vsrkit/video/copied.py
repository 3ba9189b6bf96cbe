"""Audio, subtitles and attachments of a video carried over: as they are, or by rule."""

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import av
from av.audio.stream import AudioStream
from av.codec.context import CodecContext
from av.container import InputContainer, OutputContainer
from av.stream import Disposition, Stream
from av.subtitles.stream import SubtitleStream

from vsrkit.errors import VideoError
from vsrkit.video.audio import Packet, convert_audio
from vsrkit.video.subtitles import subtitle_text

TEXT_SUBTITLES = {"subrip", "srt", "ass", "ssa", "webvtt", "mov_text", "text"}
# What a container takes of subtitles without conversion, and what text becomes otherwise.
SUBTITLES = {
    "matroska": ({"subrip", "ass", "ssa", "webvtt", "dvdsub", "pgssub", "dvbsub", "dvd_subtitle",
                  "hdmv_pgs_subtitle", "dvb_subtitle", "srt"}, "srt"),
    "webm": ({"webvtt"}, "webvtt"),
    "mp4": ({"mov_text"}, "mov_text"),
    "mov": ({"mov_text"}, "mov_text"),
}  # fmt: skip

# Facts about the old file that are not true of the new one.
STALE = {"encoder", "duration", "major_brand", "minor_version", "compatible_brands"}
STALE_BEGINNINGS = ("_statistics", "bps", "number_of_", "duration-", "bps-", "vendor_id", "rotate")

# Encoders of text subtitles want to know the styles, even where they store none.
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

Said = Callable[[str], None]
Packets: TypeAlias = Iterable[Packet]


class CopiedStream(Protocol):
    """A stream on its way into the new file."""

    @property
    def apart(self) -> bool:
        """Whether its container takes no two packets of the same time."""

    def take(self, packet: Packet) -> Packets:
        """What a packet of the old stream becomes."""

    def finish(self) -> Packets:
        """What remains at the end."""


def carry_over(
    old: InputContainer, target: OutputContainer, *, said: Said
) -> dict[int, CopiedStream]:
    """Make a stream in `target` for each of `old` but the video; by index in the old file.

    What is converted or cannot be kept is said.
    """
    kept: dict[int, CopiedStream] = {}
    for stream in old.streams:
        match stream.type:
            case "audio":
                made = _audio(stream, target, said)
            case "subtitle":
                made = _subtitle(stream, target, said)
            case "attachment":
                _attach(stream, target, said)
                continue
            case "video" if stream.disposition & Disposition.attached_pic:
                made = _cover(stream, target, said)
            case "video":
                if stream is not _first_video(old):
                    said(f"stream {stream.index}, a second video, is not carried over")
                continue
            case "data" if old.chapters() and old.format.name.startswith("mov"):
                continue  # the track that holds the chapters, which are carried over
            case "data" if "timecode" in stream.metadata:
                continue  # the words about the video have it, too
            case _:
                said(f"stream {stream.index} ({stream.type}) is not carried over")
                continue
        if made is not None:
            kept[stream.index] = made
    return kept


@dataclass(frozen=True)
class Copied:
    """Packets as they are."""

    stream: Stream
    apart: bool = False

    def take(self, packet: Packet) -> Packets:
        packet.stream = self.stream
        return [packet]

    def finish(self) -> Packets:
        return []


@dataclass(frozen=True)
class ConvertedSubtitle:
    """Text in the form that the container knows."""

    stream: SubtitleStream
    apart: bool = False

    def take(self, packet: Packet) -> Packets:
        codec = self.stream.codec_context.name
        text = subtitle_text(packet, codec)
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

    def finish(self) -> Packets:
        return []


def lasting(metadata: dict[str, str]) -> dict[str, str]:
    """What of a file's or a stream's words is still true after its pictures were changed."""
    return {
        key: value
        for key, value in metadata.items()
        if key.lower() not in STALE and not key.lower().startswith(STALE_BEGINNINGS)
    }


def _first_video(old: InputContainer) -> Stream:
    return next(s for s in old.streams.video if not s.disposition & Disposition.attached_pic)


def _name(stream: Stream) -> str:
    language = f" {stream.language}" if stream.language else ""
    return f"{stream.type} stream {stream.index} ({_codec(stream)}{language})"


def _codec(stream: Stream) -> str:
    context: CodecContext | None = stream.codec_context
    return context.name if context is not None else "unknown"


def _described(made: Stream, old: Stream) -> None:
    words = lasting(old.metadata)
    if "name" in words and "title" not in words:  # as FFmpeg reads the title of a track in mp4
        words["title"] = words.pop("name")
    made.metadata.update(words)
    made.disposition = old.disposition


def _audio(stream: Stream, target: OutputContainer, said: Said) -> CopiedStream | None:
    if stream.codec_context is None:
        said(f"{_name(stream)} is of an unknown kind and is not carried over")
        return None
    form = target.format.name
    samples = stream.codec_context.name.startswith("pcm_")
    # Few players know samples in mp4, though it can hold them.
    if not (samples and form == "mp4") and _holds(form, stream):
        copy = target.add_stream_from_template(stream)
        _described(copy, stream)
        return Copied(copy, apart=form in ("mp4", "mov"))
    assert isinstance(stream, AudioStream)
    if not (stream.rate and stream.layout.nb_channels):  # announced, and never sent
        said(f"{_name(stream)} has no sound that can be read, and is left out")
        return None
    made = convert_audio(stream, target)
    _described(made.stream, stream)
    codec = made.stream.codec_context.name
    said(f"{_name(stream)} is converted to {codec}: {form} cannot hold it as it is")
    return made


def _holds(form: str, stream: Stream) -> bool:
    """Whether a container takes a stream; some refuse it only when they write their header."""
    try:
        with av.open(io.BytesIO(), "w", format=form) as trial:
            trial.add_stream_from_template(stream)
            trial.start_encoding()
    except (ValueError, av.FFmpegError):
        return False
    return True


def _subtitle(stream: Stream, target: OutputContainer, said: Said) -> CopiedStream | None:
    taken, form = SUBTITLES[target.format.name]
    codec = _codec(stream)
    if codec in taken:
        copy = target.add_stream_from_template(stream)
        _described(copy, stream)
        return Copied(copy)
    if codec in TEXT_SUBTITLES:
        made = target.add_stream(form)
        assert isinstance(made, SubtitleStream)
        made.codec_context.subtitle_header = PLAIN_STYLE
        _described(made, stream)
        said(f"{_name(stream)} is converted to {form}")
        return ConvertedSubtitle(made)
    said(f"{_name(stream)} is left out: {target.format.name} cannot hold it")
    return None


def _attach(stream: Any, target: OutputContainer, said: Said) -> None:
    name = stream.metadata.get("filename", f"attachment{stream.index}")
    if target.format.name != "matroska":
        said(f"the attachment {name} is left out: only mkv can hold it")
        return
    kind = stream.mimetype or stream.metadata.get("mimetype", "application/octet-stream")
    target.add_attachment(name, kind, stream.data)


def _cover(stream: Stream, target: OutputContainer, said: Said) -> CopiedStream | None:
    """A stream of one picture in mp4, an attachment in mkv."""
    if target.format.name == "mp4" and _holds("mp4", stream):
        copy = target.add_stream_from_template(stream)
        _described(copy, stream)
        return Copied(copy)
    if target.format.name != "matroska":
        said("the cover picture is left out: only mkv and mp4 can hold it")
        return None
    try:
        packet = next(p for p in stream.container.demux(stream) if p.size)  # type: ignore[attr-defined]
    except (StopIteration, av.FFmpegError) as error:
        raise VideoError("the cover picture cannot be read") from error
    kind, suffix = ("png", "png") if stream.codec_context.name == "png" else ("jpeg", "jpg")
    name = stream.metadata.get("filename", f"cover.{suffix}")
    target.add_attachment(name, f"image/{kind}", bytes(packet))
    return None
