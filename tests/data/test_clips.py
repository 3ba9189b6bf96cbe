"""Training clips: decoding into the cache, shots, unreadable frames, held-out clips."""

import logging
import os

import av
import numpy as np
import pytest
import torch
from tests.clips import write_clip
from tests.train.conftest import moving_picture, write_video

from vsrkit.data import clips as clips_module
from vsrkit.data.clips import (
    Unreadable,
    find_clips,
    hold_out,
    open_clips,
    request_rows,
    series_of,
)
from vsrkit.data.sets import open_set
from vsrkit.errors import DataError
from vsrkit.video.colour import BT601, BT709, FULL, LIMITED, Colour
from vsrkit.video.images import write_image
from vsrkit.video.read import open_source


def picture(seed: int = 0):
    return moving_picture(6, 32, seed)


def write_frames(folder, frames):
    folder.mkdir(parents=True)
    for number, frame in enumerate(frames):
        write_image(folder / f"{number:03}.png", torch.from_numpy(frame).permute(2, 0, 1) / 255)


def test_a_video_is_decoded_exactly_and_only_once(tmp_path, monkeypatch):
    frames = picture()
    write_video(tmp_path / "in" / "a.mkv", frames)
    [clip] = open_clips(tmp_path / "in", tmp_path / "cache")
    assert np.array_equal(clip.frames, frames)
    assert (clip.name, len(clip)) == ("a", 6)
    monkeypatch.setattr(clips_module, "read_pictures", None)  # the second run must not decode
    [again] = open_clips(tmp_path / "in", tmp_path / "cache")
    assert np.array_equal(again.frames, frames)


@pytest.mark.parametrize("range_", [LIMITED, FULL], ids=["limited", "full"])
@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv444p", "yuv420p10le"])
@pytest.mark.parametrize("matrix", [BT709, BT601], ids=["bt709", "bt601"])
def test_training_evaluate_and_upscale_read_the_same_colours(tmp_path, matrix, pix_fmt, range_):
    video = tmp_path / "set" / "a.mkv"
    video.parent.mkdir()
    write_clip(video, pix_fmt=pix_fmt, colour=Colour(matrix=matrix, range=range_), codec="ffv1")
    upscaled = torch.stack(list(open_source(video).frames())).clamp(0, 1)
    assert upscaled.std() > 0.1  # there is a picture to compare
    [clip] = open_clips(video, tmp_path / "cache")
    assert np.array_equal(clip.frames, (upscaled * 255).round().byte().permute(0, 2, 3, 1).numpy())
    [measured] = open_set("folder", video.parent).clips
    assert torch.equal(torch.stack(list(measured.hr.read())), upscaled)


def test_damaged_packets_of_a_video_are_counted(tmp_path, caplog):
    video = write_clip(tmp_path / "a.mov", frames=12, codec="png", pix_fmt="gray")
    with av.open(video) as container:
        packets = [bytes(packet) for packet in container.demux(video=0) if packet.size]
    content = video.read_bytes()
    start = content.index(packets[5])
    damaged = bytes(len(packets[5]))
    video.write_bytes(content[:start] + damaged + content[start + len(damaged) :])
    [clip] = open_clips(video, tmp_path / "cache", unreadable=Unreadable(1))
    assert len(clip) == 11
    assert "skipped a frame after" in caplog.text
    with pytest.raises(DataError, match="more than 0 frames cannot be read"):
        open_clips(video, tmp_path / "other")


def test_frames_are_ordered_by_number(tmp_path):
    for number in (9, 10, 11):
        write_image(tmp_path / "a" / f"im{number}.png", torch.full((3, 8, 8), number / 255))
    [clip] = open_clips(tmp_path / "a", tmp_path / "cache")
    assert clip.frames[:, 0, 0, 0].tolist() == [9, 10, 11]


def test_folders_of_frames_are_clips(tmp_path):
    for seed, name in enumerate(("a", "b")):
        write_frames(tmp_path / "set" / name, picture(seed))
    found = open_clips(tmp_path / "set", tmp_path / "cache")
    assert [c.name for c in found] == ["a", "b"]
    assert np.array_equal(found[1].frames, picture(1))


def test_clips_are_named_by_path_and_cover_images_are_ignored(tmp_path):
    write_frames(tmp_path / "set" / "00001" / "0266", picture())
    write_video(tmp_path / "set" / "00002" / "b.mkv", picture())
    write_image(tmp_path / "set" / "00002" / "cover.png", torch.rand(3, 8, 8))
    names = [c.name for c in open_clips(tmp_path / "set", tmp_path / "cache")]
    assert names == ["00001/0266", "00002/b"]
    assert [series_of(name) for name in names] == ["00001", "00002"]


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the system has no such requests")
def test_rows_are_requested_where_a_crop_reads(tmp_path, monkeypatch):
    dark, bright = picture(0) // 3, 255 - picture(1) // 3
    write_video(tmp_path / "a.mkv", np.concatenate([dark, bright]))
    clip = open_clips(tmp_path / "a.mkv", tmp_path / "cache")[1]
    requests = []
    monkeypatch.setattr(os, "posix_fadvise", lambda *arguments: requests.append(arguments))
    request_rows(clip.frames, range(2, 4), range(8, 16))
    content = clip.path.read_bytes()
    found = [content[start : start + length] for _, start, length, _ in requests]
    assert found == [clip.frames[n, 8:16].tobytes() for n in (2, 3)]
    request_rows(np.array(clip.frames), range(2, 4), range(8, 16))  # not a file
    assert len(requests) == 2


def test_a_changed_file_is_decoded_again(tmp_path):
    write_video(tmp_path / "a.mkv", picture(0))
    open_clips(tmp_path / "a.mkv", tmp_path / "cache")
    write_video(tmp_path / "a.mkv", picture(1))
    [clip] = open_clips(tmp_path / "a.mkv", tmp_path / "cache")
    assert np.array_equal(clip.frames, picture(1))


def test_a_cut_begins_a_new_clip(tmp_path):
    dark, bright = picture(0) // 3, 255 - picture(1) // 3
    write_video(tmp_path / "a.mkv", np.concatenate([dark, bright]))
    found = open_clips(tmp_path / "a.mkv", tmp_path / "cache")
    assert [c.name for c in found] == ["a#0", "a#1"]
    assert np.array_equal(found[0].frames, dark)
    assert np.array_equal(found[1].frames, bright)


def test_unreadable_frames_are_logged_and_skipped_up_to_a_limit(tmp_path, caplog):
    write_frames(tmp_path / "a", picture())
    for number in (1, 4):
        (tmp_path / "a" / f"{number:03}.png").write_bytes(b"not a picture")
    with caplog.at_level(logging.WARNING, "vsrkit"):
        [clip] = open_clips(tmp_path / "a", tmp_path / "cache", unreadable=Unreadable(2))
    assert len(clip) == 4
    found = [("001.png" in m, "004.png" in m) for m in caplog.messages]
    assert found == [(True, False), (False, True)]
    with pytest.raises(DataError, match=r"more than 1 frames cannot be read.*004\.png"):
        open_clips(tmp_path / "a", tmp_path / "other", unreadable=Unreadable(1))
    assert not list((tmp_path / "other").glob("*.json"))


def test_unreadable_frames_count_in_later_runs_too(tmp_path, caplog):
    for name in ("a", "b"):
        write_frames(tmp_path / "set" / name, picture())
        (tmp_path / "set" / name / "002.png").write_bytes(b"no picture")
    for _ in range(2):  # the second time, the first source is in the cache
        with pytest.raises(DataError, match="more than 1 frames cannot be read"):
            open_clips(tmp_path / "set", tmp_path / "cache", unreadable=Unreadable(1))
    assert not list((tmp_path / "cache").glob("*.part"))
    assert "1 frames of" in caplog.text


def test_a_video_without_frames_is_logged(tmp_path, caplog, monkeypatch):
    (tmp_path / "a.mkv").touch()
    monkeypatch.setattr(clips_module, "read_pictures", lambda source, unreadable: iter(()))
    with pytest.raises(DataError, match="nothing in"):
        open_clips(tmp_path, tmp_path / "cache", unreadable=Unreadable(1))
    assert "a.mkv: it has no frames" in caplog.text


@pytest.mark.parametrize("suffix", [".wmv", ".mts", ".3gp", ".MOV"])
def test_common_video_suffixes_are_found(tmp_path, suffix):
    (tmp_path / f"a{suffix}").touch()
    assert find_clips(tmp_path) == [tmp_path / f"a{suffix}"]


def test_a_folder_without_readable_files_is_an_error(tmp_path):
    (tmp_path / "a.mp4").write_bytes(b"no video")
    with pytest.raises(DataError, match="can be read as video or pictures"):
        open_clips(tmp_path, tmp_path / "cache", unreadable=Unreadable(5))


def test_a_file_that_is_not_a_video_is_an_error(tmp_path):
    (tmp_path / "a.mp4").write_bytes(b"no video at all")
    with pytest.raises(DataError, match=r"a\.mp4"):
        open_clips(tmp_path, tmp_path / "cache")


def test_a_damaged_cache_is_rebuilt_by_the_next_run(tmp_path):
    write_video(tmp_path / "a.mkv", picture())
    [clip] = open_clips(tmp_path / "a.mkv", tmp_path / "cache")
    clip.path.write_bytes(b"")
    with pytest.raises(DataError, match="are damaged; run again"):
        open_clips(tmp_path / "a.mkv", tmp_path / "cache")
    [clip] = open_clips(tmp_path / "a.mkv", tmp_path / "cache")
    assert np.array_equal(clip.frames, picture())


def test_a_full_disk_leaves_no_partial_files(tmp_path, monkeypatch):
    write_video(tmp_path / "a.mkv", picture())

    def full(source, unreadable):
        yield "a", picture()[0]
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(clips_module, "read_pictures", full)
    with pytest.raises(DataError, match=r"No space left.* free some space"):
        open_clips(tmp_path / "a.mkv", tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())


def test_errors_name_the_missing_path(tmp_path):
    with pytest.raises(DataError, match="nowhere does not exist"):
        find_clips(tmp_path / "nowhere")
    with pytest.raises(DataError, match="holds no videos and no pictures"):
        find_clips(tmp_path)


def clips_named(*names):
    return [clips_module.Clip(name, None, (20, 32, 32, 3)) for name in names]


def test_a_series_is_held_out_as_a_whole():
    clips = clips_named("land5_001", "land9_007", "car05", "sea1", "sea2", "boat")
    rest, held = hold_out(clips, (), 0.34)
    assert held
    assert not {series_of(c.name) for c in rest} & {series_of(c.name) for c in held}
    assert len(rest) + len(held) == 6


def test_shots_of_one_video_and_the_end_of_one_shot_are_held_out():
    _, held = hold_out(clips_named("a#0", "a#1", "a#2"), (), 0.34)
    assert [c.name for c in held] == ["a#1"]
    [rest], [held] = hold_out(clips_named("a"), (), 0.25)
    assert (len(rest), held.first, len(held)) == (15, 15, 5)


def test_held_out_by_name():
    clips = clips_named("a#0", "a#1", "b")
    _, held = hold_out(clips, ("a",), 0.0)
    assert [c.name for c in held] == ["a#0", "a#1"]
    with pytest.raises(DataError, match="no clip matches 'z'"):
        hold_out(clips, ("z",), 0.0)
    with pytest.raises(DataError, match="none is left"):
        hold_out(clips, ("*",), 0.0)
