"""If the default encoder does not fit into memory, one that needs less is used, with a note."""

import json
from dataclasses import replace

import pytest
import torch
from tests.clips import Colour, write_clip
from tests.upscale.identity import Identity
from tests.upscale.upscaled import upscale

from vsrkit.errors import MemoryLimitError, StoppedError
from vsrkit.upscale.options import UpscaleOptions
from vsrkit.upscale.plan import describe, plan_video
from vsrkit.upscale.work_folder import WorkFolder
from vsrkit.video.codecs import RULES
from vsrkit.video.probe import probe
from vsrkit.video.read import open_source

GIVEN = {"model": "bicubic", "precision": "float32", "max_memory": "4G"}


@pytest.fixture
def film(tmp_path):
    return write_clip(tmp_path / "in.mkv", frames=60, width=48, height=32)


@pytest.fixture
def greedy():
    """Encoders that take a terabyte, as if pictures were that large."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("libx264", "libx265", "libvpx-vp9"):
            patch.setitem(RULES, name, replace(RULES[name], base=1 << 20))
        yield patch


@pytest.mark.parametrize(
    ("suffix", "codec"), [(".mkv", "prores"), (".mov", "prores"), (".mp4", "mjpeg")]
)
def test_the_leaner_codec_is_one_that_the_container_holds(
    film, tmp_path, greedy, caplog, suffix, codec
):
    target = tmp_path / f"out{suffix}"
    assert upscale(film, target, **GIVEN).frames == 60
    assert probe(target).codec == codec
    assert probe(target, count=True).frames == 60
    said = [line for line in caplog.messages if "files become larger" in line]
    assert len(said) == 1
    assert "choose another by --codec" in said[0]


def test_a_container_without_a_lean_codec_is_refused(film, tmp_path, greedy):
    with pytest.raises(MemoryLimitError, match="raise --max-memory"):
        upscale(film, tmp_path / "out.webm", **GIVEN)


@pytest.mark.parametrize("option", [{"codec": "h264"}, {"crf": 20}, {"pix_fmt": "yuv420p"}])
def test_an_encoder_that_was_asked_for_is_not_replaced(film, tmp_path, greedy, option):
    with pytest.raises(MemoryLimitError, match="codec that needs less memory"):
        upscale(film, tmp_path / "out.mkv", **GIVEN, **option)


def interrupted(film, target):
    """Stop after the first part."""

    def stop(progress):
        if progress.stage == "upscale" and progress.done == 50:
            raise StoppedError

    with pytest.raises(StoppedError):
        upscale(film, target, **GIVEN, on_progress=stop)


def test_a_resumed_job_keeps_its_lean_codec(film, tmp_path, greedy):
    target = tmp_path / "out.mp4"
    interrupted(film, target)
    greedy.undo()
    assert upscale(film, target, **GIVEN).resumed > 0
    assert probe(target).codec == "mjpeg"


def test_a_resumed_job_keeps_its_default_codec(film, tmp_path, greedy):
    target = tmp_path / "out.mp4"
    too_large = RULES["libx264"]
    greedy.undo()
    interrupted(film, target)
    manifest = json.loads((WorkFolder.beside(target).path / "manifest.json").read_text())
    assert manifest["options"]["codec"] == "libx264"
    greedy.setitem(RULES, "libx264", too_large)
    with pytest.raises(MemoryLimitError):
        upscale(film, target, **GIVEN)


def test_plan_notes_the_lean_codec(film, greedy):
    plan = plan_video(film, "out.mkv", UpscaleOptions(**GIVEN))
    assert plan.codec == "prores_ks"
    assert "note     encodes with prores_ks" in describe(plan)


def test_disabled_features_of_x264_are_noted_once(film, tmp_path, monkeypatch, caplog):
    assert plan_video(film, "out.mkv", UpscaleOptions(**GIVEN)).notes == []
    monkeypatch.setattr("vsrkit.video.codecs.HUGE", 1)
    plan = plan_video(film, "out.mkv", UpscaleOptions(**GIVEN))
    assert ["libx264 runs without look-ahead" in line for line in plan.notes] == [True]
    upscale(film, tmp_path / "out.mkv", **GIVEN)
    assert len([line for line in caplog.messages if "runs without look-ahead" in line]) == 1


@pytest.mark.parametrize("matrix", [1, 6, 9])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv444p", "yuv420p10le"])
@pytest.mark.parametrize("suffix", [".mkv", ".mov", ".mp4"])
def test_jpeg_keeps_the_colours(tmp_path, matrix, full, pix_fmt, suffix):
    colour = Colour(matrix=matrix, range=2 if full else 1)
    source = write_clip(
        tmp_path / "in.mkv", frames=3, width=64, height=48, pix_fmt=pix_fmt, colour=colour
    )
    target = tmp_path / f"out{suffix}"
    upscale(source, target, model=Identity(), codec="mjpeg", precision="float32")
    before, after = (torch.stack(list(open_source(p).frames())) for p in (source, target))
    assert before.shape == after.shape
    drift = (before.clamp(0, 1) - after.clamp(0, 1)).mean((0, 2, 3)).abs()
    assert drift.max() < 0.004
