"""Copy further video streams of the source, such as a second camera, without recompression."""

import logging
from collections.abc import Iterable
from fractions import Fraction

from av.stream import Stream

from vsrkit.video.opening import Packet
from vsrkit.video.timestamps import TimeRange

log = logging.getLogger("vsrkit")


class CopiedVideo:
    """Packets are copied unchanged; a kept range begins at its first keyframe."""

    distinct_times = True
    lead = Fraction(0)

    def __init__(self, stream: Stream) -> None:
        """Copy to `stream`."""
        self.stream = stream
        self._first: int | None = None  # display time of the first kept packet
        self._after_end: list[Packet] = []
        self._none_kept = True

    def receive(self, packet: Packet) -> None:
        """Its times are right, see `with_decode_times`."""

    def select(self, packet: Packet, kept: TimeRange) -> list[Packet]:
        """The packets to copy now that this one was read, in decoding order.

        Frames after the end of the range are copied only where frames before it refer to them.
        """
        assert packet.pts is not None
        assert packet.dts is not None
        end = kept.end
        if end is not None and packet.dts * packet.time_base >= end:
            return []  # and so are the display times of all that follow
        if kept.begin is not None:
            if self._first is None:
                if not (packet.is_keyframe and packet.pts * packet.time_base >= kept.begin):
                    return []
                self._first = packet.pts
            if packet.pts < self._first:  # refers to frames before the keyframe
                return []
        self._after_end.append(packet)
        if end is not None and packet.pts * packet.time_base >= end:
            return []
        selected, self._after_end = self._after_end, []
        return selected

    def convert(self, packet: Packet) -> Iterable[Packet]:
        """The packet, in the new stream."""
        self._none_kept = False
        packet.stream = self.stream
        return [packet]

    def finish(self) -> Iterable[Packet]:
        """No more packets: those left are after the end of the range."""
        if self._none_kept:
            log.warning("video stream %d is empty: it has no keyframe there", self.stream.index)
        return []
