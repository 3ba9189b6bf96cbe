"""Write the final file: the new video stream and the other streams of the source."""

import heapq
import io
import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import av
from av.container import InputContainer, OutputContainer
from av.stream import Disposition
from av.video.stream import VideoStream

from vsrkit.errors import VideoError
from vsrkit.hardware.files import sync_file
from vsrkit.video.audio import ConvertedAudio, CopiedAudio, Packet
from vsrkit.video.codecs import CONTAINERS, Encoding
from vsrkit.video.colour import FULL, layout_of
from vsrkit.video.copied_video import CopiedVideo
from vsrkit.video.encode import EncodedPacket, configure, read_packets
from vsrkit.video.matroska import PLACEHOLDER, display_size, finish_tracks
from vsrkit.video.opening import packets, video_stream
from vsrkit.video.read import Source
from vsrkit.video.streams import OutputStream, copy_streams, valid_metadata
from vsrkit.video.timestamps import (
    Clock,
    ContinuousTimestamps,
    TimeRange,
    find_timestamp_resets,
    with_decode_times,
)

log = logging.getLogger("vsrkit")

# Units per second of the times at which tracks begin; with FFmpeg's 1000, audio may be shifted by
# half a millisecond.
MOVIE_TIMESCALE = "48000"
LEAST_MP4_UNITS = 10_000  # per second, of a video track
MOST_LINES, LONGEST_LINE = 5, 300  # of messages about streams
Y4M_FRAME = b"FRAME\n"
Y4M_CHROMA = {(1, 1): "420", (0, 1): "422", (0, 0): "444"}
Y4M_SITINGS = {"left": "mpeg2", "center": "jpeg", "topleft": "paldv", "top": "jpeg"}


def assemble(
    path: Path,
    parts: Sequence[Path],
    *,
    suffix: str,
    encoding: Encoding,
    clock: Clock,
    source: Source,
) -> None:
    """Join encoded parts and the other streams of the source into one file, synced to disk.

    path: the file to write.
    parts: packet files, in order.
    suffix: suffix of the final file name, which determines the container.
    encoding: the encoding of the parts.
    clock: the display times of all frames.
    source: the source video, with its audio, subtitles, chapters and metadata.
    """
    form, options = container_options(suffix)
    delays: list[Fraction | None] = []
    try:
        if suffix == ".y4m":
            _write_y4m(path, parts, encoding)
            return
        with av.open(f"file:{path}", "w", format=form, options=options) as target:
            video = add_video(target, encoding, clock.time_base, source)
            if not source.info.streams:  # images or a pipe: no other streams
                _write_header(target, video, encoding)
                kept = TimeRange.of(source, clock)
                for packet in video_packets(parts, clock, video):
                    target.mux_one(kept.shift(packet))
            else:
                with source.open() as old:
                    copied = _mux_with_other_streams(
                        target, video, old, parts, clock, source, encoding
                    )
                delays = [s.delay for s in copied if isinstance(s, CopiedAudio)]
        if form in ("matroska", "webm"):
            aspect = encoding.sample_aspect
            size = display_size(encoding.width, encoding.height, aspect) if aspect != 1 else None
            finish_tracks(path, size=size, delays=delays)
        sync_file(path)
    except (av.FFmpegError, OSError, ValueError) as error:
        path.unlink(missing_ok=True)
        reason = getattr(error, "strerror", None) or str(error)
        raise VideoError(f"cannot write {path.parent / f'*{suffix}'}: {reason}") from error


def check_container(suffix: str, encoding: Encoding, source: Source) -> list[str]:
    """Raise VideoError if a file `*suffix` cannot hold this encoding or the source's streams.

    Returns a line about each stream that will be converted or left out.
    """
    if suffix == ".y4m":
        if encoding.codec != "rawvideo":
            raise VideoError(f"y4m is always uncompressed; leave out --codec {encoding.codec}")
        y4m_header(encoding)
        return []
    try:
        if suffix == ".mov" and encoding.codec == "rawvideo":
            raise ValueError("FFmpeg writes planar raw video to mov, but cannot read it")
        with av.open(io.BytesIO(), "w", format=container_options(suffix)[0]) as trial:
            video = trial.add_stream(encoding.codec, rate=encoding.rate)
            assert isinstance(video, VideoStream)
            configure(video.codec_context, encoding)
            trial.start_encoding()
    except (ValueError, av.FFmpegError) as error:
        raise VideoError(
            f"{suffix} cannot hold {encoding.codec}; leave out --codec or name the output *.mkv"
        ) from error
    return _check_other_streams(suffix, encoding, source) if source.info.streams else []


def _check_other_streams(suffix: str, encoding: Encoding, source: Source) -> list[str]:
    """Write the header of the file once: some errors only occur there."""
    form = container_options(suffix)[0]
    lines: list[str] = []
    try:
        with source.open() as old, av.open(io.BytesIO(), "w", format=form) as trial:
            add_video(trial, encoding, source.info.time_base, source)
            copy_streams(old, trial, warn=lines.append)
            trial.start_encoding()
    except (ValueError, av.FFmpegError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise VideoError(
            f"{suffix} cannot hold all streams of {source.path} ({reason}); "
            "name the output *.mkv or *.mp4"
        ) from error
    shown = [_printable(line) for line in lines[:MOST_LINES]]
    more = len(lines) - len(shown)
    return [*shown, f"and {more} more streams like these"] if more else shown


def _printable(line: str) -> str:
    """A line without the control characters and newlines that names in a file may have."""
    text = "".join(char if char.isprintable() else "?" for char in line)
    return text if len(text) <= LONGEST_LINE else f"{text[: LONGEST_LINE - 3]}..."


def check_times(suffix: str, clock: Clock) -> None:
    """Raise VideoError if a file `*suffix` cannot hold the times of the frames."""
    if CONTAINERS.get(suffix) not in ("mp4", "mov"):
        return
    units = clock.time_base.denominator
    while units < LEAST_MP4_UNITS:  # as the muxer does
        units *= 2
    longest = max(map(clock.duration, range(len(clock.times)))) * clock.time_base
    if longest * units >= 2**31:
        raise VideoError(
            f"a frame lasts {float(longest):.0f} seconds, which {suffix} cannot store; name the "
            "output *.mkv"
        )


def _write_y4m(path: Path, parts: Sequence[Path], encoding: Encoding) -> None:
    """Write uncompressed frames without any other streams."""
    with path.open("wb") as file:
        file.write(y4m_header(encoding))
        for _, packet in join_parts(parts):
            file.write(Y4M_FRAME + packet.data)
    sync_file(path)


def y4m_header(encoding: Encoding) -> bytes:
    """The header of a YUV4MPEG2 stream: one line of text."""
    layout = layout_of(encoding.pix_fmt)
    if layout is None or layout.kind != "yuv" or layout.halvings not in Y4M_CHROMA:
        raise VideoError(f"y4m supports YUV 4:2:0, 4:2:2 and 4:4:4, not {encoding.pix_fmt}")
    chroma = Y4M_CHROMA[layout.halvings]
    if layout.bits > 8:
        chroma += f"p{layout.bits}"
    elif chroma == "420":
        chroma += Y4M_SITINGS[encoding.colour.siting]
    rate, aspect = encoding.rate, Fraction(encoding.sample_aspect)
    levels = "FULL" if encoding.colour.range == FULL else "LIMITED"
    return (
        f"YUV4MPEG2 W{encoding.width} H{encoding.height} F{rate.numerator}:{rate.denominator} "
        f"Ip A{aspect.numerator}:{aspect.denominator} C{chroma} XCOLORRANGE={levels}\n"
    ).encode()


def container_options(suffix: str) -> tuple[str, dict[str, str]]:
    """FFmpeg's format and options for a file, chosen so that its bytes are reproducible."""
    if suffix not in CONTAINERS:
        raise VideoError(f"cannot write {suffix}; use one of {', '.join(CONTAINERS)}")
    # Without this flag, Matroska tracks get random numbers.
    options = {"fflags": "+bitexact"}
    if CONTAINERS[suffix] in ("matroska", "webm"):
        options["avoid_negative_ts"] = "disabled"  # they store no decoding times
    if CONTAINERS[suffix] in ("mp4", "mov"):
        options["movflags"] = "+faststart"
        options["movie_timescale"] = MOVIE_TIMESCALE
    return CONTAINERS[suffix], options


def add_video(
    target: OutputContainer, encoding: Encoding, time_base: Fraction, source: Source
) -> VideoStream:
    """Add the new video stream; its encoder is only opened to write the header."""
    video = target.add_stream(encoding.codec, rate=encoding.rate)
    assert isinstance(video, VideoStream)
    configure(video.codec_context, encoding)
    video.time_base = time_base
    if encoding.codec == "libx265" and target.format.name in ("mp4", "mov"):
        video.codec_context.codec_tag = "hvc1"  # required by Apple's players
    if source.info.display_matrix:
        video.set_display_matrix(source.info.display_matrix)
    return video


def video_packets(parts: Sequence[Path], clock: Clock, stream: VideoStream) -> Iterator[Packet]:
    """The packets of all parts with the timestamps of their frames.

    Parts were encoded separately, so decoding times are computed for the whole video: packet i is
    decoded at the display time of frame i - delay.
    """
    delay = max((i - packet.number for i, packet in join_parts(parts)), default=0)
    step = clock.duration(0)
    for i, packet in join_parts(parts):
        made: Packet = av.Packet(packet.data)
        made.stream = stream
        made.time_base = clock.time_base
        made.pts = clock.times[packet.number]
        made.dts = clock.times[i - delay] if i >= delay else clock.times[0] - (delay - i) * step
        made.duration = clock.duration(packet.number)
        made.is_keyframe = packet.keyframe
        yield made


def join_parts(parts: Iterable[Path]) -> Iterator[tuple[int, EncodedPacket]]:
    """The packets of all parts in decoding order, with frame numbers in the whole video."""
    count = start = 0
    for part in parts:
        for packet in read_packets(part):
            yield count, EncodedPacket(start + packet.number, packet.keyframe, packet.data)
            count += 1
        start = count


def _mux_with_other_streams(
    target: OutputContainer,
    video: VideoStream,
    old: InputContainer,
    parts: Sequence[Path],
    clock: Clock,
    source: Source,
    encoding: Encoding,
) -> Collection[OutputStream]:
    old_video = video_stream(old, source.path)
    video.metadata.update(valid_metadata(old_video.metadata))
    video.disposition = old_video.disposition
    target.metadata.update(valid_metadata(old.metadata))
    kept = TimeRange.of(source, clock)
    copied = copy_streams(old, target, warn=lambda _: None)  # see check_container
    if any(isinstance(stream, CopiedVideo) for stream in copied.values()):
        video.disposition |= Disposition.default
    target.set_chapters(list(kept.chapters(old.chapters())))
    _write_header(target, video, encoding)
    new = (kept.shift(packet) for packet in video_packets(parts, clock, video))
    timestamps = ContinuousTimestamps(find_timestamp_resets(source))
    others = _other_packets(old, copied, kept, timestamps)
    for packet in heapq.merge(new, others, key=_seconds):
        target.mux_one(packet)
    return copied.values()


def _write_header(target: OutputContainer, video: VideoStream, encoding: Encoding) -> None:
    """Write the header; after this, no stream can be added or changed."""
    if target.format.name in ("matroska", "webm") and encoding.sample_aspect != 1:
        video.metadata["title"] = video.metadata.get("title", "") + PLACEHOLDER
    target.start_encoding()


def _other_packets(
    old: InputContainer,
    copied: dict[int, OutputStream],
    kept: TimeRange,
    timestamps: ContinuousTimestamps,
) -> Iterator[Packet]:
    """The packets of the copied streams, in the order of the source file."""
    streams = [old.streams[index] for index in copied]
    if not streams:
        return
    try:
        for packet in with_decode_times(packets(old, *streams)):
            stream = copied[packet.stream.index]
            if packet.dts is None and packet.pts is None:
                if packet.size == 0:
                    yield from stream.finish()
                elif packet.stream.disposition & Disposition.attached_pic:  # has no timestamp
                    yield from stream.convert(packet)
                continue
            if packet.pts is None:
                packet.pts = packet.dts
            stream.receive(packet)
            timestamps.apply(packet, distinct=stream.distinct_times)
            assert packet.pts is not None
            if packet.stream.type == "subtitle":
                kept.trim_subtitle(packet)
            if isinstance(stream, CopiedVideo):
                for selected in stream.select(packet, kept):
                    yield from stream.convert(kept.shift(selected))
            elif kept.contains(packet, lead=stream.lead):
                if isinstance(stream, ConvertedAudio):
                    stream.rounding = kept.rounding(packet.time_base)
                yield from stream.convert(kept.shift(packet))
    except av.FFmpegError as error:
        log.warning("the other streams end early: %s", error.strerror)


def _seconds(packet: Packet) -> Fraction:
    time = packet.dts if packet.dts is not None else packet.pts
    return (time or 0) * packet.time_base
