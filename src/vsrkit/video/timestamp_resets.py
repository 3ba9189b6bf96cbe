"""Times that begin anew in the middle: of recordings and discs whose parts were put in a row."""

from fractions import Fraction
from pathlib import Path

import av

from vsrkit.video.audio import Packet
from vsrkit.video.probe import VideoInfo, opened, video_stream

JUMP = Fraction(1, 4)  # seconds back from which times have begun anew and are not just untidy
JOINABLE = ("mpegts", "mpeg")  # containers that can be put in a row byte by byte


def find_restarts(path: Path, info: VideoInfo) -> list[Fraction]:
    """Seconds to add to all times after the first restart, after the second, and so on.

    By the packets of the video, so that it comes out as in `read.in_span`, which sees its frames.
    """
    if info.container not in JOINABLE:
        return []
    shifts: list[Fraction] = []
    shift, latest = Fraction(0), None
    with opened(path) as container:
        try:
            for packet in container.demux(video_stream(container, path)):
                if packet.pts is None:
                    continue
                time = packet.pts * packet.time_base + shift
                if latest is not None and packet.is_keyframe and latest - time > JUMP:
                    shift += latest + 1 / info.frame_rate - time
                    time = latest + 1 / info.frame_rate
                    shifts.append(shift)
                latest = time if latest is None else max(latest, time)
        except av.FFmpegError:
            pass  # a file that ends early
    return shifts


class Onward:
    """Moves the packets of audio and subtitles so that the times of each stream never go back."""

    def __init__(self, shifts: list[Fraction]) -> None:
        self._shifts = [Fraction(0), *shifts]
        self._restarts: dict[int, int] = {}  # by stream, so far
        self._latest: dict[int, int] = {}  # time of the last packet, by stream

    def place(self, packet: Packet, *, apart: bool) -> None:
        """Set the times of the next packet of its stream; `apart`: no two may be equal.

        Only where the container asks for it: packets of TrueHD are shorter than the millisecond
        that Matroska counts in, and pushed apart they would fall behind more and more.
        """
        assert packet.pts is not None
        stream, base = packet.stream.index, packet.time_base
        latest, count = self._latest.get(stream), self._restarts.get(stream, 0)
        if latest is not None and count + 1 < len(self._shifts):
            back = latest * base - (packet.pts * base + self._shifts[count])
            count += back > JUMP
        self._restarts[stream] = count
        shift = round(self._shifts[count] / base)
        time = (packet.pts if packet.dts is None else packet.dts) + shift
        if latest is not None:
            time = max(time, latest + apart)
        packet.pts = max(packet.pts + shift, time)
        packet.dts = self._latest[stream] = time
