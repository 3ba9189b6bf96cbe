"""Put a whole video together: new pictures, and every other stream as it was."""

import heapq
import io
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from pathlib import Path

import av
from av.container import InputContainer, OutputContainer
from av.stream import Disposition
from av.video.stream import VideoStream

from vsrkit.errors import VideoError
from vsrkit.hardware.files import sync_file
from vsrkit.video.audio import Packet
from vsrkit.video.copied import CopiedStream, carry_over, lasting
from vsrkit.video.encode import EncodedPacket, Encoding, set_up
from vsrkit.video.files import read_packets
from vsrkit.video.matroska import ROOM, display_size, needs_room, use_room
from vsrkit.video.probe import opened
from vsrkit.video.read import Source
from vsrkit.video.timestamp_resets import Onward, find_restarts
from vsrkit.video.y4m import FRAME, y4m_header

log = logging.getLogger("vsrkit")


@dataclass(frozen=True, slots=True)
class Clock:
    """When each frame is shown, in units of `time_base`."""

    times: Sequence[int]
    last_duration: int
    time_base: Fraction

    def duration(self, number: int) -> int:
        """How long a frame is shown."""
        if number + 1 < len(self.times):
            return self.times[number + 1] - self.times[number]
        return max(1, self.last_duration)


def assemble(
    path: Path,
    parts: Sequence[Path],
    *,
    suffix: str,
    encoding: Encoding,
    clock: Clock,
    source: Source,
) -> None:
    """Join encoded parts and the source's other streams into one file at `path`.

    suffix: that of the file's final name, which decides the container.
    """
    form, options = container_options(suffix)
    try:
        if suffix == ".y4m":
            _write_y4m(path, parts, encoding)
            return
        with av.open(f"file:{path}", "w", format=form, options=options) as target:
            video = add_video(target, encoding, clock.time_base, source)
            if not source.info.streams:  # images or a pipe: there is nothing else
                _begin(target, video, encoding)
                new = video_packets(parts, clock, video)
                for packet in _moved(new, Window.of(source, clock)):
                    target.mux_one(packet)
            else:
                with opened(source.path) as old:
                    _with_other_streams(target, video, old, parts, clock, source, encoding)
        if needs_room(form, encoding.sample_aspect):
            width, height = display_size(encoding.width, encoding.height, encoding.sample_aspect)
            use_room(path, width=width, height=height)
        sync_file(path)
    except (av.FFmpegError, OSError, ValueError) as error:
        path.unlink(missing_ok=True)
        reason = getattr(error, "strerror", None) or str(error)
        raise VideoError(f"cannot write {path.parent / f'*{suffix}'}: {reason}") from error


def check_container(suffix: str, encoding: Encoding, source: Source) -> None:
    """Refuse what a file `*suffix` cannot hold, now and not when all its packets are made."""
    if suffix == ".y4m":
        if encoding.codec != "rawvideo":
            raise VideoError(f"y4m is never compressed; leave --codec {encoding.codec} out")
        y4m_header(encoding)
        return
    try:
        if suffix == ".mov" and encoding.codec == "rawvideo":
            raise ValueError("it is written, but not as planes, which nobody could read")
        with av.open(io.BytesIO(), "w", format=container_options(suffix)[0]) as trial:
            video = trial.add_stream(encoding.codec, rate=encoding.rate)
            assert isinstance(video, VideoStream)
            set_up(video.codec_context, encoding)
            trial.start_encoding()
    except (ValueError, av.FFmpegError) as error:
        raise VideoError(
            f"{suffix} cannot hold {encoding.codec}; leave --codec out or name the output *.mkv"
        ) from error
    if source.info.streams:
        _check_other_streams(suffix, encoding, source)


def _check_other_streams(suffix: str, encoding: Encoding, source: Source) -> None:
    """Write the header of the whole file once: some streams are refused only there."""
    form = container_options(suffix)[0]
    try:
        with opened(source.path) as old, av.open(io.BytesIO(), "w", format=form) as trial:
            add_video(trial, encoding, source.info.time_base, source)
            carry_over(old, trial, said=lambda _: None)
            trial.start_encoding()
    except (ValueError, av.FFmpegError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise VideoError(
            f"{suffix} cannot hold all streams of {source.path} ({reason}); "
            "name the output *.mkv or *.mp4"
        ) from error


def _write_y4m(path: Path, parts: Sequence[Path], encoding: Encoding) -> None:
    """A file of uncompressed frames; it has room for nothing else."""
    with path.open("wb") as file:
        file.write(y4m_header(encoding))
        for _, packet in joined(parts):
            file.write(FRAME + packet.data)
    sync_file(path)


def container_options(suffix: str) -> tuple[str, dict[str, str]]:
    """Format and options of a file of this kind, for the same bytes each time."""
    formats = {".mkv": "matroska", ".webm": "webm", ".mp4": "mp4", ".m4v": "mp4", ".mov": "mov"}
    formats |= {".y4m": "yuv4mpegpipe"}
    if suffix not in formats:
        raise VideoError(f"cannot write {suffix}; use one of {', '.join(formats)}")
    # Matroska draws random numbers for its tracks without this flag.
    options = {"fflags": "+bitexact"}
    if formats[suffix] in ("matroska", "webm"):
        options["avoid_negative_ts"] = "disabled"  # it stores no decoding times; see video_packets
    if formats[suffix] in ("mp4", "mov"):
        options["movflags"] = "+faststart"
    return formats[suffix], options


def add_video(
    target: OutputContainer, encoding: Encoding, time_base: Fraction, source: Source
) -> VideoStream:
    """The new video stream; its encoder is opened for its header and gets no frame."""
    video = target.add_stream(encoding.codec, rate=encoding.rate)
    assert isinstance(video, VideoStream)
    set_up(video.codec_context, encoding)
    video.time_base = time_base
    if encoding.codec == "libx265" and target.format.name in ("mp4", "mov"):
        video.codec_context.codec_tag = "hvc1"  # the only name under which Apple plays it
    if source.info.display_matrix:
        video.set_display_matrix(source.info.display_matrix)
    return video


def video_packets(parts: Sequence[Path], clock: Clock, stream: VideoStream) -> Iterator[Packet]:
    """Packets of all parts with the times of their frames.

    Decoding times are made anew for the whole: packet i is decoded when the frame `delay` places
    earlier is shown. Each part was encoded alone, so that its own would not fit the next one's.
    """
    delay = max((i - packet.number for i, packet in joined(parts)), default=0)
    step = clock.duration(0)
    for i, packet in joined(parts):
        made: Packet = av.Packet(packet.data)
        made.stream = stream
        made.time_base = clock.time_base
        made.pts = clock.times[packet.number]
        made.dts = clock.times[i - delay] if i >= delay else clock.times[0] - (delay - i) * step
        made.duration = clock.duration(packet.number)
        made.is_keyframe = packet.keyframe
        yield made


def joined(parts: Iterable[Path]) -> Iterator[tuple[int, EncodedPacket]]:
    """The packets of all parts in the order of decoding, frames numbered through."""
    count = start = 0
    for part in parts:
        for packet in read_packets(part):
            yield count, EncodedPacket(start + packet.number, packet.keyframe, packet.data)
            count += 1
        start = count


def _with_other_streams(
    target: OutputContainer,
    video: VideoStream,
    old: InputContainer,
    parts: Sequence[Path],
    clock: Clock,
    source: Source,
    encoding: Encoding,
) -> None:
    old_video = next(s for s in old.streams.video if not s.disposition & Disposition.attached_pic)
    video.metadata.update(lasting(old_video.metadata))
    video.disposition = old_video.disposition
    target.metadata.update(lasting(old.metadata))
    window = Window.of(source, clock)
    copied = carry_over(old, target, said=lambda line: log.warning("%s", line))
    target.set_chapters(_chapters(old, window))
    _begin(target, video, encoding)
    new = video_packets(parts, clock, video)
    onward = Onward(find_restarts(source.path, source.info))
    others = _others(old, copied, window, onward)
    for packet in heapq.merge(_moved(new, window), others, key=_seconds):
        target.mux_one(packet)


def _begin(target: OutputContainer, video: VideoStream, encoding: Encoding) -> None:
    """Write the header: no stream can be added or described after this."""
    if needs_room(target.format.name, encoding.sample_aspect):
        video.metadata["title"] = video.metadata.get("title", "") + ROOM
    target.start_encoding()


@dataclass(frozen=True, slots=True)
class Window:
    """The part of the time that is kept, in seconds of the source, and what becomes its zero."""

    begin: Fraction | None
    end: Fraction | None
    zero: Fraction

    @classmethod
    def of(cls, source: Source, clock: Clock) -> "Window":
        """From the span that was asked for; program and transport streams begin anywhere."""
        begin, end = source.span
        first = clock.times[0] * clock.time_base
        if begin or end is not None:
            last = (
                clock.times[-1] * clock.time_base
                + clock.duration(len(clock.times) - 1) * clock.time_base
            )
            return cls(first, last, first)
        anywhere = source.info.container in ("mpegts", "mpeg")
        return cls(None, None, first if anywhere else Fraction(0))

    def holds(self, seconds: Fraction) -> bool:
        """Whether a time lies inside."""
        return (self.begin is None or seconds >= self.begin) and (
            self.end is None or seconds < self.end
        )


def _moved(packets: Iterable[Packet], window: Window) -> Iterator[Packet]:
    for packet in packets:
        _shift(packet, window)
        yield packet


def _others(
    old: InputContainer, copied: dict[int, CopiedStream], window: Window, onward: Onward
) -> Iterator[Packet]:
    """Packets of the streams that are kept, in the order of the file."""
    streams = [old.streams[index] for index in copied]
    if not streams:
        return
    try:
        for packet in old.demux(streams):
            kept = copied[packet.stream.index]
            if packet.dts is None and packet.pts is None:
                if packet.size == 0:
                    yield from kept.finish()
                elif packet.stream.disposition & Disposition.attached_pic:  # it has no time
                    yield from kept.take(packet)
                continue
            if packet.pts is None:
                packet.pts = packet.dts
            onward.place(packet, apart=kept.apart)
            assert packet.pts is not None
            if packet.stream.type == "subtitle":
                _shorten(packet, window)
            if not window.holds(packet.pts * packet.time_base):
                continue
            _shift(packet, window)
            yield from kept.take(packet)
    except av.FFmpegError as error:
        log.warning("audio and subtitles end early: %s", error.strerror)


def _shorten(packet: Packet, window: Window) -> None:
    """Let a line of text that is shown when the window begins begin with it."""
    start = packet.pts
    if window.begin is None or start is None or not packet.duration:
        return
    begin = ceil(window.begin / packet.time_base)
    if start < begin < start + packet.duration:
        packet.pts = packet.dts = begin
        packet.duration -= begin - start


def _shift(packet: Packet, window: Window) -> None:
    if window.zero:
        offset = round(window.zero / packet.time_base)
        packet.pts = None if packet.pts is None else packet.pts - offset
        packet.dts = None if packet.dts is None else packet.dts - offset


def _seconds(packet: Packet) -> Fraction:
    time = packet.dts if packet.dts is not None else packet.pts
    return (time or 0) * packet.time_base


def _chapters(old: InputContainer, window: Window) -> "list[av.container.core.Chapter]":
    """Chapters, those cut by the window shortened, those outside left out."""
    kept = []
    for chapter in old.chapters():
        base = chapter["time_base"]
        if base is None:
            continue
        low = round(window.begin / base) if window.begin is not None else chapter["start"]
        high = round(window.end / base) if window.end is not None else chapter["end"]
        start, end = max(chapter["start"], low), min(chapter["end"], high)
        if start < end or window.begin is None:
            offset = round(window.zero / base)
            kept.append({**chapter, "start": start - offset, "end": end - offset})
    return kept  # type: ignore[return-value]
