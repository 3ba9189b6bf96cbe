"""The test and training sets of the field, as users have them on disk, and any folder of clips."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vsrkit.data.frames import (
    FrameFiles,
    Frames,
    is_video,
    list_frames,
    missing_numbers,
    open_video,
)
from vsrkit.data.layouts import (
    FOLDER_HR,
    FOLDER_LR,
    LAYOUTS,
    REDS4_LAYOUT,
    REDS_TRAINING_LAYOUT,
    VID4,
    VIMEO_LR,
    VIMEO_TREE,
    Layout,
    LrKind,
    SetName,
)
from vsrkit.errors import DataError
from vsrkit.video.images import natural_order


@dataclass(frozen=True, slots=True)
class PairedClip:
    """One clip of a set: its ground truth, its LR frames if they are there, and what is amiss."""

    name: str
    hr: Frames
    lr: Frames | None
    full: int | None = None  # frames of the clip in the complete set; None if nobody can know
    notes: tuple[str, ...] = ()

    @property
    def partial(self) -> bool:
        """Whether frames of the full clip are missing."""
        gaps = isinstance(self.hr, FrameFiles) and missing_numbers(self.hr)
        return bool(gaps) or (self.full is not None and len(self.hr) < self.full)


@dataclass(frozen=True, slots=True)
class FrameSet:
    """Clips that are measured (or learnt from) together."""

    name: SetName
    root: Path
    clips: tuple[PairedClip, ...]
    lr_place: Path | None  # the folder of the LR frames; None: there are none, they must be made
    notes: tuple[str, ...] = ()  # what was ignored, and why
    left_out: tuple[str, ...] = ()  # clips of the set that were not asked for


def open_set(
    name: SetName, root: Path, lr: LrKind | None = "bi", only: Sequence[str] = ()
) -> FrameSet:
    """A set by name; an error shows the tree that was expected and what of it is missing.

    lr: which LR frames to look for; None looks for none.
    only: names of the clips that are wanted; the others need not be there.
    """
    if not root.is_dir():
        raise DataError(f"{root} is not a folder; --data wants the folder that holds the set")
    match name:
        case "vid4" | "reds4" | "reds-train":
            return _open_known(LAYOUTS[name], root, lr, only)
        case "vimeo90k-t":
            return _open_vimeo(name, root, "sep_testlist.txt", lr, only)
        case "vimeo90k-train":
            return _open_vimeo(name, root, "sep_trainlist.txt", lr, only)
        case "folder":
            return _open_folder(root, lr, only)


def detect_set(root: Path) -> SetName:
    """Which set lies in a folder; a folder of clips that are no set's is a `folder`."""
    if not root.is_dir():
        raise DataError(f"{root} is not a folder")
    if any((place / "sep_testlist.txt").is_file() for place in (root, root / "vimeo_septuplet")):
        return "vimeo90k-t"
    if any((place / "sep_trainlist.txt").is_file() for place in (root, root / "vimeo_septuplet")):
        return "vimeo90k-train"
    for layout in (VID4, REDS4_LAYOUT, REDS_TRAINING_LAYOUT):
        place = _first_with(root, layout.hr, layout.clips)
        # A clip called "city" or "001" may be anybody's; half of a set is that set, incomplete.
        if place and 2 * sum((place / name).is_dir() for name in layout.clips) >= len(layout.clips):
            return layout.name
    return "folder"


def _open_known(layout: Layout, root: Path, lr: LrKind | None, only: Sequence[str]) -> FrameSet:
    wanted, left_out = _wanted(layout.name, list(layout.clips), only)
    hr_root = _first_with(root, layout.hr, layout.clips)
    lr_places = layout.lr[lr] if lr else ()
    # Someone may have named the folder of the ground truth itself: LR frames lie beside it then.
    lr_root = _first_with(root, lr_places, layout.clips) or _first_with(
        root.parent, lr_places, layout.clips
    )
    clips, missing = [], []
    for name in wanted:
        hr_folder = (hr_root or root) / name
        lr_folder = lr_root / name if lr_root else None
        if not hr_folder.is_dir() and name in layout.elsewhere:
            hr_folder, other = (root / place for place in layout.elsewhere[name])
            lr_folder = other if lr and other.is_dir() else None
        if not hr_folder.is_dir() or not list_frames(hr_folder)[0]:
            missing.append(name)
            continue
        clips.append(_paired(name, hr_folder, lr_folder, layout.clips[name]))
    if missing:
        raise DataError(_incomplete(layout.name, root, missing, len(wanted), layout.tree))
    stray = [path.name for path in (hr_root or root).iterdir() if path.is_file()]
    notes = tuple(f"ignored {name}: not a clip" for name in sorted(stray))
    return FrameSet(layout.name, root, tuple(clips), lr_root, notes, left_out)


def _open_vimeo(
    name: SetName, root: Path, list_name: str, lr: LrKind | None, only: Sequence[str]
) -> FrameSet:
    home = next((p for p in (root, root / "vimeo_septuplet") if (p / list_name).is_file()), None)
    if home is None:
        raise DataError(f"{root} holds no {name}: there is no {list_name}. Expected: {VIMEO_TREE}")
    listed = (home / list_name).read_text(encoding="utf-8").split()
    lines, left_out = _wanted(name, listed, only)
    places = [
        base / place for base in (root, root.parent) for place in (VIMEO_LR[lr] if lr else ())
    ]
    lr_root = next(
        (place / "sequences" for place in places if (place / "sequences").is_dir()), None
    )
    clips, missing = [], []
    for line in lines:
        hr_folder = home / "sequences" / line
        if not hr_folder.is_dir() or not list_frames(hr_folder)[0]:
            missing.append(line)
            continue
        clips.append(_paired(line, hr_folder, lr_root / line if lr_root else None, 7))
    if missing or not lines:
        raise DataError(_incomplete(name, root, missing, len(lines), VIMEO_TREE))
    return FrameSet(name, root, tuple(clips), lr_root, (), left_out)


def _open_folder(root: Path, lr: LrKind | None, only: Sequence[str]) -> FrameSet:
    """Every folder of frames and every video in a folder, or the folder itself as one clip."""
    hr_root = next(root / place for place in FOLDER_HR if (root / place).is_dir())
    beside = root if hr_root != root else None  # without a GT folder nothing tells LR from HR
    places = [beside / p for p in (FOLDER_LR[lr] if lr else ())] if beside else []
    lr_root = next((place for place in places if place.is_dir()), None)
    if list_frames(hr_root)[0]:
        clip = _paired(hr_root.resolve().name, hr_root, lr_root, None)
        return FrameSet("folder", root, (clip,), lr_root)
    clips, notes = {}, []
    for path in sorted(hr_root.iterdir(), key=natural_order):
        if is_video(path) or (path.is_dir() and list_frames(path)[0]):
            clips[path.name] = path
        elif path.is_dir():
            notes.append(f"skipped {path.name}/: no frames in it")
        else:
            notes.append(f"ignored {path.name}: neither a video nor a folder of frames")
    if not clips:
        raise DataError(
            f"{root} holds no clips; expected folders of frames (DIR/<clip>/*.png) or video files "
            f"in it, or DIR/GT/<clip> with DIR/BIx4/<clip>" + (f"; {notes[0]}" if notes else "")
        )
    wanted, left_out = _wanted("folder", list(clips), only)
    opened = tuple(_open_clip(clips[name], lr_root) for name in wanted)
    return FrameSet("folder", root, opened, lr_root, tuple(notes), left_out)


def _open_clip(path: Path, lr_root: Path | None) -> PairedClip:
    """A folder of frames or a video, with its namesake among the LR clips."""
    if path.is_dir():
        return _paired(path.name, path, lr_root / path.name if lr_root else None, None)
    return PairedClip(
        path.name, open_video(path), open_video(lr_root / path.name) if lr_root else None
    )


def _paired(name: str, hr_folder: Path, lr_folder: Path | None, full: int | None) -> PairedClip:
    hr, notes = list_frames(hr_folder)
    assert hr is not None  # callers looked
    if full is not None and len(hr) > full:
        raise DataError(
            f"{hr_folder} has {len(hr)} frames, the full clip has {full}; which are extra?"
        )
    if lr_folder is None:
        return PairedClip(name, hr, None, full, tuple(notes))
    if not lr_folder.is_dir():
        raise DataError(f"{name} has no LR frames: {lr_folder} is missing, other clips have theirs")
    lr, lr_notes = list_frames(lr_folder)
    if lr is None:
        raise DataError(f"{lr_folder} holds no frames")
    if odd := set(hr.names) ^ set(lr.names):
        first = min(odd)
        side, other = (hr_folder, lr_folder) if first in hr.names else (lr_folder, hr_folder)
        raise DataError(
            f"{side} has a frame {first} that {other} has not ({len(odd)} such frames in all)"
        )
    return PairedClip(name, hr, lr, full, (*notes, *lr_notes))


def _wanted(
    name: str, known: Sequence[str], only: Sequence[str]
) -> tuple[list[str], tuple[str, ...]]:
    """The clips to open, in the order of the set, and those to leave out."""
    if unknown := set(only) - set(known):
        shown = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
        raise DataError(f"{name} has no clip {min(unknown)!r}; it has {shown}")
    if not only:
        return list(known), ()
    return [n for n in known if n in only], tuple(n for n in known if n not in only)


def _first_with(root: Path, places: Iterable[str], clips: Iterable[str]) -> Path | None:
    """The first folder that holds any of the clips."""
    names = tuple(clips)
    candidates = (root / place for place in places)
    return next((p for p in candidates if any((p / name).is_dir() for name in names)), None)


def _incomplete(name: str, root: Path, missing: list[str], total: int, tree: str) -> str:
    if len(missing) == total:
        return f"{root} holds no {name}. Expected: {tree}"
    shown = ", ".join(missing[:4]) + (", ..." if len(missing) > 4 else "")
    what = f"{name} without {len(missing)} of its {total} clips"
    return f"{root} holds {what}: {shown}. Expected: {tree}"
