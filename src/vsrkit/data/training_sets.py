"""REDS and Vimeo-90K as training sets: the published split of their trees."""

import os
from dataclasses import dataclass
from pathlib import Path

from vsrkit.data.frames import shortened
from vsrkit.data.layouts import (
    REDS_TRAINING,
    TRAINING_SETS,
    VIMEO_LISTS,
    TrainingSetName,
    vimeo_held_out,
)
from vsrkit.data.sets import (
    FrameSet,
    PairedClip,
    find_root,
    first_with,
    open_set,
    read_list,
    vimeo_home,
)
from vsrkit.errors import DataError


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
