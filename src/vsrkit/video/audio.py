"""Copy audio with times that are exact to the sample; re-encode what a container cannot hold."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import TYPE_CHECKING, Any, TypeAlias

import av
import numpy as np
from av.audio.codeccontext import AudioCodecContext
from av.audio.resampler import AudioResampler
from av.audio.stream import AudioStream
from av.codec.context import CodecContext
from av.container import OutputContainer

if TYPE_CHECKING:
    Packet: TypeAlias = av.Packet[Any]
else:
    Packet = av.Packet  # generic for type checkers only

ENCODERS = {"webm": "libopus", "mp4": "aac", "mov": "aac", "matroska": "flac"}  # by container
LOSSLESS = {"mp4": "flac", "mov": "alac", "matroska": "flac"}  # for sources that are lossless
# By number of channels, if a file has no layout or the encoder does not support it.
DEFAULT_LAYOUTS = {1: "mono", 2: "stereo", 3: "3.0", 4: "quad", 5: "5.0", 6: "5.1", 7: "6.1"}
DEFAULT_LAYOUTS |= {8: "7.1"}
HALF = Fraction(1, 2)
JITTER = Fraction(1, 10)  # seconds; smaller gaps between timestamps are rounding errors
# Seconds of packets before the kept range, which a decoder needs for the right first samples.
LEAD = Fraction(1, 10)
EVERYTHING = Fraction(10**9)  # the same, to count samples from the first packet of a file
OPUS_FRAMES = (480, 960, 1920, 2880)  # samples at 48 kHz of SILK frames, by the configuration


class SampleTimes:
    """Times of the packets of an audio stream in samples, by counting the samples of packets.

    Many containers store milliseconds or coarser units, which is audible as a shift of up to 24
    samples where a file is cut. Counting is checked: it may differ from the stored times by one of
    their units.
    """

    def __init__(self) -> None:
        self._next: int | None = None
        self._is_first = True

    def next(self, packet: Packet) -> tuple[int, int]:
        """Time and duration of the next packet in samples."""
        assert packet.pts is not None
        unit = packet.time_base * packet.stream.codec_context.sample_rate
        stored = packet.pts * unit
        expected = -_skipped(packet) if self._is_first else self._next
        self._is_first = False
        exact = expected is not None and abs(expected - stored) <= unit
        time = expected if exact and expected is not None else round(stored)
        count = samples_of(packet)
        self._next = None if count is None else time + count
        return time, round((packet.duration or 0) * unit) if count is None else count


def _skipped(packet: Packet) -> int:
    """How many samples at the start of a packet the decoder drops: the delay of the encoder."""
    if not packet.has_sidedata("skip_samples"):
        return 0
    return int.from_bytes(bytes(packet.get_sidedata("skip_samples"))[:4], "little")


def samples_of(packet: Packet) -> int | None:
    """Samples of each channel in a packet; None if its codec does not tell easily."""
    context = packet.stream.codec_context
    if context.name == "vorbis":
        try:
            frames: Any = packet.decode()
            return sum(frame.samples for frame in frames)
        except av.FFmpegError:
            return None
    if context.name in ("opus", "libopus") and context.sample_rate == 48000:
        return _samples_of_opus(bytes(packet)[:2])
    if bits := re.fullmatch(r"pcm_[suf](\d+)[lb]e", context.name):
        return packet.size // (int(bits[1]) // 8 * max(1, context.channels))
    return context.frame_size if context.frame_size > 1 else None


def _samples_of_opus(head: bytes) -> int:
    """From the first bytes of an Opus packet, see RFC 6716, section 3.1."""
    if not head:
        return 0
    configuration, code = head[0] >> 3, head[0] & 3
    if configuration < 12:
        size = OPUS_FRAMES[configuration % 4]
    elif configuration < 16:
        size = OPUS_FRAMES[configuration % 2]
    else:
        size = 120 << configuration % 4
    count = (1, 2, 2, head[1] & 63 if len(head) > 1 else 0)[code]
    return size * count


class CopiedAudio:
    """Packets are copied unchanged, with exact times.

    Matroska stores milliseconds, but the delay of a track in nanoseconds. So its time before zero
    is stored as its delay, and its first packet is at 0 ms.

    delay: of the finished track; None for other containers and before the first packet.
    """

    def __init__(self, stream: AudioStream, *, muxer_delay: Fraction | None) -> None:
        """Copy to `stream`.

        muxer_delay: which the muxer of Matroska adds to all times; None for other containers.
        """
        self.stream = stream
        self.distinct_times = muxer_delay is None
        # A decoder of Vorbis gives nothing for the first packet, but mp4 has no place to say so.
        is_vorbis = stream.codec_context.name == "vorbis"
        self.lead = Fraction(0) if is_vorbis and muxer_delay is None else LEAD
        self.delay: Fraction | None = None
        self._muxer_delay = muxer_delay
        self._times = SampleTimes()

    def receive(self, packet: Packet) -> None:
        """Make the time of a packet exact."""
        if rate := packet.stream.codec_context.sample_rate:
            packet.pts, packet.duration = self._times.next(packet)
            packet.dts, packet.time_base = packet.pts, Fraction(1, rate)

    def convert(self, packet: Packet) -> Iterable[Packet]:
        """The packet, for the new stream."""
        assert packet.pts is not None
        if self._muxer_delay is not None:
            if self.delay is None:
                self.delay = max(Fraction(0), -packet.pts * packet.time_base)
            # Players subtract the delay in whole milliseconds, but drop its exact samples.
            shift = Fraction(floor(self.delay * 1000 + HALF), 1000) - self._muxer_delay
            packet.pts += round(shift / packet.time_base)
            if self.delay and packet.pts * packet.time_base * 1000 % 1 == HALF:
                packet.pts -= 1  # so that the muxer rounds down, as players do before zero
            packet.dts = packet.pts
        packet.stream = self.stream
        return [packet]

    def finish(self) -> Iterable[Packet]:
        """Nothing is left at the end."""
        return []


@dataclass
class ConvertedAudio:
    """An audio stream that is decoded and re-encoded."""

    stream: AudioStream
    resampler: AudioResampler
    distinct_times: bool = False  # see streams.OutputStream
    next_sample: int | None = None  # expected time of the next frame, in samples
    lead: Fraction = EVERYTHING
    rounding: Fraction = Fraction(0)  # seconds to add to all times, see `TimeRange.rounding`

    def receive(self, packet: Packet) -> None:
        """Times are made exact after decoding."""

    def convert(self, packet: Packet) -> Iterable[Packet]:
        """Re-encode an input packet."""
        try:
            frames = packet.decode()
        except av.FFmpegError:
            return []  # damaged packet; the timestamp of the next leaves a gap
        return list(self._encode(frames))

    def finish(self) -> Iterable[Packet]:
        """Flush decoder and encoder."""
        return [*self._encode([None]), *self.stream.encode(None)]

    def _encode(self, frames: Iterable[Any]) -> Iterator[Packet]:
        for frame in frames:
            if frame is not None:
                self._set_time(frame)
                frame = _from_zero(frame)
                if frame is None:
                    continue
            for part in self.resampler.resample(frame):
                yield from self.stream.encode(part)

    def _set_time(self, frame: av.AudioFrame) -> None:
        """Set the timestamp by counting samples: many files store milliseconds only."""
        base = Fraction(1, frame.sample_rate)
        start = self.next_sample or 0
        if frame.pts is not None and frame.time_base is not None:
            stored = round((frame.pts * frame.time_base + self.rounding) / base)
            if self.next_sample is None or stored - start > JITTER / base:
                start = stored
        frame.pts, frame.time_base = start, base
        self.next_sample = start + frame.samples


def _from_zero(frame: av.AudioFrame) -> av.AudioFrame | None:
    """A frame without its samples before time zero; None if there are no others."""
    assert frame.pts is not None
    early = max(0, -frame.pts)
    if early == 0:
        return frame
    if early >= frame.samples:
        return None
    step = 1 if frame.format.is_planar else frame.layout.nb_channels
    kept: Any = np.ascontiguousarray(frame.to_ndarray()[:, early * step :])
    made = av.AudioFrame.from_ndarray(kept, format=frame.format.name, layout=frame.layout.name)
    made.sample_rate, made.time_base, made.pts = frame.sample_rate, frame.time_base, 0
    return made


def convert_audio(old: AudioStream, target: OutputContainer) -> ConvertedAudio:
    """Add an audio stream to `target` in a codec it supports; lossless audio stays lossless."""
    form, kind = target.format.name, old.codec_context.codec
    lossless = kind.lossless or kind.name.startswith("pcm_")
    codec = LOSSLESS.get(form, ENCODERS[form]) if lossless else ENCODERS[form]
    encoder = av.Codec(codec, "w")
    rate = _rate(encoder, old.rate)
    made = target.add_stream(codec, rate=rate)
    assert isinstance(made, AudioStream)
    made.codec_context.format = _format(encoder, old)
    made.codec_context.layout = _layout(made.codec_context, old)
    made.codec_context.open()
    resampler = AudioResampler(
        format=made.format, layout=made.layout, rate=rate, frame_size=made.frame_size
    )
    return ConvertedAudio(made, resampler)


def _rate(encoder: av.Codec, rate: int) -> int:
    """The same sample rate, or the next higher one that the encoder supports; 48 kHz for Opus."""
    if encoder.name == "libopus":
        return 48000
    known = encoder.audio_rates or [rate]
    return min((other for other in known if other >= rate), default=max(known))


def _format(encoder: av.Codec, old: AudioStream) -> str:
    """The smallest sample format with at least as many bytes as the source, up to four."""
    formats = encoder.audio_formats or []
    wanted = min(4, old.format.bytes)
    return min(formats, key=lambda form: (form.bytes < wanted, form.bytes)).name


def _layout(context: AudioCodecContext, old: AudioStream) -> str:
    """The channel layout of the source, or a default one if the encoder does not support it."""
    trial = CodecContext.create(context.name, "w")
    assert isinstance(trial, AudioCodecContext)
    trial.format, trial.sample_rate = context.format, context.sample_rate
    trial.layout = old.layout
    try:
        trial.open()
    except (av.FFmpegError, ValueError):
        return DEFAULT_LAYOUTS.get(old.layout.nb_channels, "stereo")
    return old.layout.name
