"""Write the final file: the new video stream and the other streams of the source."""

import heapq
import io
import logging
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import av
from av.container import InputContainer, OutputContainer
from av.stream import Disposition
from av.video.stream import VideoStream

from vsrkit.errors import VideoError
from vsrkit.hardware.files import sync_file
from vsrkit.video.audio import Packet
from vsrkit.video.codecs import CONTAINERS, Encoding
from vsrkit.video.colour import FULL, layout_of
from vsrkit.video.encode import EncodedPacket, configure, read_packets
from vsrkit.video.matroska import PLACEHOLDER, display_size, set_display_size
from vsrkit.video.probe import open_container, video_stream
from vsrkit.video.read import Source
from vsrkit.video.streams import OutputStream, copy_streams, valid_metadata
from vsrkit.video.timestamps import Clock, ContinuousTimestamps, TimeRange, find_timestamp_resets

log = logging.getLogger("vsrkit")

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
                with open_container(source.path) as old:
                    _mux_with_other_streams(target, video, old, parts, clock, source, encoding)
        if _needs_display_size(form, encoding.sample_aspect):
            width, height = display_size(encoding.width, encoding.height, encoding.sample_aspect)
            set_display_size(path, width=width, height=height)
        sync_file(path)
    except (av.FFmpegError, OSError, ValueError) as error:
        path.unlink(missing_ok=True)
        reason = getattr(error, "strerror", None) or str(error)
        raise VideoError(f"cannot write {path.parent / f'*{suffix}'}: {reason}") from error


def check_container(suffix: str, encoding: Encoding, source: Source) -> None:
    """Raise VideoError if a file `*suffix` cannot hold this encoding or the source's streams."""
    if suffix == ".y4m":
        if encoding.codec != "rawvideo":
            raise VideoError(f"y4m is always uncompressed; leave out --codec {encoding.codec}")
        y4m_header(encoding)
        return
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
    if source.info.streams:
        _check_other_streams(suffix, encoding, source)


def _check_other_streams(suffix: str, encoding: Encoding, source: Source) -> None:
    """Write the header of the file once: some errors only occur there."""
    form = container_options(suffix)[0]
    try:
        with open_container(source.path) as old, av.open(io.BytesIO(), "w", format=form) as trial:
            add_video(trial, encoding, source.info.time_base, source)
            copy_streams(old, trial, warn=lambda _: None)
            trial.start_encoding()
    except (ValueError, av.FFmpegError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise VideoError(
            f"{suffix} cannot hold all streams of {source.path} ({reason}); "
            "name the output *.mkv or *.mp4"
        ) from error


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
) -> None:
    old_video = video_stream(old, source.path)
    video.metadata.update(valid_metadata(old_video.metadata))
    video.disposition = old_video.disposition
    target.metadata.update(valid_metadata(old.metadata))
    kept = TimeRange.of(source, clock)
    copied = copy_streams(old, target, warn=lambda line: log.warning("%s", line))
    target.set_chapters(list(kept.chapters(old.chapters())))
    _write_header(target, video, encoding)
    new = (kept.shift(packet) for packet in video_packets(parts, clock, video))
    timestamps = ContinuousTimestamps(find_timestamp_resets(source.path, source.info))
    others = _other_packets(old, copied, kept, timestamps)
    for packet in heapq.merge(new, others, key=_seconds):
        target.mux_one(packet)


def _write_header(target: OutputContainer, video: VideoStream, encoding: Encoding) -> None:
    """Write the header; after this, no stream can be added or changed."""
    if _needs_display_size(target.format.name, encoding.sample_aspect):
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
        for packet in old.demux(streams):
            stream = copied[packet.stream.index]
            if packet.dts is None and packet.pts is None:
                if packet.size == 0:
                    yield from stream.finish()
                elif packet.stream.disposition & Disposition.attached_pic:  # has no timestamp
                    yield from stream.convert(packet)
                continue
            if packet.pts is None:
                packet.pts = packet.dts
            timestamps.apply(packet, distinct=stream.distinct_times)
            assert packet.pts is not None
            if packet.stream.type == "subtitle":
                kept.trim_subtitle(packet)
            if kept.contains(packet.pts * packet.time_base):
                yield from stream.convert(kept.shift(packet))
    except av.FFmpegError as error:
        log.warning("audio and subtitles end early: %s", error.strerror)


def _seconds(packet: Packet) -> Fraction:
    time = packet.dts if packet.dts is not None else packet.pts
    return (time or 0) * packet.time_base


def _needs_display_size(form: str, sample_aspect: Fraction) -> bool:
    """Whether `set_display_size` must be called for a file of this format."""
    return form in ("matroska", "webm") and sample_aspect != 1
