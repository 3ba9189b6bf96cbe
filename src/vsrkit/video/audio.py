"""Re-encode audio for containers that do not support its codec."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

import av
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
JITTER = Fraction(1, 10)  # seconds; smaller gaps between timestamps are rounding errors


@dataclass
class ConvertedAudio:
    """An audio stream that is decoded and re-encoded."""

    stream: AudioStream
    resampler: AudioResampler
    distinct_times: bool = False  # see streams.OutputStream
    next_sample: int | None = None  # expected time of the next frame, in samples

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
            for part in self.resampler.resample(frame):
                yield from self.stream.encode(part)

    def _set_time(self, frame: av.AudioFrame) -> None:
        """Set the timestamp by counting samples: many files store milliseconds only."""
        base = Fraction(1, frame.sample_rate)
        start = self.next_sample or 0
        if frame.pts is not None and frame.time_base is not None:
            stored = round(frame.pts * frame.time_base / base)
            if self.next_sample is None or stored - start > JITTER / base:
                start = stored
        frame.pts, frame.time_base = start, base
        self.next_sample = start + frame.samples


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
