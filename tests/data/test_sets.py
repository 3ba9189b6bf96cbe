import shutil
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from tests.data.trees import random_clip, write_clip, write_reds, write_vid4, write_vimeo

from vsrkit.data.frames import VideoFrames, list_frames
from vsrkit.data.layouts import REDS4, REDS_TRAINING
from vsrkit.data.sets import detect_sets, open_set
from vsrkit.errors import DataError
from vsrkit.video.images import write_image


def test_vid4_with_and_without_lr_frames(tmp_path: Path) -> None:
    write_vid4(tmp_path / "with", lr=True)
    write_vid4(tmp_path / "without")
    assert detect_sets(tmp_path / "with")[0] == "vid4"
    found = open_set("vid4", tmp_path / "with")
    assert [clip.name for clip in found.clips] == ["calendar", "city", "foliage", "walk"]
    assert found.lr_place == tmp_path / "with" / "BIx4"
    assert found.clips[2].lr is not None
    assert next(found.clips[2].lr.read()).shape == (3, 12, 16)
    assert open_set("vid4", tmp_path / "without").clips[0].lr is None
    assert open_set("vid4", tmp_path / "with", lr="bd").lr_place is None


@pytest.mark.parametrize("names", [["city"], ["000"], ["001", "002", "003"]])
def test_a_few_clips_with_names_of_a_known_set_are_a_plain_folder(
    tmp_path: Path, names: list[str]
) -> None:
    for name in names:
        write_image(tmp_path / name / "0000.png", torch.rand(3, 48, 64))
    assert detect_sets(tmp_path)[0] == "folder"
    assert [clip.name for clip in open_set("folder", tmp_path).clips] == names


def test_the_ground_truth_folder_itself_may_be_given(tmp_path: Path) -> None:
    write_vid4(tmp_path, lr=True)
    assert detect_sets(tmp_path / "GT")[0] == "vid4"
    assert open_set("vid4", tmp_path / "GT").lr_place == tmp_path / "BIx4"


def test_fewer_frames_than_the_full_set_are_partial(tmp_path: Path) -> None:
    write_vid4(tmp_path, frames=3)
    assert all(clip.partial for clip in open_set("vid4", tmp_path).clips)  # calendar has 41
    write_clip(tmp_path / "GT" / "city", random_clip(34, 16, 16))
    assert [c.partial for c in open_set("vid4", tmp_path).clips] == [True, False, True, True]


def test_more_frames_than_the_full_set_are_an_error(tmp_path: Path) -> None:
    write_vid4(tmp_path, frames=1)
    write_clip(tmp_path / "GT" / "city", random_clip(35, 16, 16))
    with pytest.raises(DataError, match="35 frames, the full clip has 34"):
        open_set("vid4", tmp_path)


def test_a_missing_clip_is_an_error_with_the_expected_folders(tmp_path: Path) -> None:
    write_vid4(tmp_path)
    shutil.rmtree(tmp_path / "GT" / "foliage")
    with pytest.raises(DataError, match=r"without 1 of its 4 clips: foliage\. Expected: DIR/GT"):
        open_set("vid4", tmp_path)
    (tmp_path / "GT" / "foliage").mkdir()  # an empty folder is not a clip
    with pytest.raises(DataError, match="foliage"):
        open_set("vid4", tmp_path)
    with pytest.raises(DataError, match=r"holds no reds4\. Expected: DIR/train_sharp"):
        open_set("reds4", tmp_path)
    with pytest.raises(DataError, match="is not a folder"):
        open_set("vid4", tmp_path / "nowhere")


def test_selected_clips_do_not_need_the_others(tmp_path: Path) -> None:
    write_reds(tmp_path, ("011",))
    found = open_set("reds4", tmp_path, only=["011"])
    assert [clip.name for clip in found.clips] == ["011"]
    assert found.left_out == ("000", "015", "020")
    with pytest.raises(DataError, match="reds4 has no clip '12'; it has 000, 011, 015, 020"):
        open_set("reds4", tmp_path, only=["12"])
    with pytest.raises(DataError, match="without 3 of its 4 clips: 000, 015, 020"):
        open_set("reds4", tmp_path)


def test_other_files_in_a_set_are_noted(tmp_path: Path) -> None:
    write_vid4(tmp_path)
    (tmp_path / "GT" / "notes.txt").write_text("hello")
    assert open_set("vid4", tmp_path).notes == ("ignored notes.txt: not a clip",)


def test_reds4_and_the_266_training_clips(tmp_path: Path) -> None:
    assert len(REDS_TRAINING) == 266
    assert not set(REDS4) & set(REDS_TRAINING)
    write_reds(tmp_path, REDS4)
    assert detect_sets(tmp_path)[0] == "reds4"
    found = open_set("reds4", tmp_path)
    assert [clip.name for clip in found.clips] == ["000", "011", "015", "020"]
    assert found.lr_place == tmp_path / "train_sharp_bicubic" / "X4"
    with pytest.raises(DataError, match=r"holds no reds-train"):
        open_set("reds-train", tmp_path)


def test_reds_training_takes_the_validation_clips_under_either_name(tmp_path: Path) -> None:
    frame = torch.zeros(3, 4, 4)
    write_image(tmp_path / "first.png", frame)
    for name in REDS_TRAINING:
        number = int(name)
        folder = f"train_sharp/{name}" if number < 250 else f"val_sharp/{number - 240:03d}"
        (tmp_path / folder).mkdir(parents=True)
        shutil.copy(tmp_path / "first.png", tmp_path / folder / "00000000.png")
    found = open_set("reds-train", tmp_path)
    assert len(found.clips) == 266
    assert found.clips[-1].name == "269"
    assert found.clips[-1].hr.place == tmp_path / "val_sharp" / "029"
    assert all(clip.partial for clip in found.clips)


def test_vimeo_reads_the_sets_own_lists(tmp_path: Path) -> None:
    write_vimeo(tmp_path, test=("00001/0266", "00002/0001"), train=("00001/0001",))
    assert detect_sets(tmp_path)[0] == "vimeo90k-t"
    assert detect_sets(tmp_path / "vimeo_septuplet")[0] == "vimeo90k-t"
    for root in (tmp_path, tmp_path / "vimeo_septuplet"):
        found = open_set("vimeo90k-t", root)
        assert [clip.name for clip in found.clips] == ["00001/0266", "00002/0001"]
        assert found.clips[0].hr.names == [f"im{n}" for n in range(1, 8)]
        assert found.clips[0].lr is not None
        assert not found.clips[0].partial
    assert [c.name for c in open_set("vimeo90k-train", tmp_path).clips] == ["00001/0001"]
    (tmp_path / "vimeo_septuplet" / "sequences" / "00002" / "0001" / "im3.png").unlink()
    with pytest.raises(DataError, match="frame im3"):  # its LR frame is still there
        open_set("vimeo90k-t", tmp_path)
    shutil.rmtree(tmp_path / "vimeo_septuplet" / "sequences" / "00002")
    with pytest.raises(DataError, match="without 1 of its 2 clips: 00002/0001"):
        open_set("vimeo90k-t", tmp_path)
    with pytest.raises(DataError, match=r"sep_testlist\.txt is missing"):
        open_set("vimeo90k-t", tmp_path / "vimeo_septuplet" / "sequences")


def test_any_folder_of_frame_folders(tmp_path: Path) -> None:
    write_clip(tmp_path / "b", random_clip(2))
    write_clip(tmp_path / "a", random_clip(3), first=9, name="f{}")
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "a" / "Thumbs.db").write_bytes(b"x")
    assert detect_sets(tmp_path)[0] == "folder"
    found = open_set("folder", tmp_path)
    assert [clip.name for clip in found.clips] == ["a", "b"]
    assert found.clips[0].hr.names == ["f9", "f10", "f11"]  # by number, not by letter
    assert found.clips[0].notes == ("ignored a/Thumbs.db: not an image",)
    assert found.notes == (
        "skipped empty/: no frames in it",
        "ignored notes.txt: neither a video nor a folder of frames",
    )


def test_a_folder_of_frames_is_one_clip(tmp_path: Path) -> None:
    write_clip(tmp_path / "holiday", random_clip(2))
    assert [clip.name for clip in open_set("folder", tmp_path / "holiday").clips] == ["holiday"]


def write_grey_video(path: Path, levels: tuple[int, ...], pix_fmt: str, middle: int) -> None:
    """Write constant frames of these luma levels, losslessly."""
    with av.open(path, "w") as container:
        stream = container.add_stream("ffv1", rate=25)
        stream.width, stream.height, stream.pix_fmt = 32, 24, pix_fmt
        for value in levels:
            frame = av.VideoFrame(32, 24, pix_fmt)
            kind = "<u1" if frame.format.components[0].bits == 8 else "<u2"
            for plane, level in zip(frame.planes, (value, middle, middle), strict=True):
                count = plane.buffer_size // np.dtype(kind).itemsize
                plane.update(np.full(count, level, kind).tobytes())
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def test_a_folder_of_videos(tmp_path: Path) -> None:
    write_grey_video(tmp_path / "a.mkv", (16, 128, 235), "yuv444p", 128)
    write_grey_video(tmp_path / "b.mkv", (64, 512, 940), "yuv420p10le", 512)
    for clip in open_set("folder", tmp_path).clips:
        assert isinstance(clip.hr, VideoFrames)
        assert (len(clip.hr), clip.hr.size) == (3, (24, 32))
        levels = [float(frame.mean()) for frame in clip.hr.read()]
        # Half a step of 8 bits; much less for 10 bits, where a wrong white level would show.
        tolerance = 0.002 if clip.name == "a.mkv" else 5e-5
        assert levels == pytest.approx([0, (128 - 16) / 219, 1], abs=tolerance)
    (tmp_path / "a.mkv").write_bytes(b"not a video")
    with pytest.raises(DataError, match=r"a\.mkv"):
        open_set("folder", tmp_path)


def test_an_empty_folder_is_an_error_with_the_expected_layout(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no clips; expected folders of frames"):
        open_set("folder", tmp_path)


def test_lr_and_hr_must_have_the_same_frames(tmp_path: Path) -> None:
    write_vid4(tmp_path, lr=True)
    (tmp_path / "BIx4" / "walk" / "00000002.png").unlink()
    with pytest.raises(DataError, match=r"frame 00000002 is in .*, but not in .*BIx4/walk"):
        open_set("vid4", tmp_path)
    shutil.rmtree(tmp_path / "BIx4" / "walk")
    with pytest.raises(DataError, match="walk has no LR frames"):
        open_set("vid4", tmp_path)


def test_missing_and_duplicate_frame_numbers(tmp_path: Path) -> None:
    write_clip(tmp_path, random_clip(9, 8, 8))
    frames, _ = list_frames(tmp_path)
    assert frames is not None
    assert frames.missing_numbers() == []
    (tmp_path / "00000004.png").unlink()
    frames, _ = list_frames(tmp_path)
    assert frames is not None
    assert frames.missing_numbers() == [4]
    assert open_set("folder", tmp_path).clips[0].partial
    shutil.copy(tmp_path / "00000003.png", tmp_path / "00000003.bmp")
    with pytest.raises(DataError, match="the same frame twice"):
        list_frames(tmp_path)


def test_a_frame_of_another_size_is_an_error(tmp_path: Path) -> None:
    write_clip(tmp_path / "a", random_clip(2, 16, 16))
    write_image(tmp_path / "a" / "00000002.png", torch.rand(3, 16, 20))
    with pytest.raises(DataError, match=r"00000002\.png is 20x16, the frames before it are 16x16"):
        list(open_set("folder", tmp_path).clips[0].hr.read())
