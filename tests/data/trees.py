"""Small sets in the folder layouts of the real ones."""

import os
import shutil
from pathlib import Path

import torch

from vsrkit.data.degrade import BI, degrade
from vsrkit.video.images import write_image


def write_clip(folder: Path, clip: torch.Tensor, *, first: int = 0, name: str = "{:08d}") -> None:
    for number, frame in enumerate(clip):
        write_image(folder / f"{name.format(number + first)}.png", frame)


def random_clip(frames: int, height: int = 48, width: int = 64, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (frames, 3, height, width), generator=generator) / 255


def write_vid4(root: Path, frames: int = 3, *, lr: bool = False) -> None:
    for seed, name in enumerate(("calendar", "city", "foliage", "walk")):
        clip = random_clip(frames, seed=seed)
        write_clip(root / "GT" / name, clip)
        if lr:
            write_clip(root / "BIx4" / name, degrade(clip, BI()))


def write_reds(root: Path, clips: tuple[str, ...], frames: int = 2) -> None:
    for seed, name in enumerate(clips):
        clip = random_clip(frames, seed=seed)
        write_clip(root / "train_sharp" / name, clip)
        write_clip(root / "train_sharp_bicubic" / "X4" / name, degrade(clip, BI()))


def write_published_reds(
    root: Path, *, train: str = "train_sharp", val: str = "val_sharp", frames: int = 1
) -> None:
    """The HR folders of REDS as published, 240 and 30 clips, with the same small frames in each."""
    first = root / "first"
    write_clip(first, random_clip(frames, 64, 64))
    for folder, count in ((train, 240), (val, 30)):
        for number in range(count):
            shutil.copytree(first, root / folder / f"{number:03d}", copy_function=os.link)
    shutil.rmtree(first)


def write_vimeo(root: Path, test: tuple[str, ...], train: tuple[str, ...] = ()) -> None:
    home = root / "vimeo_septuplet"
    for seed, name in enumerate((*test, *train)):
        clip = random_clip(7, seed=seed)
        write_clip(home / "sequences" / name, clip, first=1, name="im{}")
        write_clip(
            root / "vimeo_septuplet_matlabLRx4" / "sequences" / name,
            degrade(clip, BI()),
            first=1,
            name="im{}",
        )
    (home / "sep_testlist.txt").write_text("\n".join(test) + "\n")
    (home / "sep_trainlist.txt").write_text("\n".join(train) + "\n")
