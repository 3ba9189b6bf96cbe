"""Videos in a form that browsers play, without recompression. Runs in a worker process."""

from fractions import Fraction
from pathlib import Path

import av
from av.container import InputContainer

from vsrkit.errors import VideoError
from vsrkit.hardware.files import temporary_path
from vsrkit.studio.errors import RequestError
from vsrkit.studio.media import codec_of, is_playable
from vsrkit.video.mux import container_options
from vsrkit.video.opening import open_container, packets, video_stream
from vsrkit.video.probe import first_pictures, probe
from vsrkit.video.timestamps import with_decode_times

WEBM_CODECS = ("vp8", "vp9")
# Containers that browsers read, by the suffix that must go with them: mp4 and webm.
DIRECT = {".mp4": "mp4", ".m4v": "mp4", ".mov": "mp4", ".webm": "webm"}
NEAR_ZERO = Fraction(1, 1000)  # seconds; rounding of the times in webm


def playable_file(path: Path, clip: Path) -> Path:
    """A file that browsers play: the video itself, or its video stream in another container.

    The first frame is shown at time 0.

    path: a video whose codec browsers know.
    clip: where to write the other container, with another suffix.
    """
    info = probe(path)
    if not is_playable(info):
        raise RequestError(415, f"browsers do not play {info.codec} {info.pix_fmt}")
    if _is_direct(path):
        return path
    suffix = suffix_for(codec_of(info))
    target = clip.with_suffix(suffix)
    with temporary_path(target) as temporary:
        copy_video(path, temporary, suffix)
    return target


def suffix_for(codec: str) -> str:
    """The container for a codec."""
    return ".webm" if codec in WEBM_CODECS else ".mp4"


def _is_direct(path: Path) -> bool:
    """Whether browsers read the file as it is, and show its first frame at time 0."""
    with open_container(path, generate_times=True) as file:
        stream = video_stream(file, path)
        begin = Fraction(file.start_time or 0, av.time_base)
        early = abs(begin) <= NEAR_ZERO and abs(_first_time(file, path)) <= NEAR_ZERO
        named = DIRECT.get(path.suffix.lower(), "no browser's") in file.format.name
        return early and named and stream.index == 0 and len(file.streams.video) == 1


def _first_time(file: InputContainer, path: Path) -> Fraction:
    stream = video_stream(file, path)
    pictures = first_pictures(file, stream)
    if not pictures or stream.time_base is None:
        raise VideoError(f"{path.name} has no frames")
    return (pictures[0].pts or 0) * stream.time_base


def copy_video(path: Path, target: Path, suffix: str) -> None:
    """Copy the video stream of a file into another container, its first frame at time 0."""
    form, options = container_options(suffix)
    try:
        with open_container(path, generate_times=True) as file:
            first = _first_time(file, path)
        with (
            open_container(path, generate_times=True) as old,
            av.open(f"file:{target}", "w", form, options) as new,
        ):
            stream = video_stream(old, path)
            # Opaque: there is no encoder of the same name for some decoders, as of AV1.
            copy = new.add_stream_from_template(stream, opaque=True)
            for packet in with_decode_times(packets(old, stream)):
                if packet.pts is None or packet.size == 0:
                    continue
                if packet.dts is None:
                    raise ValueError("it has no decoding times")
                shift = round(first / packet.time_base)
                packet.pts, packet.dts = packet.pts - shift, packet.dts - shift
                packet.stream = copy
                new.mux_one(packet)
    except (av.FFmpegError, OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise VideoError(f"{path.name} cannot be prepared for the browser: {reason}") from error
