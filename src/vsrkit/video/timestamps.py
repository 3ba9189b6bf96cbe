"""Timestamps: of new frames, of the kept time range, and of sources whose times jump back."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING

import av

from vsrkit.video.audio import Packet
from vsrkit.video.opening import packets, video_stream
from vsrkit.video.read import JUMP, Source

if TYPE_CHECKING:
    from av.container.core import Chapter

CONCATENABLE = ("mpegts", "mpeg")  # containers whose files can be concatenated byte by byte
LONGEST_DELAY = 32  # packets between decoding and display


@dataclass(frozen=True, slots=True)
class Clock:
    """The display time of each frame, in units of `time_base`."""

    times: Sequence[int]
    last_duration: int
    time_base: Fraction

    def duration(self, number: int) -> int:
        """How long a frame is displayed."""
        if number + 1 < len(self.times):
            return self.times[number + 1] - self.times[number]
        return max(1, self.last_duration)


@dataclass(frozen=True, slots=True)
class TimeRange:
    """The part of a source that is kept, in seconds, and the source time that becomes zero."""

    begin: Fraction | None
    end: Fraction | None
    zero: Fraction

    @classmethod
    def of(cls, source: Source, clock: Clock) -> "TimeRange":
        """The range of the span of a source; MPEG streams may start at any time."""
        begin, end = source.span
        first = clock.times[0] * clock.time_base
        if begin or end is not None:
            last = clock.times[-1] + clock.duration(len(clock.times) - 1)
            return cls(first, last * clock.time_base, first)
        return cls(None, None, first if source.info.container in CONCATENABLE else Fraction(0))

    def contains(self, packet: Packet, *, lead: Fraction) -> bool:
        """Whether a packet begins in the range, or is needed for what comes after its beginning.

        lead: seconds before the range from which packets are needed, for audio; 0 for others.
        """
        assert packet.pts is not None
        seconds = packet.pts * packet.time_base
        if self.end is not None and seconds >= self.end:
            return False
        if lead:
            stop = seconds + (packet.duration or 0) * packet.time_base
            return stop >= (self.zero if self.begin is None else self.begin) - lead
        return self.begin is None or seconds >= self.begin

    def trim_subtitle(self, packet: Packet) -> None:
        """Let a subtitle that is visible at the start of the range begin there."""
        start = packet.pts
        if self.begin is None or start is None or not packet.duration:
            return
        begin = ceil(self.begin / packet.time_base)
        if start < begin < start + packet.duration:
            packet.pts = packet.dts = begin
            packet.duration -= begin - start

    def rounding(self, base: Fraction) -> Fraction:
        """Seconds that `shift` moves packets with this time base too far: AVI has 24 ms for MP3."""
        return round(self.zero / base) * base - self.zero

    def shift(self, packet: Packet) -> Packet:
        """Move the timestamps of a packet so that the range begins at zero, in place."""
        if self.zero:
            offset = round(self.zero / packet.time_base)
            packet.pts = None if packet.pts is None else packet.pts - offset
            packet.dts = None if packet.dts is None else packet.dts - offset
        return packet

    def chapters(self, chapters: "Iterable[Chapter]") -> "Iterator[Chapter]":
        """Chapters of the new file: cut at the ends of the range, dropped outside of it."""
        for chapter in chapters:
            base = chapter["time_base"]
            if base is None:
                continue
            low = round(self.begin / base) if self.begin is not None else chapter["start"]
            high = round(self.end / base) if self.end is not None else chapter["end"]
            start, end = max(chapter["start"], low), min(chapter["end"], high)
            if start < end or self.begin is None:
                offset = round(self.zero / base)
                yield {**chapter, "start": start - offset, "end": end - offset}


def find_timestamp_resets(source: Source) -> list[Fraction]:
    """Seconds to add to all timestamps after the first reset, after the second, and so on.

    Concatenated recordings restart their timestamps. Resets are found in the packets of the video,
    by the same rule as `read.select_span` applies to frames.
    """
    info = source.info
    if info.container not in CONCATENABLE:
        return []
    shifts: list[Fraction] = []
    shift, latest = Fraction(0), None
    with source.open() as container:
        try:
            for packet in packets(container, video_stream(container, source.path)):
                if packet.pts is None:
                    continue
                time = packet.pts * packet.time_base + shift
                if latest is not None and packet.is_keyframe and latest - time > JUMP:
                    shift += latest + 1 / info.frame_rate - time
                    time = latest + 1 / info.frame_rate
                    shifts.append(shift)
                latest = time if latest is None else max(latest, time)
        except av.FFmpegError:
            pass  # truncated file
    return shifts


class ContinuousTimestamps:
    """Removes timestamp resets from audio and subtitles, so that no stream jumps back.

    shifts: the result of `find_timestamp_resets`.
    """

    def __init__(self, shifts: list[Fraction]) -> None:
        self._shifts = [Fraction(0), *shifts]
        self._resets: dict[int, int] = {}  # number of resets so far, by stream
        self._latest: dict[int, int] = {}  # time of the last packet, by stream

    def apply(self, packet: Packet, *, distinct: bool) -> None:
        """Set the timestamps of the next packet of its stream.

        distinct: make them strictly increasing. Only for containers that require it: TrueHD packets
            are shorter than Matroska's unit of a millisecond and would drift.
        """
        assert packet.pts is not None
        stream, base = packet.stream.index, packet.time_base
        latest, count = self._latest.get(stream), self._resets.get(stream, 0)
        if latest is not None and count + 1 < len(self._shifts):
            back = latest * base - (packet.pts * base + self._shifts[count])
            count += back > JUMP
        self._resets[stream] = count
        shift = round(self._shifts[count] / base)
        time = (packet.pts if packet.dts is None else packet.dts) + shift
        if latest is not None:
            time = max(time, latest + distinct)
        packet.pts = max(packet.pts + shift, time)
        packet.dts = self._latest[stream] = time


def with_decode_times(found: Iterable[Packet]) -> Iterator[Packet]:
    """Packets with the decoding times that Matroska lacks where they are before the first frame.

    found: packets of any streams; only those of video wait for the next decoding time.
    """
    waiting: dict[int, list[Packet]] = {}
    for packet in found:
        held = waiting.setdefault(packet.stream.index, [])
        is_video = packet.stream.type == "video"
        if is_video and packet.pts is not None and packet.dts is None and len(held) < LONGEST_DELAY:
            held.append(packet)
            continue
        shown = [early.pts for early in held if early.pts is not None]
        known = min(shown, default=0) if packet.dts is None else packet.dts
        for back, early in enumerate(reversed(held), 1):
            early.dts = known - back * max(1, early.duration or 1)
        yield from held
        held.clear()
        yield packet
