"""Test and training sets on disk: the known ones (see `layouts`) and any folder of clips."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from torch import Tensor

from vsrkit.data.layouts import (
    FOLDER_HR,
    FOLDER_LR,
    LAYOUTS,
    VIMEO_LISTS,
    VIMEO_LR,
    VIMEO_TREE,
    Layout,
    LrKind,
    SetName,
)
from vsrkit.errors import DataError, VideoError
from vsrkit.video.images import is_image, natural_order, read_image, read_image_size
from vsrkit.video.probe import is_video
from vsrkit.video.read import open_source, read_video


@dataclass(frozen=True, slots=True)
class FrameFiles:
    """The frames of a clip as image files, in temporal order."""

    paths: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def place(self) -> Path:
        """The folder that holds the files."""
        return self.paths[0].parent

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of the first frame."""
        return read_image_size(self.paths[0])

    @property
    def names(self) -> list[str]:
        """File names without suffix, one for each frame."""
        return [path.stem for path in self.paths]

    def read(self) -> Iterator[Tensor]:
        """Yield frames (3, H, W); raise DataError at a frame of another size than the first."""
        size: tuple[int, ...] | None = None
        for path in self.paths:
            frame = read_image(path)
            height, width = frame.shape[-2:]
            if size is not None and size != (height, width):
                raise DataError(
                    f"{path} is {width}x{height}, the frames before it are {size[1]}x{size[0]}; "
                    "all frames of a clip must have the same size"
                )
            size = (height, width)
            yield frame

    def missing_numbers(self) -> list[int]:
        """Frame numbers missing between the first and the last file.

        Empty if a name does not end in a number, and if a third of the numbers or more is missing:
        then frames were selected (every second one, for example), not lost.
        """
        numbers = [re.search(r"(\d+)$", name) for name in self.names]
        found = [int(match.group(1)) for match in numbers if match]
        if len(found) != len(numbers):
            return []
        missing = sorted(set(range(found[0], found[-1] + 1)) - set(found))
        return missing if len(missing) < len(found) // 2 + 1 else []


@dataclass(frozen=True, slots=True)
class VideoFrames:
    """The frames of a clip as a video file."""

    path: Path
    size: tuple[int, int]  # (height, width)
    count: int

    def __len__(self) -> int:
        return self.count

    @property
    def place(self) -> Path:
        """The video file."""
        return self.path

    @property
    def names(self) -> list[str]:
        """Frame numbers of eight digits, one for each frame."""
        return [f"{number:08d}" for number in range(self.count)]

    def read(self) -> Iterator[Tensor]:
        """Yield frames (3, H, W)."""
        return read_video(self.path)


Frames: TypeAlias = FrameFiles | VideoFrames


@dataclass(frozen=True, slots=True)
class PairedClip:
    """One clip of a set: ground truth and, if the set has them, LR frames."""

    name: str
    hr: Frames
    lr: Frames | None
    full: int | None = None  # number of frames in the complete set; None if unknown
    notes: tuple[str, ...] = ()  # files that were ignored, one line each

    @property
    def partial(self) -> bool:
        """Whether frames of the full clip are missing."""
        gaps = isinstance(self.hr, FrameFiles) and self.hr.missing_numbers()
        return bool(gaps) or (self.full is not None and len(self.hr) < self.full)


@dataclass(frozen=True, slots=True)
class FrameSet:
    """Clips that are evaluated together."""

    name: SetName
    root: Path
    clips: tuple[PairedClip, ...]
    lr_place: Path | None  # folder of the LR frames; None if they must be made from HR
    notes: tuple[str, ...] = ()  # files and folders that were ignored, one line each
    left_out: tuple[str, ...] = ()  # clips of the set that were not selected


def list_frames(folder: Path) -> tuple[FrameFiles | None, list[str]]:
    """List the image files of a folder, ordered by number.

    Returns:
        The frames, None if there are none, and a line for each entry that was ignored.
    """
    images, ignored = [], []
    for path in sorted(folder.iterdir(), key=natural_order):
        if is_image(path):
            images.append(path)
        else:
            kind = "a folder" if path.is_dir() else "not an image"
            ignored.append(f"ignored {path.parent.name}/{path.name}: {kind}")
    seen: dict[str, Path] = {}
    for path in images:
        if twin := seen.get(path.stem):
            raise DataError(f"{twin} and {path.name} are the same frame twice; remove one")
        seen[path.stem] = path
    return (FrameFiles(tuple(images)) if images else None), ignored


def open_video(path: Path) -> VideoFrames:
    """Open a video file as frames; it is decoded once to count them."""
    try:
        source = open_source(path)
        count = sum(1 for _ in source.pictures())
    except VideoError as error:
        raise DataError(f"cannot read {path} as a video: {error}") from error
    return VideoFrames(path, (source.info.height, source.info.width), count)


def detect_set(root: Path) -> SetName:
    """Detect which set a folder holds; `folder` if it is none of the known ones."""
    if not root.is_dir():
        raise DataError(f"{root} is not a folder; expected the folder of a data set")
    for name, list_name in VIMEO_LISTS.items():
        if _vimeo_home(root, list_name):
            return name
    for layout in LAYOUTS.values():
        place = _first_with(root, layout.hr, layout.clips)
        # Any clip may be called "city" or "001", so at least half of the set must exist.
        if place and 2 * sum((place / name).is_dir() for name in layout.clips) >= len(layout.clips):
            return layout.name
    return "folder"


def open_set(
    name: SetName, root: Path, lr: LrKind | None = "bi", only: Sequence[str] = ()
) -> FrameSet:
    """Open a set by name; an error shows the expected folders and which are missing.

    Args:
        name: the kind of set, as `detect_set` returns it.
        root: folder of the set.
        lr: which LR frames to look for; None looks for none.
        only: names of the clips to open, the others may be missing; empty opens all.
    """
    if not root.is_dir():
        raise DataError(f"{root} is not a folder; --data expects the folder of the set")
    match name:
        case "vid4" | "reds4" | "reds-train":
            return _open_known(LAYOUTS[name], root, lr, only)
        case "vimeo90k-t" | "vimeo90k-train":
            return _open_vimeo(name, root, lr, only)
        case "folder":
            return _open_folder(root, lr, only)


def _open_known(layout: Layout, root: Path, lr: LrKind | None, only: Sequence[str]) -> FrameSet:
    selected, left_out = _select(layout.name, list(layout.clips), only)
    hr_root = _first_with(root, layout.hr, layout.clips)
    lr_places = layout.lr[lr] if lr else ()
    # If root is the ground-truth folder itself, LR frames are next to it.
    lr_root = _first_with(root, lr_places, layout.clips) or _first_with(
        root.parent, lr_places, layout.clips
    )
    found = {}
    for name in selected:
        hr_folder = (hr_root or root) / name
        lr_folder = lr_root / name if lr_root else None
        if not hr_folder.is_dir() and name in layout.elsewhere:
            hr_folder, other = (root / place for place in layout.elsewhere[name])
            lr_folder = other if lr and other.is_dir() else None
        found[name] = _pair(name, hr_folder, lr_folder, layout.clips[name])
    clips = _complete(found, layout.name, root, layout.tree)
    stray = [path.name for path in (hr_root or root).iterdir() if path.is_file()]
    notes = tuple(f"ignored {name}: not a clip" for name in sorted(stray))
    return FrameSet(layout.name, root, clips, lr_root, notes, left_out)


def _open_vimeo(name: SetName, root: Path, lr: LrKind | None, only: Sequence[str]) -> FrameSet:
    list_name = VIMEO_LISTS[name]
    home = _vimeo_home(root, list_name)
    if home is None:
        raise DataError(f"{root} holds no {name}: {list_name} is missing. Expected: {VIMEO_TREE}")
    listed = (home / list_name).read_text(encoding="utf-8").split()
    selected, left_out = _select(name, listed, only)
    places = (
        base / place / "sequences"
        for base in (root, root.parent)
        for place in (VIMEO_LR[lr] if lr else ())
    )
    lr_root = next(filter(Path.is_dir, places), None)
    found = {
        line: _pair(line, home / "sequences" / line, lr_root / line if lr_root else None, 7)
        for line in selected
    }
    return FrameSet(name, root, _complete(found, name, root, VIMEO_TREE), lr_root, (), left_out)


def _vimeo_home(root: Path, list_name: str) -> Path | None:
    places = (root, root / "vimeo_septuplet")
    return next((place for place in places if (place / list_name).is_file()), None)


def _open_folder(root: Path, lr: LrKind | None, only: Sequence[str]) -> FrameSet:
    """Open every folder of frames and every video in a folder, or the folder itself as a clip."""
    hr_root = next(root / place for place in FOLDER_HR if (root / place).is_dir())
    # LR frames are searched for only next to a ground-truth folder.
    places = [root / place for place in (FOLDER_LR[lr] if lr and hr_root != root else ())]
    lr_root = next(filter(Path.is_dir, places), None)
    if clip := _pair(hr_root.resolve().name, hr_root, lr_root, None):
        return FrameSet("folder", root, (clip,), lr_root)
    found, notes = {}, []
    for path in sorted(hr_root.iterdir(), key=natural_order):
        if list_frames(path)[0] if path.is_dir() else is_video(path):
            found[path.name] = path
        elif path.is_dir():
            notes.append(f"skipped {path.name}/: no frames in it")
        else:
            notes.append(f"ignored {path.name}: neither a video nor a folder of frames")
    if not found:
        raise DataError(
            f"{root} holds no clips; expected folders of frames (DIR/<clip>/*.png) or video files "
            f"in it, or DIR/GT/<clip> with DIR/BIx4/<clip>" + (f"; {notes[0]}" if notes else "")
        )
    selected, left_out = _select("folder", list(found), only)
    clips = []
    for name in selected:
        lr_path = lr_root / name if lr_root else None
        if paired := _pair(name, found[name], lr_path, None):
            clips.append(paired)
        else:
            clips.append(
                PairedClip(name, open_video(found[name]), open_video(lr_path) if lr_path else None)
            )
    return FrameSet("folder", root, tuple(clips), lr_root, tuple(notes), left_out)


def _pair(
    name: str, hr_folder: Path, lr_folder: Path | None, full: int | None
) -> PairedClip | None:
    """Open the HR and LR frames of a clip; None if there are no HR frames.

    full: number of frames in the complete set; None if unknown.
    """
    hr, notes = list_frames(hr_folder) if hr_folder.is_dir() else (None, [])
    if hr is None:
        return None
    if full is not None and len(hr) > full:
        raise DataError(
            f"{hr_folder} has {len(hr)} frames, the full clip has {full}; remove the extra ones"
        )
    if lr_folder is None:
        return PairedClip(name, hr, None, full, tuple(notes))
    if not lr_folder.is_dir():
        raise DataError(f"{name} has no LR frames, but other clips have: {lr_folder} is missing")
    lr, lr_notes = list_frames(lr_folder)
    if lr is None:
        raise DataError(f"{lr_folder} holds no frames; expected one for each frame of {hr_folder}")
    if odd := set(hr.names) ^ set(lr.names):
        first = min(odd)
        side, other = (hr_folder, lr_folder) if first in hr.names else (lr_folder, hr_folder)
        raise DataError(
            f"frame {first} is in {side}, but not in {other} ({len(odd)} such frames in all)"
        )
    return PairedClip(name, hr, lr, full, (*notes, *lr_notes))


def _select(
    name: str, known: Sequence[str], only: Sequence[str]
) -> tuple[list[str], tuple[str, ...]]:
    """Split the clips of a set into those to open and those to leave out."""
    if unknown := set(only) - set(known):
        raise DataError(f"{name} has no clip {min(unknown)!r}; it has {shortened(known, 8)}")
    if not only:
        return list(known), ()
    return [n for n in known if n in only], tuple(n for n in known if n not in only)


def _first_with(root: Path, places: Iterable[str], clips: Iterable[str]) -> Path | None:
    """Return the first of the folders that holds any of the clips."""
    names = tuple(clips)
    candidates = (root / place for place in places)
    return next((p for p in candidates if any((p / name).is_dir() for name in names)), None)


def _complete(
    found: Mapping[str, PairedClip | None], name: str, root: Path, tree: str
) -> tuple[PairedClip, ...]:
    """Return the clips of a set; raise DataError with the expected folders if any is missing."""
    missing = [clip for clip, frames in found.items() if frames is None]
    if len(missing) == len(found):
        raise DataError(f"{root} holds no {name}. Expected: {tree}")
    if missing:
        raise DataError(
            f"{root} holds {name} without {len(missing)} of its {len(found)} clips: "
            f"{shortened(missing, 4)}. Expected: {tree}"
        )
    return tuple(clip for clip in found.values() if clip)


def shortened(names: Sequence[object], most: int) -> str:
    """Join the first `most` names by commas; an ellipsis stands for the others."""
    return ", ".join(map(str, names[:most])) + (", ..." if len(names) > most else "")
