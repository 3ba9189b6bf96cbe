"""Test and training sets on disk: the known ones (see `layouts`) and any folder of clips."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vsrkit.data.frames import FrameFiles, Frames, list_frames, open_video, shortened
from vsrkit.data.layouts import (
    FOLDER_HR,
    FOLDER_LR,
    LAYOUTS,
    REDS_TRAINING,
    SET_NAMES,
    TRAINING_SETS,
    VIMEO_FULL,
    VIMEO_LISTS,
    VIMEO_TREE,
    Layout,
    LrKind,
    SetName,
    TrainingSetName,
    vimeo_held_out,
    vimeo_layout,
)
from vsrkit.errors import DataError, VsrkitError
from vsrkit.video.images import natural_order
from vsrkit.video.probe import is_video


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
    unlisted: int = 0  # clips of the complete set that the list of this one lacks


def set_named(name: str) -> SetName:
    """The set of this name; an error lists all names."""
    for known in SET_NAMES:
        if known == name:
            return known
    raise VsrkitError(f"no set called {name!r}; use {', '.join(SET_NAMES)}")


def detect_sets(root: Path) -> list[SetName]:
    """Detect which sets a folder holds; `folder` if it is none of the known ones.

    A tree of REDS or Vimeo-90K may hold a test set and a training set; the test set is first.
    """
    if not root.is_dir():
        raise DataError(f"{root} is not a folder; expected the folder of a data set")
    found = [name for name, list_name in VIMEO_LISTS.items() if vimeo_home(root, list_name)]
    # Any clip may be called "city" or "001", so at least half of the set must exist.
    found += [n for n, known in LAYOUTS.items() if 2 * count_clips(known, root) >= known.full]
    return found or ["folder"]


def find_root(name: SetName, folder: Path) -> Path:
    """Find a known set in a folder that holds several.

    Returns:
        The folder itself if it holds the set, else the folder directly in it that holds the most
        clips of the set; the folder itself if none does.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; expected the folder of {name}")

    def found(root: Path) -> int:
        if name in LAYOUTS:
            return count_clips(LAYOUTS[name], root)
        return vimeo_home(root, VIMEO_LISTS[name]) is not None

    if name == "folder" or found(folder):
        return folder
    return max((folder, *sorted(filter(Path.is_dir, folder.iterdir()))), key=found)


def open_set(
    name: SetName, root: Path, lr: LrKind | None = "bi", only: Sequence[str] = ()
) -> FrameSet:
    """Open a set by name; an error shows the expected folders and which are missing.

    Args:
        name: the kind of set, as `detect_sets` returns it.
        root: folder of the set.
        lr: which LR frames to look for; None looks for none.
        only: names of the clips to open, the others may be missing; empty opens all.
    """
    if not root.is_dir():
        raise DataError(f"{root} is not a folder; expected the folder of {name}")
    if name == "folder":
        return _open_folder(root, lr, only)
    layout = LAYOUTS[name] if name in LAYOUTS else vimeo_layout(name, read_list(name, root))
    return _open_known(layout, root, lr, only)


def _open_known(layout: Layout, root: Path, lr: LrKind | None, only: Sequence[str]) -> FrameSet:
    selected, left_out = _select(layout.name, list(layout.clips), only)
    found: dict[str, PairedClip] = {}
    lr_place, notes = None, []
    for part in layout.parts:
        hr_root = first_with(root, part.hr, part.folders.values())
        if hr_root is None:
            continue
        places = part.lr[lr] if lr else ()
        # If root is the ground-truth folder itself, LR frames are next to it.
        lr_root = first_with(root, places, part.folders.values()) or first_with(
            root.parent, places, part.folders.values()
        )
        lr_place = lr_place or lr_root
        for name in selected:
            if name in found or name not in part.folders:
                continue
            folder = part.folders[name]
            lr_folder = lr_root / folder if lr_root else None
            if clip := _pair(name, hr_root / folder, lr_folder, layout.clips[name]):
                found[name] = clip
        stray = sorted(path.name for path in hr_root.iterdir() if path.is_file())
        notes += [f"ignored {name}: not a clip" for name in stray]
    _require_all(found, selected, layout, root)
    clips, unlisted = tuple(found[name] for name in selected), layout.full - len(layout.clips)
    return FrameSet(
        layout.name, root, clips, lr_place, tuple(notes), left_out, unlisted=max(0, unlisted)
    )


def read_list(name: SetName, root: Path) -> list[str]:
    """The septuplets of `vimeo90k-t` or `vimeo90k-train` according to the list in the tree."""
    list_name = VIMEO_LISTS[name]
    home = vimeo_home(root, list_name)
    if home is None:
        raise DataError(f"{root} holds no {name}: {list_name} is missing. Expected: {VIMEO_TREE}")
    try:
        listed = (home / list_name).read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{home / list_name} cannot be read as text: {error}") from error
    if not listed:
        raise DataError(
            f"{home / list_name} is empty; expected the {VIMEO_FULL[name]} septuplets of {name}"
        )
    return list(dict.fromkeys(listed))


def vimeo_home(root: Path, list_name: str) -> Path | None:
    """The folder with a list of Vimeo-90K: `root`, or vimeo_septuplet in it."""
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


def first_with(root: Path, places: Iterable[str], folders: Iterable[str]) -> Path | None:
    """Return the first of the places that holds any of the folders."""
    names = tuple(folders)
    candidates = (root / place for place in places)
    return next(
        (p for p in candidates if p.is_dir() and any((p / name).is_dir() for name in names)), None
    )


def count_clips(layout: Layout, root: Path) -> int:
    """Number of clips of a set that exist below `root`."""
    found = set()
    for part in layout.parts:
        if hr_root := first_with(root, part.hr, part.folders.values()):
            found |= {name for name, folder in part.folders.items() if (hr_root / folder).is_dir()}
    return len(found & layout.clips.keys())


def _require_all(found: Iterable[str], selected: Sequence[str], layout: Layout, root: Path) -> None:
    """Raise DataError with the expected folders if a selected clip was not found."""
    missing = sorted(set(selected).difference(found))
    if len(missing) == len(selected):
        raise DataError(f"{root} holds no {layout.name}. Expected: {layout.tree}")
    if missing:
        raise DataError(
            f"{root} holds {layout.name} without {len(missing)} of its {len(selected)} clips: "
            f"{shortened(missing, 4)}. Expected: {layout.tree}"
        )


def locate_training_set(text: str, data_root: str = "") -> tuple[TrainingSetName, Path] | None:
    """The training set that a data source names, and its root; None for videos and other folders.

    Args:
        text: the name of a training set, or a path. A path at which the tree of a training set is
            found means that set: its tree also holds test clips and LR frames.
        data_root: folder of a set given by name, or a folder that holds it; empty: the
            environment variable VSRKIT_DATA.
    """
    for name in TRAINING_SETS:
        if text == name:
            folder = data_root or os.environ.get("VSRKIT_DATA", "")
            if not folder:
                raise DataError(
                    f"no folder for {name}; set data_root (--set data_root=DIR) or the environment "
                    "variable VSRKIT_DATA to the folder of the set"
                )
            return name, find_root(name, Path(folder))
    return _recognise(Path(text))


@dataclass(frozen=True, slots=True)
class TrainingSplit:
    """A training set as it is published, without any clip of its test set to train on."""

    training: tuple[PairedClip, ...]
    validation: tuple[PairedClip, ...]
    notes: tuple[str, ...]  # what the tree lacks of the complete set, one line each


def open_training_set(name: TrainingSetName, root: Path) -> TrainingSplit:
    """Open the HR clips of a training set, and those it is validated on.

    `reds-train` is validated on REDS4, `vimeo90k-train` on the septuplets of `vimeo_held_out`.

    Args:
        name: which set.
        root: its folder.
    """
    found = open_set(name, root, lr=None)
    training, validation = found.clips, found.clips
    if name == "reds-train":
        validation = open_set("reds4", root, lr=None).clips
    else:
        held_out = set(vimeo_held_out([clip.name for clip in found.clips]))
        training = tuple(clip for clip in found.clips if clip.name not in held_out)
        validation = tuple(clip for clip in found.clips if clip.name in held_out)
        _require_separate_lists(found, root)
    notes = []
    if found.unlisted:
        total = found.unlisted + len(found.clips)
        notes.append(f"partial: {root} lists {len(found.clips)} of the {total} clips of {name}")
    if short := [clip for clip in found.clips if clip.partial]:
        notes.append(
            f"partial: {len(short)} clips of {name} lack frames, the first is {short[0].name} "
            f"with {len(short[0].hr)} of {short[0].full}"
        )
    return TrainingSplit(training, validation, tuple(notes))


def _require_separate_lists(found: FrameSet, root: Path) -> None:
    """Raise DataError if the training list of Vimeo-90K names septuplets of the test list."""
    if vimeo_home(root, VIMEO_LISTS["vimeo90k-t"]) is None:
        return
    tests = set(read_list("vimeo90k-t", root))
    if both := [clip.name for clip in found.clips if clip.name in tests]:
        raise DataError(
            f"sep_trainlist.txt and sep_testlist.txt of {root} both name {shortened(both, 4)} "
            f"({len(both)} in all); restore the published lists"
        )


def _recognise(path: Path) -> tuple[TrainingSetName, Path] | None:
    """The training set whose published tree is at `path`, and its root; None for other data."""
    for root in (path, path.parent) if path.name == "sequences" else (path,):
        if any(vimeo_home(root, list_name) for list_name in VIMEO_LISTS.values()):
            return "vimeo90k-train", root
    digits = "[0-9]" * 4
    if any(
        next(path.glob(f"{place}[0-9]{digits}/{digits}/im7.png"), None)
        for place in ("", "sequences/", "vimeo_septuplet/sequences/")
    ):
        return "vimeo90k-train", path  # its lists are missing, which `open_set` reports
    inside = first_with(path, ("train_sharp", "train/train_sharp"), REDS_TRAINING)
    itself = path.name == "train_sharp" and first_with(path, ("",), REDS_TRAINING)
    return ("reds-train", path) if inside or itself else None
