"""The finished parts of a job, to watch while the others are made. Runs in a worker process."""

from bisect import bisect_right
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from vsrkit.hardware.files import temporary_path
from vsrkit.models.spec import Spec
from vsrkit.models.zoo import build_model
from vsrkit.studio.errors import RequestError, UnknownError
from vsrkit.studio.media import first_time, is_playable, open_file, shown_frame
from vsrkit.studio.remux import suffix_for
from vsrkit.upscale.options import ResolvedOptions, UpscaleOptions, stride_of
from vsrkit.upscale.prepare import configure_input
from vsrkit.upscale.produce import plan_parts, scan
from vsrkit.upscale.work_folder import Index, Manifest, WorkFolder
from vsrkit.video.codecs import Encoding, choose_encoding
from vsrkit.video.images import encode_png
from vsrkit.video.mux import assemble
from vsrkit.video.read import WHOLE_VIDEO, Deinterlace, Source, orient
from vsrkit.video.seek import PictureReader
from vsrkit.video.timestamps import Clock

DEINTERLACE: dict[str, Deinterlace] = {
    "none": "never",
    "flagged frames": "auto",
    "all frames": "always",
}
# FFmpeg's decoders of what the encoders write that browsers know.
DECODED = {"libx264": "h264", "libvpx-vp9": "vp9", "libvpx": "vp8", "libsvtav1": "av1"}


@dataclass(frozen=True, slots=True)
class Watched:
    """The files of a job that has begun.

    manifest: a copy of that in its work folder, which is gone when the job is done.
    options: of the job.
    """

    source: Path
    output: Path
    manifest: Path
    is_done: bool
    options: UpscaleOptions

    @property
    def work_folder(self) -> WorkFolder:
        """Where the finished parts are."""
        return WorkFolder.beside(self.output)


@dataclass(frozen=True, slots=True)
class _Job:
    """What is known of a job: its source, its frames, and which parts it consists of."""

    source: Source
    index: Index
    starts: tuple[int, ...]  # first frame of each part
    size: tuple[int, int]  # (height, width) of the result as stored
    playable: bool
    resolved: ResolvedOptions | None  # of a job that runs

    def seconds(self, number: int) -> Fraction:
        """When a frame is shown, from the first one of the result; also when the last one ends."""
        times = self.index.times
        if number == len(times):
            return self.seconds(number - 1) + self.index.last_duration * self.source.info.time_base
        return (times[number] - times[0]) * self.source.info.time_base

    def stop(self, part: int) -> int:
        """The first frame after a part."""
        return self.starts[part + 1] if part + 1 < len(self.starts) else len(self.index.times)

    def part_of(self, frame: int) -> int:
        """The part that a frame is in."""
        if not 0 <= frame < len(self.index.times):
            raise UnknownError("frame")
        return bisect_right(self.starts, frame) - 1


def list_parts(watched: Watched) -> dict[str, Any]:
    """The finished parts of a job, and what is needed to show them beside the source."""
    job = _open(watched)
    info = job.source.info
    height, width = job.source.oriented_size(*job.size)
    source_height, source_width = job.source.oriented_size(info.height, info.width)
    begin = job.index.times[0] - first_time(replace(job.source, span=WHOLE_VIDEO))
    return {
        "total": len(job.index.times),
        "width": width,
        "height": height,
        "source_width": source_width,
        "source_height": source_height,
        "fps": float(info.frame_rate),
        "source": is_playable(info),
        "source_start_s": float(begin * info.time_base),
        "clips": job.playable,
        "parts": [
            _describe(job, part) for part in range(len(job.starts)) if _exists(watched, part)
        ],
    }


def show_part(watched: Watched, part: int) -> dict[str, Any]:
    """A finished part with the times of its frames."""
    job = _open(watched)
    if part >= len(job.starts) or not _exists(watched, part):
        raise UnknownError("finished part")
    frames = range(job.starts[part], job.stop(part))
    times = [float(job.seconds(number)) for number in frames]
    return _describe(job, part) | {"times_s": times, "clips": job.playable}


def _exists(watched: Watched, part: int) -> bool:
    return watched.is_done or watched.work_folder.is_done(part)


def _describe(job: _Job, part: int) -> dict[str, Any]:
    first, stop = job.starts[part], job.stop(part)
    return {
        "number": part,
        "first": first,
        "frames": stop - first,
        "start_s": float(job.seconds(first)),
        "end_s": float(job.seconds(stop)),
    }


def write_part(watched: Watched, part: int, clip: Path) -> Path:
    """Write a finished part of a job that runs as a video; for browsers if they know its codec.

    Its first frame is shown at time 0.

    clip: path without a suffix.
    """
    job = _open(watched)
    assert job.resolved is not None
    packets = watched.work_folder.part(part)
    if part >= len(job.starts) or not watched.work_folder.is_done(part):
        raise UnknownError("finished part")
    encoding = _encoding(job.source, job.resolved, watched.output.suffix.lower())
    suffix = suffix_for(DECODED[encoding.codec]) if job.playable else ".mkv"
    first, stop = job.starts[part], job.stop(part)
    clock = job.index.clock(job.source)
    times = [time - clock.times[first] for time in clock.times[first:stop]]
    alone = replace(job.source, info=replace(job.source.info, streams=()), span=WHOLE_VIDEO)
    target = clip.with_suffix(suffix)
    with temporary_path(target) as temporary:
        assemble(
            temporary,
            [packets],
            suffix=suffix,
            encoding=encoding,
            clock=Clock(times, clock.duration(stop - 1), clock.time_base),
            source=alone,
        )
    return target


def find_part(watched: Watched, frame: int) -> int:
    """The number of the part that a frame is in."""
    return _open(watched).part_of(frame)


def draw_source(watched: Watched, frame: int) -> bytes:
    """A frame of the source as lossless PNG."""
    job = _open(watched)
    job.part_of(frame)
    reader = _reader(watched.source, watched.source.stat().st_mtime_ns, job.source)
    (picture,) = reader.read([frame], job.index.seek_table)
    return _png(picture.rgb().clamp_(0, 1), job.source)


def draw_result(watched: Watched, frame: int, file: Path) -> bytes:
    """A frame of the result as lossless PNG.

    file: the clip of its part, or the result of a job that is done.
    """
    job = _open(watched)
    first = 0 if watched.is_done else job.starts[job.part_of(frame)]
    # In the middle of the time in which it is shown: containers round times.
    middle = (job.seconds(frame) + job.seconds(frame + 1)) / 2 - job.seconds(first)
    source = open_file(file)
    _, rgb = shown_frame(source, float(middle))
    return encode_png(rgb, bits=16 if source.info.bits > 8 else 8)


def _png(rgb: Any, source: Source) -> bytes:
    picture = orient(rgb, source.info.orientation)
    return encode_png(picture, bits=16 if source.info.bits > 8 else 8)


def _open(watched: Watched) -> _Job:
    """What is known of a job."""
    own = watched.work_folder.manifest
    path = own if own.exists() and not watched.is_done else watched.manifest
    manifest = _manifest(path, path.stat().st_mtime_ns) if path.exists() else None
    source = open_file(watched.source)
    if manifest is None and not watched.is_done:
        raise RequestError(409, "this job has no finished frames yet")
    if manifest is None:  # as if the job was done before its manifest could be copied
        source = configure_input(source, watched.options, warn=False)
        index = _scan(source)
    else:
        options = manifest.options
        source = replace(
            source,
            deinterlace=DEINTERLACE[options.deinterlaced],
            span=(options.start, options.end),
        )
        index = manifest.index
    if watched.is_done:
        result = open_file(watched.output).info
        return _Job(source, index, (0,), (result.height, result.width), is_playable(result), None)
    assert manifest is not None
    encoding = _encoding(source, manifest.options, watched.output.suffix.lower())
    info = replace(source.info, codec=DECODED.get(encoding.codec, ""), pix_fmt=encoding.pix_fmt)
    starts = _starts(path, path.stat().st_mtime_ns)
    size = (encoding.height, encoding.width)
    return _Job(source, index, starts, size, is_playable(info), manifest.options)


def _encoding(source: Source, options: ResolvedOptions, suffix: str) -> Encoding:
    """The encoding of a job that runs."""
    height, width = options.size
    chosen = choose_encoding(
        source.info,
        suffix=suffix,
        height=height,
        width=width,
        codec=options.codec,
        pix_fmt=options.pix_fmt,
    )
    colour = options.colour or chosen.colour
    return replace(chosen, options=options.encoder_options, colour=colour)


@lru_cache(maxsize=4)
def _manifest(path: Path, mtime_ns: int) -> Manifest | None:
    """A manifest; None if another version wrote it."""
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except ValidationError:
        return None


@lru_cache(maxsize=4)
def _starts(path: Path, mtime_ns: int) -> tuple[int, ...]:
    """The first frames of the parts of a job."""
    manifest = _manifest(path, mtime_ns)
    assert manifest is not None
    spec = _spec(manifest.options.model)
    stride = stride_of(spec, manifest.options.quality)
    parts = plan_parts(manifest.index.shots, spec.context, stride=stride)
    return tuple(part.start for part in parts)


@lru_cache(maxsize=8)
def _spec(model: str) -> Spec:
    return build_model(model).spec  # type: ignore[return-value]


@lru_cache(maxsize=2)
def _scan(source: Source) -> Index:
    return scan(source, lambda _: None)


@lru_cache(maxsize=2)
def _reader(path: Path, mtime_ns: int, source: Source) -> PictureReader:
    """A reader that stays open, so that the next frame is found without a seek."""
    return PictureReader(source)
