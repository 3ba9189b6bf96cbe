"""Training clips: videos and folders of frames, decoded once into a memory-mapped cache.

The cache holds uncompressed uint8 RGB, so reading a crop costs no more than reading its bytes.
"""

import hashlib
import json
import logging
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vsrkit.data.frames import shortened
from vsrkit.errors import DataError, VideoError
from vsrkit.hardware.files import temporary_path, write_atomically
from vsrkit.inference.shots import mark_cuts
from vsrkit.video.images import is_image, natural_order, read_image
from vsrkit.video.probe import is_video
from vsrkit.video.read import open_source

log = logging.getLogger("vsrkit")

FORMAT = 3  # version of the cache; a change of decoder or cut detection needs a new one

OnProgress: TypeAlias = Callable[[str, int, int], None]  # name, done, total


@dataclass(frozen=True, slots=True)
class Clip:
    """Decoded frames of one shot; pickles as a path and a shape, without the pixels."""

    name: str
    path: Path  # of the cache file
    shape: tuple[int, int, int, int]  # T, H, W, 3
    first: int = 0  # index of its first frame in the cache file

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def frames(self) -> NDArray[np.uint8]:
        """(T, H, W, 3) RGB, memory-mapped."""
        start = self.first * math.prod(self.shape[1:])
        return np.memmap(self.path, np.uint8, "r", offset=start, shape=self.shape)


def request_rows(pixels: NDArray[np.uint8], frames: range, rows: range) -> None:
    """Ask the system to read rows of memory-mapped frames, so that they are read all at once.

    A crop touches one page of each row. Without the request the system reads page after page, and
    a few times as much around them: from a disk, twice the time and four times the bytes.

    Args:
        pixels: (T, H, W, 3), all frames of a `Clip`; nothing is done for other arrays.
        frames: which of them.
        rows: which rows of each.
    """
    if not isinstance(pixels, np.memmap) or not hasattr(os, "posix_fadvise"):
        return
    _, height, width, channels = pixels.shape
    row = width * channels
    file = os.open(str(pixels.filename), os.O_RDONLY)
    try:
        for frame in frames:
            start = pixels.offset + (frame * height + rows.start) * row
            os.posix_fadvise(file, start, len(rows) * row, os.POSIX_FADV_WILLNEED)
    finally:
        os.close(file)


@dataclass(slots=True)
class Unreadable:
    """Count of frames that could not be read; raises DataError above the limit."""

    limit: int
    count: int = 0

    def skip(self, name: str, reason: object) -> None:
        """Log and count one unreadable frame."""
        log.warning("skipped %s: %s", name, (str(reason).splitlines() or [""])[0])
        self.add(1, name)

    def add(self, count: int, name: str) -> None:
        """Add to the count and raise DataError if it exceeds the limit."""
        self.count += count
        if self.count > self.limit:
            raise DataError(
                f"more than {self.limit} frames cannot be read, the last is {name}; "
                "repair the data or raise unreadable_limit"
            )


def find_clips(path: Path) -> list[Path]:
    """List the video files and folders of frames at `path`: itself, or all below it, sorted."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataError(f"{path} does not exist; give a video, or a folder of videos or of frames")
    files = [p for p in path.rglob("*") if p.is_file()]
    found = [p for p in files if is_video(p)]
    # Images in the same folder as videos are cover art and the like, not frames.
    found += {p.parent for p in files if is_image(p)} - {p.parent for p in found}
    if not found:
        raise DataError(
            f"{path} holds no videos and no pictures; expected videos or folders of frames"
        )
    return sorted(found)


def open_clips(
    path: Path,
    cache: Path,
    *,
    unreadable: Unreadable | None = None,
    max_frames: int = 3000,
    on_progress: OnProgress | None = None,
) -> list[Clip]:
    """Open every clip at `path`, decoding those that are not in the cache yet.

    Args:
        path: a video file, a folder of frames, or a folder of either.
        cache: folder for decoded frames.
        unreadable: counts frames that cannot be read; by default the first one is an error.
        max_frames: read at most this many frames of each video or folder.
        on_progress: called with a file name, the number of files done and their total number.
    """
    sources = [(_name(source, path), source) for source in find_clips(path)]
    clips = open_sources(
        sources, cache, unreadable=unreadable, max_frames=max_frames, on_progress=on_progress
    )
    if not clips:
        raise DataError(f"nothing in {path} can be read as video or pictures")
    return clips


def open_sources(
    sources: Sequence[tuple[str, Path]],
    cache: Path,
    *,
    unreadable: Unreadable | None = None,
    max_frames: int = 3000,
    split_shots: bool = True,
    on_progress: OnProgress | None = None,
) -> list[Clip]:
    """Open videos and folders of frames, decoding those that are not in the cache yet.

    Args:
        sources: name and path of each video file or folder of frames.
        cache: folder for decoded frames.
        unreadable: as for `open_clips`.
        max_frames: read at most this many frames of each source.
        split_shots: begin a new clip at each cut, named `NAME#0`, `NAME#1`, ...; if False, each
            source is one clip.
        on_progress: as for `open_clips`.
    """
    unreadable = unreadable or Unreadable(0)
    clips = []
    for done, (name, source) in enumerate(sources):
        if on_progress:
            on_progress(source.name, done, len(sources))
        clips += _open_clip(source, cache, unreadable, max_frames, split_shots, name=name)
    if on_progress:
        on_progress("", len(sources), len(sources))
    return clips


def _name(source: Path, root: Path) -> str:
    """Name a clip by its path below `root` without suffix, or by its own name if it is `root`."""
    if source == root:
        return source.stem
    inner = source.relative_to(root)
    return (inner if source.is_dir() else inner.with_suffix("")).as_posix()


def _open_clip(
    source: Path,
    cache: Path,
    unreadable: Unreadable,
    max_frames: int,
    split_shots: bool,
    *,
    name: str,
) -> list[Clip]:
    """Open the shots of one video or folder of frames; none if no frame can be read."""
    pixels = cache / f"{_fingerprint(source, max_frames, split_shots)}.rgb"
    about = pixels.with_suffix(".json")
    decoded = about.exists()
    if not decoded:
        _decode(source, pixels, about, unreadable, max_frames, split_shots)
    content = json.loads(about.read_text(encoding="utf-8"))
    if decoded and (skipped := content.get("skipped", 0)):
        log.warning("%d frames of %s could not be read", skipped, source)
        unreadable.add(skipped, str(source))
    total, height, width, _ = content["shape"]
    if total == 0:
        return []
    if not pixels.is_file() or pixels.stat().st_size != math.prod(content["shape"]):
        about.unlink(missing_ok=True)
        raise DataError(
            f"the cached frames of {source} in {cache} are damaged; run again to decode them again"
        )
    bounds = list(pairwise([0, *content["cuts"], total]))
    names = [name if len(bounds) == 1 else f"{name}#{i}" for i in range(len(bounds))]
    return [
        Clip(shot, pixels, (end - start, height, width, 3), start)
        for shot, (start, end) in zip(names, bounds, strict=True)
    ]


def _decode(
    source: Path,
    pixels: Path,
    about: Path,
    unreadable: Unreadable,
    max_frames: int,
    split_shots: bool,
) -> None:
    """Write the frames to `pixels`, then their shape and cuts to `about`."""
    shape = (0, 0, 0, 3)
    skipped_before = unreadable.count
    try:
        with temporary_path(pixels, shared=True) as temporary:
            with temporary.open("wb") as file:
                for name, frame in read_pictures(source, unreadable):
                    if shape[0] and frame.shape != shape[1:]:
                        unreadable.skip(name, f"its shape is {frame.shape[:2]}, not {shape[1:3]}")
                        continue
                    file.write(frame.tobytes())
                    shape = (shape[0] + 1, *frame.shape)
                    if shape[0] == max_frames:
                        break
            cuts = []
            if split_shots and shape[0]:
                cuts = find_cuts(np.memmap(temporary, np.uint8, "r", shape=shape))
        if shape[0] == 0 and unreadable.count == skipped_before:
            unreadable.skip(str(source), "it has no frames")
        skipped = unreadable.count - skipped_before
        content = {"source": str(source), "shape": shape, "cuts": cuts, "skipped": skipped}
        write_atomically(about, json.dumps(content), shared=True)
    except OSError as error:
        raise DataError(
            f"cannot write the frames of {source} to {pixels.parent} ({error}); "
            "free some space or set another cache_dir"
        ) from error


def find_cuts(clip: NDArray[np.uint8]) -> list[int]:
    """Find the indices of the frames of (T, H, W, 3) that begin a new shot."""
    frames = (torch.from_numpy(frame.copy()).movedim(-1, 0) / 255 for frame in clip)
    return [number for number, (_, is_cut) in enumerate(mark_cuts(frames)) if is_cut]


def read_pictures(source: Path, unreadable: Unreadable) -> Iterator[tuple[str, NDArray[np.uint8]]]:
    """Read a video file or a folder of frames as `vsrkit upscale` does, rounded to 8 bits.

    Yields the name and the RGB pixels (H, W, 3) of each frame.
    """
    if source.is_dir():
        for path in sorted(filter(is_image, source.iterdir()), key=natural_order):
            try:
                yield str(path), read_picture(path)
            except DataError as error:
                unreadable.skip(str(path), error)
        return
    number = 0
    try:
        pictures = open_source(source).pictures(
            on_damaged=lambda error: unreadable.skip(f"a frame after {source} #{number}", error)
        )
        for picture in pictures:
            yield f"{source} #{number}", to_8_bit(picture.rgb())
            number += 1
    except VideoError as error:
        unreadable.skip(str(source), error)


def read_picture(path: Path) -> NDArray[np.uint8]:
    """Read one image file as RGB pixels (H, W, 3)."""
    return to_8_bit(read_image(path))


def to_8_bit(frame: Tensor) -> NDArray[np.uint8]:
    """Clip and round a frame: (3, H, W) with 1 as white -> (H, W, 3). Overwrites `frame`."""
    return frame.clamp_(0, 1).mul_(255).round_().byte().permute(1, 2, 0).numpy()


def hold_out(
    clips: Sequence[Clip], patterns: Sequence[str], share: float
) -> tuple[list[Clip], list[Clip]]:
    """Split clips into training clips and held-out clips.

    Without patterns, whole series are held out (videos of one folder, or whose names are equal up
    to the first digit), so that held-out shots are not from a video that is trained on. With a
    single series, shots are held out; with a single shot, its end.

    Args:
        clips: all clips.
        patterns: glob patterns of the names to hold out; an error if one matches no clip.
        share: fraction of the clips to hold out if there are no patterns.
    """
    if patterns:
        held = [c for c in clips if any(_matches(c, p) for p in patterns)]
        for pattern in patterns:
            if not any(_matches(c, pattern) for c in clips):
                names = shortened([c.name for c in clips], 5)
                raise DataError(f"no clip matches {pattern!r}; the clips are {names}")
    elif share == 0:
        return list(clips), []
    elif len(clips) == 1:
        return _split(clips[0], share)
    else:
        several = len({series_of(c.name) for c in clips}) > 1
        group = {c.name: series_of(c.name) if several else c.name for c in clips}
        groups = sorted(set(group.values()))
        every = min(round(1 / share), len(groups))
        chosen = set(groups[every // 2 :: every])
        held = [c for c in clips if group[c.name] in chosen]
    held_names = {c.name for c in held}
    rest = [c for c in clips if c.name not in held_names]
    if not rest:
        raise DataError("every clip is held out for validation; none is left to train on")
    return rest, held


def _split(clip: Clip, share: float) -> tuple[list[Clip], list[Clip]]:
    """Split one clip into its beginning, for training, and its end."""
    first = len(clip) - max(1, round(len(clip) * share))
    if first < 1:
        raise DataError(f"{clip.name} is a single frame: nothing can be held out for validation")
    begin = replace(clip, shape=(first, *clip.shape[1:]))
    end = replace(clip, shape=(len(clip) - first, *clip.shape[1:]), first=clip.first + first)
    return [begin], [end]


def _matches(clip: Clip, pattern: str) -> bool:
    """Whether the name of the shot or of its video matches."""
    return fnmatch(clip.name, pattern) or fnmatch(clip.name.split("#")[0], pattern)


def series_of(name: str) -> str:
    """Name the series of a clip: its top folder, or its name up to the first digit."""
    name = name.split("#")[0]
    if "/" in name:
        return name.split("/")[0]
    letters = re.match(r"[^0-9]*", name)
    return letters[0] if letters and letters[0] else name


def _fingerprint(source: Path, max_frames: int, split_shots: bool) -> str:
    """Name a cache file; changes with the source files, the options and the cache format."""
    files = sorted(source.iterdir()) if source.is_dir() else [source]
    stats = [(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files]
    parts = [FORMAT, str(source.resolve()), max_frames, stats, *([] if split_shots else ["whole"])]
    text = json.dumps(parts)
    return f"{source.stem[:40]}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
