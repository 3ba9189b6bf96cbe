"""The published splits of REDS and Vimeo-90K: which clips are trained on and validated on."""

import shutil

import pytest
from tests.data.trees import random_clip, write_clip, write_published_reds, write_vimeo

from vsrkit.data.layouts import REDS4, REDS_TRAINING, vimeo_held_out
from vsrkit.data.sets import locate_training_set, open_training_set
from vsrkit.errors import DataError

SEPTUPLETS = tuple(f"{n // 5 + 1:05d}/{n % 5 + 1:04d}" for n in range(30))
TRAIN, TEST = SEPTUPLETS[::2], SEPTUPLETS[1::2]


@pytest.fixture(scope="module")
def reds(tmp_path_factory):
    root = tmp_path_factory.mktemp("data") / "REDS"
    write_published_reds(root)
    return root


@pytest.fixture
def vimeo(tmp_path):
    write_vimeo(tmp_path, TEST, TRAIN)
    return tmp_path


def names(clips):
    return [clip.name for clip in clips]


def check_reds(root):
    split = open_training_set("reds-train", root)
    assert names(split.training) == list(REDS_TRAINING)
    assert names(split.validation) == list(REDS4)
    places = [(clip.name, clip.hr.place.parts[-2:]) for clip in split.training]
    for name, place in places:
        number = int(name)
        val = ("val_sharp", f"{number - 240:03d}")
        assert place == (("train_sharp", name) if number < 240 else val)
    return split


def test_reds_is_266_clips_of_its_published_folders(reds):
    split = check_reds(reds)
    assert split.notes == (
        "partial: 266 clips of reds-train lack frames, the first is 001 with 1 of 100",
    )


def test_reds_as_its_zip_files_unpack(tmp_path):
    write_published_reds(tmp_path, train="train/train_sharp", val="val/val_sharp")
    check_reds(tmp_path)
    check_reds(tmp_path / "train" / "train_sharp")
    assert locate_training_set(str(tmp_path)) == ("reds-train", tmp_path)


def test_clips_of_val_may_be_renamed(tmp_path):
    write_published_reds(tmp_path)
    for number in range(30):
        clip = tmp_path / "val_sharp" / f"{number:03d}"
        clip.rename(tmp_path / "train_sharp" / f"{number + 240:03d}")
    split = open_training_set("reds-train", tmp_path)
    assert names(split.training) == list(REDS_TRAINING)
    assert split.training[-1].hr.place == tmp_path / "train_sharp" / "269"


def test_every_clip_of_reds_is_required(tmp_path):
    write_published_reds(tmp_path)
    shutil.rmtree(tmp_path / "val_sharp" / "007")
    with pytest.raises(DataError, match=r"without 1 of its 266 clips: 247\. Expected: DIR/train"):
        open_training_set("reds-train", tmp_path)
    shutil.rmtree(tmp_path / "val_sharp")
    with pytest.raises(DataError, match="without 30 of its 266 clips: 240, 241"):
        open_training_set("reds-train", tmp_path)
    shutil.rmtree(tmp_path / "train_sharp" / "011")
    with pytest.raises(DataError, match="without 30 of its 266"):
        open_training_set("reds-train", tmp_path)


def test_vimeo_holds_out_septuplets_of_the_training_list(vimeo):
    split = open_training_set("vimeo90k-train", vimeo)
    assert names(split.validation) == vimeo_held_out(TRAIN) == list(TRAIN[1:14:2])
    assert names(split.training) == list(TRAIN[::2])
    assert "lists 15 of the 64612 clips" in split.notes[0]


def test_64_septuplets_are_held_out_and_at_most_half_of_a_short_list():
    listed = [f"{n:05d}" for n in range(64_612)]
    held = vimeo_held_out(listed)
    assert (len(set(held)), held[:2], held[-1]) == (64, ["00504", "01514"], "64107")
    for length, count in ((1, 0), (2, 1), (127, 63), (128, 64), (129, 64), (1000, 64)):
        assert len(set(vimeo_held_out(listed[:length]))) == count


def test_vimeo_without_its_lists_is_refused(vimeo):
    home = vimeo / "vimeo_septuplet"
    (home / "sep_trainlist.txt").unlink()
    for path in (vimeo, home, home / "sequences"):
        located = locate_training_set(str(path))
        assert located is not None
        with pytest.raises(DataError, match=r"sep_trainlist\.txt is missing") as error:
            open_training_set(*located)
        assert "\n" not in str(error.value)
    (home / "sep_testlist.txt").unlink()
    for path in (vimeo, home, home / "sequences"):
        located = locate_training_set(str(path))
        assert located is not None
        with pytest.raises(DataError, match=r"sep_trainlist\.txt is missing"):
            open_training_set(*located)


def test_wrong_lists_are_refused(vimeo):
    listed = vimeo / "vimeo_septuplet" / "sep_trainlist.txt"
    listed.write_text("\n".join((*TRAIN, TEST[3])))
    with pytest.raises(DataError, match=rf"both name {TEST[3]} \(1 in all\)"):
        open_training_set("vimeo90k-train", vimeo)
    listed.write_text("\n".join((*TRAIN, "00099/0001")))
    with pytest.raises(DataError, match="without 1 of its 16 clips: 00099/0001"):
        open_training_set("vimeo90k-train", vimeo)
    listed.write_text("\n")
    with pytest.raises(DataError, match="is empty"):
        open_training_set("vimeo90k-train", vimeo)


def test_names_are_found_in_data_root_or_the_environment(reds, vimeo, monkeypatch):
    monkeypatch.delenv("VSRKIT_DATA", raising=False)
    with pytest.raises(DataError, match="no folder for reds-train; set data_root"):
        locate_training_set("reds-train")
    for root in (reds, reds.parent):
        assert locate_training_set("reds-train", str(root)) == ("reds-train", reds)
    monkeypatch.setenv("VSRKIT_DATA", str(vimeo))
    assert locate_training_set("vimeo90k-train") == ("vimeo90k-train", vimeo)
    with pytest.raises(DataError, match="nowhere is not a folder"):
        locate_training_set("reds-train", "nowhere")


def test_trees_are_recognised_and_other_folders_are_not(reds, vimeo, tmp_path):
    assert locate_training_set(str(reds)) == ("reds-train", reds)
    assert locate_training_set(str(reds / "train_sharp")) == ("reds-train", reds / "train_sharp")
    home = vimeo / "vimeo_septuplet"
    for path, root in ((vimeo, vimeo), (home, home), (home / "sequences", home)):
        assert locate_training_set(str(path)) == ("vimeo90k-train", root)
    for number in range(3):
        write_clip(tmp_path / "mine" / "GT" / f"{number:03d}", random_clip(1))
    for path in (tmp_path / "mine", tmp_path / "mine" / "GT", tmp_path / "nothing"):
        assert locate_training_set(str(path)) is None
