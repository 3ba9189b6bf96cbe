"""Audio encoded anew, for containers that cannot hold it as it is."""

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
LOSSLESS = {"mp4": "flac", "mov": "alac", "matroska": "flac"}  # for what has lost nothing yet
# Where a file only says how many channels there are, or an encoder does not know their places.
USUAL_LAYOUTS = {1: "mono", 2: "stereo", 3: "3.0", 4: "quad", 5: "5.0", 6: "5.1", 7: "6.1"}
USUAL_LAYOUTS |= {8: "7.1"}
JITTER = Fraction(1, 10)  # seconds by which files round or smear the times of their audio


@dataclass
class ConvertedAudio:
    """Audio that was decoded and is encoded anew."""

    stream: AudioStream
    resampler: AudioResampler
    apart: bool = False  # times are counted by samples
    next_sample: int | None = None  # where a frame begins that follows without a gap

    def take(self, packet: Packet) -> Iterable[Packet]:
        """What a packet of the old stream becomes."""
        try:
            frames = packet.decode()
        except av.FFmpegError:
            return []  # a damaged packet; silence follows by the times of the next
        return list(self._encoded(frames))

    def finish(self) -> Iterable[Packet]:
        """What remains at the end."""
        return [*self._encoded([None]), *self.stream.encode(None)]

    def _encoded(self, frames: Iterable[Any]) -> Iterator[Packet]:
        for frame in frames:
            if frame is not None:
                self._place(frame)
            for part in self.resampler.resample(frame):
                yield from self.stream.encode(part)

    def _place(self, frame: av.AudioFrame) -> None:
        """Count samples: many files know times to the millisecond only, and muxers want more."""
        base = Fraction(1, frame.sample_rate)
        start = self.next_sample or 0
        if frame.pts is not None and frame.time_base is not None:
            told = round(frame.pts * frame.time_base / base)
            if self.next_sample is None or told - start > JITTER / base:
                start = told
        frame.pts, frame.time_base = start, base
        self.next_sample = start + frame.samples


def convert_audio(old: AudioStream, target: OutputContainer) -> ConvertedAudio:
    """Make a stream in `target` that its container can hold; what lost nothing goes on so."""
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
    """The same, or the next that the encoder knows; Opus has one that its makers advise."""
    if encoder.name == "libopus":
        return 48000
    known = encoder.audio_rates or [rate]
    return min((other for other in known if other >= rate), default=max(known))


def _format(encoder: av.Codec, old: AudioStream) -> str:
    """Samples as fine as the old ones: two bytes, or the widest there are."""
    formats = encoder.audio_formats or []
    wanted = min(4, old.format.bytes)
    return min(formats, key=lambda form: (form.bytes < wanted, form.bytes)).name


def _layout(context: AudioCodecContext, old: AudioStream) -> str:
    """The old channels in their places, or in the usual ones where the encoder wants that."""
    trial = CodecContext.create(context.name, "w")
    assert isinstance(trial, AudioCodecContext)
    trial.format, trial.sample_rate = context.format, context.sample_rate
    trial.layout = old.layout
    try:
        trial.open()
    except (av.FFmpegError, ValueError):
        return USUAL_LAYOUTS.get(old.layout.nb_channels, "stereo")
    return old.layout.name
