"""The outputs of a teacher: correct frames, computed once and kept."""

import os
from dataclasses import replace

import pytest
import torch
from tests.train.conftest import moving_picture, write_cache

from vsrkit.data.augment import to_clip
from vsrkit.data.clips import Clip
from vsrkit.data.degrade import BI, degrade
from vsrkit.errors import DataError
from vsrkit.hardware.device import Precision
from vsrkit.models.basicvsr import BasicVSR, BasicVSRConfig
from vsrkit.models.zoo import save_model
from vsrkit.train.config import Source
from vsrkit.train.distill import teacher_outputs
from vsrkit.train.distill.teacher_outputs import cached_outputs, teacher_clips
from vsrkit.train.loop import train
from vsrkit.train.settings import ConfigError
from vsrkit.train.training_data import open_data

PLAIN = Precision("float32", channels_last=False)


@pytest.fixture(scope="module")
def teacher():
    torch.manual_seed(0)
    return BasicVSR(BasicVSRConfig(channels=8, blocks=1)).eval().requires_grad_(False)


@pytest.fixture
def clip(tmp_path):
    """The second shot of a file: three frames whose sides are not multiples of 4."""
    return replace(write_cache(tmp_path, moving_picture(5, 98)), shape=(3, 98, 98, 3), first=2)


def test_outputs_are_the_teachers_frames_of_the_clean_clip(teacher, clip, tmp_path):
    [output] = teacher_clips([clip], teacher, tmp_path / "cache", precision=PLAIN)
    assert (output.name, output.shape) == ("a", (3, 96, 96, 3))
    lr = degrade(to_clip(clip.frames[:, :96, :96]), BI(4))
    expected = teacher(lr[None])[0].clamp(0, 1)
    # Half a step of rounding, and the last digit of float32.
    assert (to_clip(output.frames) - expected).abs().max() <= 0.501 / 255


def test_each_clip_is_upscaled_once_by_each_teacher(teacher, clip, tmp_path):
    def path_of(who, which=clip):
        [output] = teacher_clips([which], who, tmp_path, precision=PLAIN)
        return output.path

    first = path_of(teacher)
    os.utime(first, (1, 1))
    assert path_of(teacher) == first
    assert first.stat().st_mtime == 1
    other = BasicVSR(BasicVSRConfig(channels=8, blocks=1)).eval()
    shorter = Clip("a", clip.path, (2, *clip.shape[1:]), first=2)
    assert len({first, path_of(other), path_of(teacher, shorter)}) == 3
    first.write_bytes(b"half")  # an incomplete file
    assert path_of(teacher).stat().st_size == 3 * 96 * 96 * 3
    assert not list(tmp_path.glob("*.part"))


def test_progress_names_the_clip(teacher, clip, tmp_path):
    calls = []
    teacher_clips(
        [clip], teacher, tmp_path, precision=PLAIN, on_progress=lambda *what: calls.append(what)
    )
    assert calls == [("teacher: a", 0, 1), ("", 1, 1)]


def test_a_cache_that_cannot_be_written_is_named(teacher, clip, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot write the teacher's frames of a"):
        teacher_clips([clip], teacher, tmp_path / "file", precision=PLAIN)


def test_the_target_is_the_teachers_frames_of_the_beginning_of_each_clip(config, teacher, tmp_path):
    file = tmp_path / "teacher.safetensors"
    save_model(file, teacher)
    c = config(
        teacher=str(file), teacher_mode="frames", teacher_frames=4, teacher_hr_share=0.25,
        loss="psnr", steadiness=1.0, steps=2,
    )  # fmt: skip
    [source], validation = open_data(c, None)
    assert [len(clip) for clip in source.clips] == [8, 8]  # an encoder uses the frames after them
    assert (
        [len(clip) for clip in source.drawable]
        == [len(clip) for clip in source.teacher_clips]
        == [4, 4]
    )
    assert [clip.name for clip in source.clips] == [clip.name for clip in source.teacher_clips]
    assert source.hr_share == 0.25
    assert [clip.name for clip in validation] == ["boat"]
    assert train(c).step == 2


def test_the_teacher_is_loaded_once_for_all_sources(config, teacher, videos, tmp_path, monkeypatch):
    file, loaded = tmp_path / "teacher.safetensors", []
    save_model(file, teacher)
    load = teacher_outputs.load_model
    monkeypatch.setattr(
        teacher_outputs, "load_model", lambda name: loaded.append(name) or load(name)
    )
    sources = tuple(Source(path=str(videos / name)) for name in ("hill1.mkv", "hill2.mkv"))
    train(config(teacher=str(file), teacher_mode="frames", data=sources, validation=(), steps=1))
    assert loaded == [str(file)]


def test_without_a_teacher_the_target_is_hr(config):
    [source], _ = open_data(config(teacher_mode="frames"), None)
    assert not source.teacher_clips
    assert len(source.clips[0]) == 8


def test_contradictory_settings_are_refused(config):
    with pytest.raises(ConfigError, match='teacher_hr_share needs teacher_mode = "frames"'):
        config(teacher_hr_share=0.5)
    with pytest.raises(ConfigError, match="raise teacher_frames or lower frames"):
        config(teacher="any", teacher_mode="frames", frames=9, teacher_frames=8)
    with pytest.raises(ConfigError, match='steadiness needs loss = "psnr"'):
        config(steadiness=0.5)


def test_outputs_are_computed_once_for_each_clip(tmp_path):
    computed = []

    def compute(clips):
        computed.append(len(clips))
        return {"mean": clips.mean((2, 3, 4)), "twice": 2 * clips}

    clips = torch.rand(3, 2, 3, 4, 4)
    cached_outputs(clips[:1], compute, tmp_path)
    mixed = cached_outputs(clips, compute, tmp_path)
    again = cached_outputs(clips.flip(0), compute, tmp_path)
    assert computed == [1, 2]
    torch.testing.assert_close(mixed["twice"], 2 * clips, atol=1e-3, rtol=0)  # half precision
    assert torch.equal(again["mean"], mixed["mean"].flip(0))
    assert mixed["mean"].dtype == torch.float32


def test_incomplete_outputs_are_computed_again(tmp_path):
    clips = torch.rand(1, 2, 3, 4, 4)
    cached_outputs(clips, lambda c: {"x": c}, tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:50])
    computed = []
    cached_outputs(clips, lambda c: computed.append(1) or {"x": c}, tmp_path)
    assert computed == [1]


def test_without_a_folder_nothing_is_kept(tmp_path):
    clips = torch.rand(1, 2, 3, 4, 4)
    assert torch.equal(cached_outputs(clips, lambda c: {"x": c}, None)["x"], clips)
    assert not list(tmp_path.iterdir())


def test_outputs_can_be_computed_under_autocast(tmp_path):
    clips = torch.rand(2, 2, 3, 4, 4)
    with torch.autocast("cpu", torch.bfloat16):
        found = cached_outputs(clips, lambda c: {"x": c.bfloat16()}, tmp_path)
        assert cached_outputs(clips, lambda c: {}, tmp_path)["x"].dtype == torch.float32
    torch.testing.assert_close(found["x"], clips, atol=5e-3, rtol=0)  # eight bits
