"""Folder layouts of the known test and training sets, in the variants that users have on disk."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, get_args

SetName: TypeAlias = Literal[
    "vid4", "reds4", "reds-train", "vimeo90k-t", "vimeo90k-train", "folder"
]
SET_NAMES: tuple[SetName, ...] = get_args(SetName)
LrKind: TypeAlias = Literal["bi", "bd"]

REDS4 = ("000", "011", "015", "020")
REDS_TRAINING = tuple(f"{n:03d}" for n in range(270) if f"{n:03d}" not in REDS4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Folders of a set with known clips; they are tried in order, "" is the root itself."""

    name: SetName
    hr: tuple[str, ...]
    lr: Mapping[LrKind, tuple[str, ...]]
    clips: Mapping[str, int]  # name -> number of frames of the full clip
    tree: str  # the expected folders, for error messages
    elsewhere: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # clip -> (hr, lr)


VID4 = Layout(
    name="vid4",
    hr=("GT", "HR", "", "Vid4/GT"),
    lr={"bi": ("BIx4", "LR", "Vid4/BIx4"), "bd": ("BDx4", "Vid4/BDx4")},
    clips={"calendar": 41, "city": 34, "foliage": 49, "walk": 47},
    tree="DIR/GT/{calendar,city,foliage,walk}/00000000.png ... and optionally DIR/BIx4/...",
)
REDS4_LAYOUT = Layout(
    name="reds4",
    hr=("train_sharp", "train/train_sharp", "GT", "sharp", "train/sharp", "HR", ""),
    lr={
        "bi": (
            "train_sharp_bicubic/X4",
            "train/train_sharp_bicubic/X4",
            "sharp_bicubic/X4",
            "sharp_bicubic",
            "train/sharp_bicubic/X4",
            "BIx4",
            "LR",
        ),
        "bd": ("BDx4",),
    },
    clips=dict.fromkeys(REDS4, 100),
    tree=(
        "DIR/train_sharp/{000,011,015,020}/00000000.png ... 00000099.png and optionally "
        "DIR/train_sharp_bicubic/X4/{000,011,015,020}/..."
    ),
)
REDS_TRAINING_LAYOUT = replace(
    REDS4_LAYOUT,
    name="reds-train",
    clips=dict.fromkeys(REDS_TRAINING, 100),
    tree=(
        "DIR/train_sharp/{000..269 without 000,011,015,020}/00000000.png ... and optionally "
        "DIR/train_sharp_bicubic/X4/...; 240..269 may also be DIR/val_sharp/{000..029}"
    ),
    elsewhere={
        f"{n:03d}": (f"val_sharp/{n - 240:03d}", f"val_sharp_bicubic/X4/{n - 240:03d}")
        for n in range(240, 270)
    },
)
LAYOUTS = {layout.name: layout for layout in (VID4, REDS4_LAYOUT, REDS_TRAINING_LAYOUT)}

VIMEO_TREE = (
    "DIR/vimeo_septuplet/sep_{test,train}list.txt, DIR/vimeo_septuplet/sequences/00001/0001/"
    "im1.png ... im7.png and optionally DIR/vimeo_septuplet_matlabLRx4/sequences/..."
)
VIMEO_LISTS: dict[SetName, str] = {
    "vimeo90k-t": "sep_testlist.txt",
    "vimeo90k-train": "sep_trainlist.txt",
}
VIMEO_LR: dict[LrKind, tuple[str, ...]] = {
    "bi": ("vimeo_septuplet_matlabLRx4", "vimeo_septuplet_BIx4", "BIx4"),
    "bd": ("vimeo_septuplet_BDLRx4", "vimeo_septuplet_BDx4", "BDx4"),
}
FOLDER_HR = ("GT", "HR", "hr", "gt", "")
FOLDER_LR: dict[LrKind, tuple[str, ...]] = {
    "bi": ("BIx4", "LR", "lr", "X4", "BIx2", "X2"),
    "bd": ("BDx4", "BDx2"),
}
