"""A plan describes a run, and its estimates are close to what the run takes."""

import json
from dataclasses import replace
from fractions import Fraction

import pytest
from tests.cli.test_cli import run_inside
from tests.clips import write_clip, write_rich_clip
from tests.scenes import scene

from vsrkit.errors import VideoError
from vsrkit.upscale import plan as plan_module
from vsrkit.upscale.job import upscale_video
from vsrkit.upscale.options import UpscaleOptions
from vsrkit.upscale.plan import describe, plan_video
from vsrkit.upscale.source_checks import SourceChecks, warnings
from vsrkit.video.encode import write_video
from vsrkit.video.probe import probe

SOUND = {"interlaced": 0.0, "telecine": False, "bars": (0, 0, 0, 0), "blockiness": 1.0}
SOUND |= {"bits_per_pixel": 0.5}


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "in.mp4"
    wide = scene(5, 72, 128, 40)
    frames = [wide[:, :, n : n + 128] for n in range(40)]
    write_video(path, frames, frames_per_second=Fraction(25))
    return path


def test_facts_and_estimates(video, tmp_path):
    plan = plan_video(video, options=UpscaleOptions(model="bicubic"))
    assert (plan.frames, plan.size, plan.output_size) == (40, (72, 128), (288, 512))
    assert (plan.codec, plan.pix_fmt, plan.tiles, plan.tile) == ("libx264", "yuv420p", 1, None)
    assert plan.seconds_per_frame > 0
    assert plan.seconds == pytest.approx(40 * plan.seconds_per_frame)
    assert plan.warnings == ["no audio: the source has no audio stream, so the output has none"]
    made = upscale_video(video, tmp_path / "out.mkv", options=BICUBIC)
    real = made.path.stat().st_size
    assert real / 3 < plan.file_size < real * 3  # a small part stands for the whole


def test_other_sizes_and_codecs(video):
    plan = plan_video(video, "x.mov", UpscaleOptions(model="bicubic", scale=2, codec="prores"))
    assert plan.output_size == (144, 256)
    assert plan.codec == "prores_ks"
    assert plan_video(video, options=UpscaleOptions(model="bicubic", height=200)).output_size == (
        200,
        356,
    )


def test_part_of_a_video_into_images(video):
    options = UpscaleOptions(model="bicubic", start=Fraction(1, 5), end=1)
    plan = plan_video(video, "frames", options)
    assert plan.frames == 20
    assert plan.codec == "png"
    assert plan.file_size > 20 * 10_000


def test_only_streams_that_the_output_can_hold_are_kept(tmp_path):
    source = write_rich_clip(tmp_path / "in.mkv")
    kept = {target: plan_video(source, target, BICUBIC).streams for target in KEPT}
    assert kept == KEPT
    assert plan_video(source, "-", BICUBIC).codec == "rawvideo"
    assert plan_video(source, "out/%04d.png", BICUBIC).codec == "png"


BICUBIC = UpscaleOptions(model="bicubic")
KEPT = {
    "out.mkv": {"attachment": 1, "audio": 1, "subtitle": 1},
    "out.mp4": {"audio": 1, "subtitle": 1},
    "-": {},
    "out/%04d.png": {},
}


def test_pipes_and_folders_are_refused(tmp_path):
    write_clip(tmp_path / "in.mkv")
    for source, text in ((tmp_path, "plan_folder"), ("-", "only once")):
        with pytest.raises(VideoError, match=text):
            plan_video(source, "out.mkv", BICUBIC)


def test_a_span_without_frames(video):
    with pytest.raises(VideoError, match="no frames from --start to --end"):
        plan_video(video, options=UpscaleOptions(model="bicubic", start=5))


def test_frames_are_counted_if_the_header_has_no_number(tmp_path):
    path = tmp_path / "in.mkv"
    write_clip(path, frames=5, times=[0, 3, 4, 9, 20], time_base="1/25")
    assert plan_video(path, options=UpscaleOptions(model="bicubic")).frames == 5


def test_tiles_are_counted(video):
    plan = plan_video(video, options=UpscaleOptions(model="bicubic", tile=64))
    assert plan.tile == 64
    assert plan.tiles == 2 * 3  # 72 and 128 pixels, 16 of 64 shared
    assert "6 tiles of 64" in describe(plan)


def test_json_and_text(video, monkeypatch, capsys):
    code, out, _ = run_inside(
        monkeypatch, capsys, "plan", "-i", str(video), "-m", "bicubic", "--json"
    )
    assert code == 0
    assert json.loads(out)["frames"] == 40
    code, out, _ = run_inside(monkeypatch, capsys, "plan", "-i", str(video), "-m", "bicubic")
    assert code == 0
    assert "40 frames of 128x72" in out
    assert "warning  no audio" in out


def test_a_folder_of_videos(tmp_path, monkeypatch, capsys):
    write_clip(tmp_path / "a.mkv")
    write_clip(tmp_path / "b.avi", codec="mpeg4")
    words = ["plan", "-i", str(tmp_path), "-m", "bicubic"]
    code, out, _ = run_inside(monkeypatch, capsys, *words)
    assert code == 0
    assert out.count("6 frames of 32x24") == 2
    assert "total    2 videos: about " in out
    (tmp_path / "c.mp4").write_text("no video")
    code, out, err = run_inside(monkeypatch, capsys, *words, "--json")
    assert code == 1
    assert len(json.loads(out)["videos"]) == 2
    assert "c.mp4" in json.loads(out)["failed"][0]
    assert "1 of 3 cannot be upscaled" in err


def test_a_folder_continues_after_any_failure(tmp_path, monkeypatch):
    write_clip(tmp_path / "a.mkv")
    write_clip(tmp_path / "b.mkv")
    look = plan_module.check_source

    def stumble(source):
        if source.path.name == "a.mkv":
            raise RuntimeError("out of luck")
        return look(source)

    monkeypatch.setattr(plan_module, "check_source", stumble)
    plans, failed = plan_module.plan_folder(tmp_path, options=BICUBIC)
    assert [plan.frames for plan in plans] == [6]
    assert "a.mkv: out of luck" in failed[0]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["-i", "missing.mp4"], "missing.mp4 does not exist"),
        (["-i", "VIDEO", "-m", "bicubic", "-o", "x.txt"], "cannot write .txt"),
        (["-i", "VIDEO", "-m", "bicubic", "--max-memory", "lots"], "not an amount of memory"),
    ],
)
def test_errors_are_one_line(video, monkeypatch, capsys, arguments, text):
    given = [str(video) if argument == "VIDEO" else argument for argument in arguments]
    code, _, err = run_inside(monkeypatch, capsys, "plan", *given)
    assert code == 1
    assert text in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("facts", "seen", "text"),
    [
        ({}, {"telecine": True, "interlaced": 0.4}, "telecine"),
        ({"interlaced": True}, {"interlaced": 0.9}, "interlaced: it will be deinterlaced"),
        ({"interlaced": True}, {"interlaced": None}, "interlaced: it will be deinterlaced"),
        ({"interlaced": True}, {"interlaced": 0.0}, "flagged interlaced, but looks progressive"),
        ({}, {"interlaced": 0.9}, "looks interlaced, but is not flagged"),
        ({}, {"bars": (9, 9, 0, 0)}, "25% of the computation"),
        ({}, {"bits_per_pixel": 0.02}, "0.020 bits per pixel of h264"),
        ({}, {"blockiness": 3.0}, "block edges are 3.0 times as large"),
        ({"height": 2160, "width": 3840}, {}, "already large: 3840x2160"),
    ],
)
def test_warnings(video, facts, seen, text):
    info = replace(probe(video), **facts)
    first, *rest = warnings(info, SourceChecks(**(SOUND | seen)), (288, 512), "auto")
    assert text in first
    assert len(rest) == 1  # that there is no audio


@pytest.mark.parametrize(
    ("mode", "flagged", "share", "text"),
    [
        ("never", True, 0.9, "interlaced: --deinterlace never upscales the combs"),
        ("never", False, 0.9, "interlaced: --deinterlace never upscales the combs"),
        ("never", True, 0.0, "no audio"),
        ("never", False, None, "no audio"),
        ("always", True, 0.9, "no audio"),
        ("always", False, 0.9, "no audio"),
        ("always", False, 0.0, "looks progressive: --deinterlace always costs"),
    ],
)
def test_warnings_about_interlacing_follow_the_option(video, mode, flagged, share, text):
    info = replace(probe(video), interlaced=flagged)
    checks = SourceChecks(**(SOUND | {"interlaced": share}))
    assert text in warnings(info, checks, (288, 512), mode)[0]


def test_the_default_output_of_images_is_a_folder_of_images(tmp_path):
    source = write_clip(tmp_path / "in.mkv", frames=2)
    upscale_video(source, tmp_path / "frames", options=BICUBIC)
    assert plan_video(source, options=BICUBIC).codec == "libx264"
    assert plan_video(tmp_path / "frames", options=BICUBIC).codec == "png"
    assert plan_video(tmp_path / "frames", "frames.x4", BICUBIC).codec == "png"
