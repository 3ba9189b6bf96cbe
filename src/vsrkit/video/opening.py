"""Open video files and pipes: the only place where FFmpeg opens an input.

Files may come from anyone. FFmpeg gets a file object and no protocol, so that nothing in a file
can make it open another file or an address, and it may only use demuxers that read one file.
"""

import errno
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache, lru_cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import av
from av.container import InputContainer
from av.stream import Disposition, Stream
from av.video.stream import VideoStream

from vsrkit.errors import VideoError
from vsrkit.video.animations import as_mov, is_animated_webp
from vsrkit.video.boxes import check_boxes, is_mp4, leading_boxes
from vsrkit.video.encryption import encrypted_streams_of_mp4, encryption_of

if TYPE_CHECKING:
    Packet: TypeAlias = av.Packet[Any]
else:
    Packet = av.Packet  # generic for type checkers only

# Demuxers that open what a file names, that run scripts, or that are devices.
REFERRING = {
    "hls", "dash", "concat", "image2", "sdp", "rtsp", "rtp", "sap", "imf", "vobsub", "mpjpeg",
    "webm_dash_manifest", "avisynth", "vapoursynth", "lavfi", "alsa", "fbdev", "kmsgrab", "oss",
    "video4linux2", "v4l2", "x11grab", "tty", "ffmetadata",
}  # fmt: skip
# How text files begin that name other files or addresses.
PLAYLISTS = {
    b"#EXTM3U": "an HLS playlist",
    b"ffconcat version": "a list of files to concatenate",
    b"<MPD": "a DASH manifest",
    b"v=0": "a description of a network stream (SDP)",
    b"<SmoothStreamingMedia": "a Smooth Streaming manifest",
}
PROTOCOLS = "file,crypto,data,http,https,tcp,tls"  # for playlists that the user trusts
HEAD = 4096  # bytes that tell what a file is
LARGEST_INDEX = 256 << 20  # bytes of a pipe that are held while its index is searched
BUFFER = 1 << 18  # bytes that are read at once
# A file gives at most as many packets as it has bytes, and at most its content so many times:
# damaged or hostile indexes repeat the same bytes without end.
SPARE_PACKETS = 1000
MOST_REPEATS = 64


@contextmanager
def open_container(
    path: Path, *, follow_references: bool = False, generate_times: bool = False
) -> Iterator[InputContainer]:
    """Open a video file; raises VideoError if FFmpeg cannot or must not read it.

    follow_references: whether the file may make FFmpeg open other files and addresses.
    generate_times: derive the display times that AVI does not store.
    """
    times = {"fflags": "+genpts"} if generate_times else {}
    if not path.exists():
        raise VideoError(f"{path} does not exist")
    if path.is_dir():
        raise VideoError(f"{path} is a folder; expected a video file")
    if not path.is_file():
        raise VideoError(f"{path} is not a file; use a pipe: cat {path} | vsrkit upscale - OUTPUT")
    with ExitStack() as stack:
        try:
            if follow_references:
                # With an explicit protocol, or FFmpeg takes "Part 1:2.mp4" for a URL.
                options = {"protocol_whitelist": PROTOCOLS, "enable_drefs": "1"}
                # Keys and segments of HLS may have any suffix.
                options |= {"allowed_extensions": "ALL", "extension_picky": "0"}
                container = _open(f"file:{path}", times | options)
            else:
                file = stack.enter_context(path.open("rb"))
                container = _open(_QuietFile(_checked(file, path), path), times | _restricted())
        except (av.FFmpegError, OSError, ValueError) as error:
            if encrypted_streams_of_mp4(path):
                raise VideoError(encryption_of(path)) from error
            reason = getattr(error, "strerror", None) or str(error)
            if isinstance(error, av.ArgumentError):  # FFmpeg knows it, but it is not harmless
                reason = "its format is not supported"
            raise VideoError(f"cannot read {path} as a video: {reason}") from error
        yield stack.enter_context(container)


def _checked(file: BinaryIO, path: Path) -> BinaryIO:
    """The file, or what an animation is converted to; raises VideoError for what is refused."""
    head = file.read(HEAD)
    if not head:
        raise VideoError(f"cannot read {path} as a video: the file is empty")
    if kind := playlist_kind(head):
        raise VideoError(
            f"{path} is {kind}: it names other files or addresses, which are not opened unless "
            "--follow-references is given"
        )
    if is_mp4(head):
        check_boxes(file, path)
    elif is_animated_webp(head):
        status = path.stat()
        return BytesIO(_animation(path, status.st_mtime_ns, status.st_size))
    file.seek(0)
    return file


class _QuietFile:
    """A file for FFmpeg that returns an error code for a place that it does not have.

    PyAV prints the traceback of every exception after the first one, and damaged files make FFmpeg
    seek to negative places.
    """

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.name = str(path)
        self.read, self.tell = file.read, file.tell
        self._seek = file.seek

    def seek(self, offset: int, whence: int = 0) -> int:
        """The new place, or a negative error code."""
        try:
            return self._seek(offset, whence)
        except (OSError, ValueError, OverflowError):
            return -errno.EINVAL


def playlist_kind(head: bytes) -> str | None:
    """What a file is that names others, by its first bytes; None for all other files."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"<?xml"):
        text = text[max(0, text.find(b"<", 5)) :]
        for start in (b"<MPD", b"<SmoothStreamingMedia"):
            if start in text:
                return PLAYLISTS[start]
    return next((kind for start, kind in PLAYLISTS.items() if text.startswith(start)), None)


@lru_cache(maxsize=1)
def _animation(path: Path, mtime_ns: int, size: int) -> bytes:
    """The file is opened several times in a job; size and time tell whether it has changed."""
    return as_mov(path)


def _open(
    file: str | BinaryIO | _QuietFile, options: Mapping[str, str], form: str | None = None
) -> InputContainer:
    return av.open(
        file,
        "r",
        format=form,
        container_options=dict(options),
        metadata_errors="replace",
        buffer_size=BUFFER,
    )


@cache
def _restricted() -> dict[str, str]:
    """Options that leave FFmpeg no protocol, and only demuxers that read a single file."""
    harmless = [name for name in av.formats_available if not REFERRING & set(name.split(","))]
    return {"protocol_whitelist": "none", "format_whitelist": ",".join(sorted(harmless))}


@contextmanager
def open_pipe(
    stream: BinaryIO,
    *,
    form: str | None = None,
    options: Mapping[str, str] | None = None,
    spool: Path | None = None,
) -> Iterator[InputContainer]:
    """Open a video that comes through a pipe.

    form: FFmpeg's name of the format; None detects it.
    options: of the format.
    spool: folder for a copy of an mp4 whose index is at its end; it is deleted at the end.
    """
    with ExitStack() as stack:
        try:
            source: Any = stream
            if form is None:
                head = stream.read(HEAD)
                if kind := playlist_kind(head):
                    raise VideoError(
                        f"the pipe carries {kind}, which names other files or addresses; they are "
                        "not opened"
                    )
                in_order = True
                if is_mp4(head):
                    head, in_order = leading_boxes(stream, head, LARGEST_INDEX)
                source = _Prefixed(head, stream)
                if not in_order:
                    source = stack.enter_context(tempfile.TemporaryFile(dir=spool))
                    _copy(head, stream, source)
            container = _open(source, {**(options or {}), **_restricted()}, form)
        except (av.FFmpegError, ValueError, OSError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise VideoError(f"cannot read a video from the pipe: {reason}") from error
        yield stack.enter_context(container)


class _Prefixed:
    """A pipe, after bytes that were read from it."""

    name = "-"

    def __init__(self, head: bytes, stream: BinaryIO) -> None:
        self._head, self._stream = head, stream

    def read(self, size: int) -> bytes:
        """The next bytes, at most `size`; as many as are there, not to wait for more."""
        if self._head:
            found, self._head = self._head[:size], self._head[size:]
            return found
        read = getattr(self._stream, "read1", self._stream.read)
        return read(size)


def _copy(head: bytes, stream: BinaryIO, file: BinaryIO) -> None:
    file.write(head)
    while block := stream.read(1 << 20):
        file.write(block)
    file.seek(0)


def video_stream(container: InputContainer, path: Path) -> VideoStream:
    """The video stream that players show: not a cover picture, nor the still one of an AVIF."""
    covers = Disposition.attached_pic | Disposition.timed_thumbnails
    streams = [stream for stream in container.streams.video if not stream.disposition & covers]
    if not streams:
        raise VideoError(f"{path} has no video stream")
    stream = min(streams, key=lambda s: (is_still_item(s), not s.disposition & Disposition.default))
    if is_still_item(stream) and any(s.disposition & Disposition.dependent for s in streams):
        raise VideoError(f"{path} is a picture in tiles; convert it to PNG first")
    if stream.codec_context is None:
        raise VideoError(f"{path}: this build of FFmpeg does not support its codec")
    return stream


def is_still_item(stream: VideoStream) -> bool:
    """Whether a stream is a still picture in an AVIF or HEIF file, which may also hold a film."""
    return stream.time_base == 1 and stream.frames == 1 and stream.duration is None


def is_alpha_of_avif(container: InputContainer, stream: Stream) -> bool:
    """Whether a stream holds the alpha channel of an AVIF, still or animated."""
    if stream.type != "video" or "avi" not in container.metadata.get("compatible_brands", ""):
        return False
    form = getattr(stream.codec_context, "pix_fmt", None) or ""
    return stream.metadata.get("title") == "Alpha" or form.startswith("gray")


def packets(container: InputContainer, *streams: Stream) -> Iterator[Packet]:
    """The packets of some streams, and an empty one without a time for each stream at the end.

    Others that are empty are left out: they repeat the frame before, and would end a decoder.

    Raises VideoError if there are more than the file can contain.
    """
    size = container.size if container.file is not None else 0  # negative for a pipe
    count = total = 0
    for packet in container.demux(*streams):
        count, total = count + 1, total + packet.size
        if size > 0 and (
            count > size + SPARE_PACKETS or total > MOST_REPEATS * (size + SPARE_PACKETS)
        ):
            raise VideoError(
                f"{container.name} is damaged: its index repeats the same {size} bytes without end"
            )
        if packet.size or (packet.pts is None and packet.dts is None):
            yield packet
