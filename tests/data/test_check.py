from pathlib import Path

import torch
from tests.data.trees import random_clip, write_clip, write_vid4

from vsrkit.data.check import check_set
from vsrkit.data.degrade import BI, degrade
from vsrkit.video.images import write_image


def test_a_folder_without_problems(tmp_path: Path) -> None:
    write_clip(tmp_path / "GT" / "a", random_clip(3))
    write_clip(tmp_path / "LR" / "a", degrade(random_clip(3), BI()))
    check = check_set(tmp_path)
    assert check.sound
    assert (check.set, check.clips[0].frames) == ("folder", 3)
    assert (check.clips[0].size, check.clips[0].lr_size) == ((48, 64), (12, 16))


def test_every_problem_is_found_in_one_run(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write_clip(tmp_path / name, random_clip(5))
    damaged = tmp_path / "a" / "00000002.png"
    damaged.write_bytes(damaged.read_bytes()[:-30])
    write_image(tmp_path / "b" / "00000004.png", torch.rand(3, 20, 20))
    (tmp_path / "c" / "00000001.png").unlink()
    (tmp_path / "c" / "readme.md").write_text("hello")
    a, b, c = check_set(tmp_path).clips
    assert "00000002.png is damaged" in a.problems[0]
    assert "is 20x20, others are 64x48" in b.problems[0]
    assert c.problems == ("partial: frames missing between the first and the last: 1",)
    assert c.notes == ("ignored c/readme.md: not an image",)
    assert not check_set(tmp_path, quick=True).clips[0].problems  # quick does not read the files


def test_partial_sets_and_wrong_ratios(tmp_path: Path) -> None:
    write_vid4(tmp_path, frames=3, lr=True)
    for number in range(3):
        write_image(tmp_path / "BIx4" / "city" / f"0000000{number}.png", torch.rand(3, 13, 16))
    check = check_set(tmp_path)
    assert check.set == "vid4"
    assert check.clips[0].problems == ("partial: 3 of 41 frames",)
    assert check.clips[1].problems[-1] == "HR is 64x48, LR is 16x13: not an integer factor"


def test_a_set_that_cannot_be_opened_is_a_problem(tmp_path: Path) -> None:
    write_vid4(tmp_path, lr=True)
    (tmp_path / "BIx4" / "walk" / "00000000.png").unlink()
    check = check_set(tmp_path)
    assert len(check.clips) == 4  # the ground truth is checked nevertheless
    assert "but not in" in check.problems[0]
    (tmp_path / "empty").mkdir()
    assert "holds no clips" in check_set(tmp_path / "empty").problems[0]
