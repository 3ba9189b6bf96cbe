"""Folder layouts of the known test and training sets, in the variants that users have on disk."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

TrainingSetName: TypeAlias = Literal["reds-train", "vimeo90k-train"]
SetName: TypeAlias = Literal["vid4", "reds4", "vimeo90k-t", "folder"] | TrainingSetName
TRAINING_SETS: tuple[TrainingSetName, ...] = get_args(TrainingSetName)
SET_NAMES: tuple[SetName, ...] = (
    "vid4", "reds4", "reds-train", "vimeo90k-t", "vimeo90k-train", "folder",
)  # fmt: skip
LrKind: TypeAlias = Literal["bi", "bd"]
Places: TypeAlias = tuple[str, ...]  # folders below the root, tried in order; "" is the root itself


@dataclass(frozen=True, slots=True)
class Part:
    """Clips of a set that are in one folder."""

    hr: Places
    lr: Mapping[LrKind, Places]
    folders: Mapping[str, str]  # clip -> its folder below one of `hr` or `lr`


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A set with known clips. A clip is opened from the first part that holds it."""

    name: SetName
    parts: tuple[Part, ...]
    clips: Mapping[str, int]  # name -> number of frames of the full clip
    tree: str  # the expected folders, for error messages
    full: int  # number of clips of the complete set; a list may name fewer


def _same(names: Sequence[str]) -> dict[str, str]:
    return {name: name for name in names}


def _reds_part(
    split: str, folders: Mapping[str, str], more: Places, lr: Mapping[LrKind, Places]
) -> Part:
    """REDS train or val. Their zip files unpack to train/train_sharp and val/val_sharp."""
    hr = (f"{split}_sharp", f"{split}/{split}_sharp", f"{split}_sharp/{split}/{split}_sharp")
    bi = (f"{split}_sharp_bicubic/X4", f"{split}/{split}_sharp_bicubic/X4", *lr["bi"])
    return Part((*hr, *more), {**lr, "bi": bi}, folders)


VID4_CLIPS = {"calendar": 41, "city": 34, "foliage": 49, "walk": 47}
REDS4 = ("000", "011", "015", "020")
REDS = tuple(f"{n:03d}" for n in range(270))
REDS_TRAINING = tuple(name for name in REDS if name not in REDS4)
# The 30 clips of REDS val are usually renamed to 240 ... 269, after the 240 of REDS train.
REDS_VAL = {f"{n + 240:03d}": f"{n:03d}" for n in range(30)}
REDS_MORE: Places = ("GT", "sharp", "train/sharp", "HR", "")
REDS_MORE_LR: dict[LrKind, Places] = {
    "bi": ("sharp_bicubic/X4", "sharp_bicubic", "train/sharp_bicubic/X4", "BIx4", "LR"),
    "bd": ("BDx4",),
}

VID4_LAYOUT = Layout(
    name="vid4",
    parts=(
        Part(
            ("GT", "HR", "", "Vid4/GT"),
            {"bi": ("BIx4", "LR", "Vid4/BIx4"), "bd": ("BDx4", "Vid4/BDx4")},
            _same(tuple(VID4_CLIPS)),
        ),
    ),
    clips=VID4_CLIPS,
    full=4,
    tree="DIR/GT/{calendar,city,foliage,walk}/00000000.png ... and optionally DIR/BIx4/...",
)
REDS4_LAYOUT = Layout(
    name="reds4",
    parts=(_reds_part("train", _same(REDS4), REDS_MORE, REDS_MORE_LR),),
    clips=dict.fromkeys(REDS4, 100),
    full=4,
    tree=(
        "DIR/train_sharp/{000,011,015,020}/00000000.png ... 00000099.png and optionally "
        "DIR/train_sharp_bicubic/X4/{000,011,015,020}/..."
    ),
)
REDS_TRAINING_LAYOUT = Layout(
    name="reds-train",
    parts=(
        _reds_part("train", _same(REDS_TRAINING), REDS_MORE, REDS_MORE_LR),
        # The others are for a root that is train_sharp itself.
        _reds_part("val", REDS_VAL, ("../val_sharp", "../../val/val_sharp"), {"bi": (), "bd": ()}),
    ),
    clips=dict.fromkeys(REDS_TRAINING, 100),
    full=266,
    tree=(
        "DIR/train_sharp/{000..239 without 000,011,015,020}/00000000.png ... and "
        "DIR/val_sharp/{000..029}/..., which may also be DIR/train_sharp/{240..269}"
    ),
)
LAYOUTS = {layout.name: layout for layout in (VID4_LAYOUT, REDS4_LAYOUT, REDS_TRAINING_LAYOUT)}

VIMEO_LISTS: dict[SetName, str] = {
    "vimeo90k-t": "sep_testlist.txt",
    "vimeo90k-train": "sep_trainlist.txt",
}
VIMEO_FULL: dict[SetName, int] = {"vimeo90k-t": 7824, "vimeo90k-train": 64_612}
VIMEO_LR: dict[LrKind, Places] = {
    "bi": ("vimeo_septuplet_matlabLRx4", "vimeo_septuplet_BIx4", "BIx4"),
    "bd": ("vimeo_septuplet_BDLRx4", "vimeo_septuplet_BDx4", "BDx4"),
}
VIMEO_TREE = (
    "DIR/vimeo_septuplet/sep_{test,train}list.txt, DIR/vimeo_septuplet/sequences/00001/0001/"
    "im1.png ... im7.png and optionally DIR/vimeo_septuplet_matlabLRx4/sequences/..."
)
VIMEO_HELD_OUT = 64  # septuplets of the training list that are held out for validation


def vimeo_layout(name: SetName, listed: Sequence[str]) -> Layout:
    """The layout of Vimeo-90K with the septuplets of a list, such as 00001/0001."""
    lr = {
        kind: tuple(f"{place}/sequences" for place in places) for kind, places in VIMEO_LR.items()
    }
    part = Part(("sequences", "vimeo_septuplet/sequences"), lr, _same(listed))
    return Layout(
        name=name,
        parts=(part,),
        clips=dict.fromkeys(listed, 7),
        full=VIMEO_FULL[name],
        tree=VIMEO_TREE,
    )


def vimeo_held_out(listed: Sequence[str]) -> list[str]:
    """Which septuplets of the training list are held out: 64 at equal distances.

    Of the 64,612 these are numbers 504, 1514, 2523, ... from 0, far enough apart to be from
    different videos. Of a short list, such as a small part of the set, at most half is held out.
    """
    count = min(VIMEO_HELD_OUT, len(listed) // 2)
    return [listed[(2 * n + 1) * len(listed) // (2 * count)] for n in range(count)]


FOLDER_HR: Places = ("GT", "HR", "hr", "gt", "")
FOLDER_LR: dict[LrKind, Places] = {
    "bi": ("BIx4", "LR", "lr", "X4", "BIx2", "X2"),
    "bd": ("BDx4", "BDx2"),
}
