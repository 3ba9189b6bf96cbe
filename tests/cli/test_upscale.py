"""The command `vsrkit upscale`: arguments, folders, pipes, progress and exit codes."""

import json
import signal
import subprocess
import sys
from fractions import Fraction

import pytest
import torch
import typer
from tests.cli.test_cli import run_inside
from tests.clips import write_clip
from typer.main import get_command
from typer.testing import CliRunner

from vsrkit.cli import app
from vsrkit.cli.upscale import key_values, rate, seconds
from vsrkit.errors import VideoError
from vsrkit.upscale.batch import default_target
from vsrkit.upscale.options import UpscaleOptions
from vsrkit.upscale.pipe import RawVideo
from vsrkit.video.read import open_source


def run(*words):
    return CliRunner().invoke(app, ["upscale", *map(str, words)])


def test_a_video(tmp_path):
    source = write_clip(tmp_path / "in.mkv")
    out = run("-i", source, "-o", tmp_path / "out.mp4", "-m", "bicubic", "--crf", 20)
    assert out.exit_code == 0
    assert "6 frames of 128x96" in out.stdout
    assert "1 frame of 128x96" in run(source, "-m", "bicubic", "--end", "0.03").stdout
    assert open_source(tmp_path / "out.mp4").info.codec == "h264"


def test_an_input_alone_is_upscaled_beside_itself_and_nothing_is_replaced(tmp_path):
    source = write_clip(tmp_path / "in.mp4", frames=2)
    assert run(source, "-m", "bicubic").exit_code == 0
    assert open_source(tmp_path / "in.x4.mkv").info.height == 96
    before = (tmp_path / "in.x4.mkv").read_bytes()
    refused = run(source, "-m", "bicubic", "--crf", 40)
    assert isinstance(refused.exception, VideoError)
    assert "in.x4.mkv exists; add --overwrite (-y)" in str(refused.exception)
    assert (tmp_path / "in.x4.mkv").read_bytes() == before
    assert run(source, "-m", "bicubic", "--crf", 40, "-y").exit_code == 0
    assert (tmp_path / "in.x4.mkv").read_bytes() != before


def test_input_and_output_as_arguments(tmp_path):
    source = write_clip(tmp_path / "in.mkv", frames=2)
    assert run(source, tmp_path / "out.mp4", "-m", "bicubic").exit_code == 0
    assert open_source(tmp_path / "out.mp4").info.height == 96
    assert run("-o", tmp_path / "out.mkv", source, "-m", "bicubic").exit_code == 0


@pytest.mark.parametrize(
    ("words", "message", "expected"),
    [
        (["a.mp4", "-i", "b.mp4"], "the input is given twice, a.mp4 and -i b.mp4", 2),
        (["a.mp4", "c.mkv", "-o", "d.mkv"], "the output is given twice, c.mkv and -o d.mkv", 2),
        ([], "give an input", 2),
        (["-"], "the input is a pipe; name an output", 2),
        (["%04d.png", "-m", "bicubic"], "name an output for %04d.png", 2),
        (["missing.mp4", "-m", "bicubic"], "missing.mp4 does not exist", 1),
    ],
)
def test_a_path_twice_or_not_at_all_is_one_line(monkeypatch, capsys, words, message, expected):
    code, _, err = run_inside(monkeypatch, capsys, "upscale", *words)
    assert code == expected
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("source", "options", "target"),
    [
        ("a/in.mp4", {"scale": 2}, "a/in.x2.mkv"),
        ("in.avi", {"height": 1080}, "in.1080p.mkv"),
        ("in.b.mkv", {"model": "bicubic"}, "in.b.x4.mkv"),
        ("in/%04d.jpg", {"scale": 3}, "in.x3/%04d.png"),
        ("a/photo.png", {"scale": 4}, "a/photo.x4"),
    ],
)
def test_names_of_default_outputs(source, options, target):
    assert default_target(source, UpscaleOptions(**options)).as_posix() == target


def test_folders_and_previews_have_default_outputs(tmp_path):
    (tmp_path / "videos").mkdir()
    source = write_clip(tmp_path / "videos" / "a.mkv", frames=2)
    words = ["-m", "bicubic", "--scale", 2]
    assert run(tmp_path / "videos", *words).exit_code == 0
    assert open_source(tmp_path / "videos.x2" / "a.mkv").info.height == 48
    assert run(source, tmp_path / "frames", "-m", "bicubic").exit_code == 0
    assert run(tmp_path / "frames", *words).exit_code == 0
    assert len(open_source(tmp_path / "frames.x2").images) == 2
    assert run(source, *words, "--preview", 1).exit_code == 0
    assert list((tmp_path / "videos" / "a-preview").iterdir())


@pytest.mark.parametrize("command", ["upscale", "plan"])
def test_help_has_named_panels_and_whole_sentences(command):
    out = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert out.exit_code == 0
    panels = ("Input and output", "Model", "Picture", "Encoder", "Resources", "Run control")
    assert [panel for panel in panels if f" {panel} " not in out.stdout] == []
    parameters = get_command(app).commands[command].params
    texts = [p.help for p in parameters if p.name not in ("help", "context")]
    assert [text for text in texts if not text or not text.endswith(".")] == []


def test_progress_for_programs(tmp_path):
    source = write_clip(tmp_path / "in.mkv")
    out = run("-i", source, "-o", tmp_path / "out.mkv", "-m", "bicubic", "--json-progress")
    lines = [json.loads(line) for line in out.stdout.splitlines()]
    assert {line["stage"] for line in lines} == {"scan", "upscale", "write"}
    first, *_, last = (line for line in lines if line["stage"] == "upscale")
    assert (first["done"], first["fps"]) == (0, None)
    assert (last["done"], last["total"], last["shot"], last["shots"]) == (6, 6, 1, 1)


def test_a_folder_continues_after_a_bad_file(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    write_clip(folder / "a.mkv", frames=2)
    (folder / "b.mp4").write_text("no video")
    write_clip(folder / "c.avi", codec="mpeg4", frames=2)
    out = run("-i", folder, "-o", tmp_path / "out", "-m", "bicubic")
    assert out.exit_code == 1
    assert "2 of 3 videos done" in out.stdout
    assert "b.mp4: failed" in out.stdout
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["a.mkv", "c.mkv"]


def test_a_folder_is_resumed_and_loses_nothing(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    write_clip(folder / "a.avi", codec="mpeg4", frames=1)
    write_clip(folder / "a.mkv", frames=2)
    (folder / "cover.png").write_bytes(b"")  # a picture does not make it a folder of images
    words = ("-i", folder, "-o", tmp_path / "out", "-m", "bicubic")
    assert run(*words).exit_code == 0
    made = {path.name: open_source(path).info.frames for path in (tmp_path / "out").iterdir()}
    assert sorted(made) == ["a.avi.mkv", "a.mkv"]
    assert len(list(open_source(tmp_path / "out" / "a.mkv").frames())) == 2
    (tmp_path / "out" / "a.mkv").unlink()
    out = run(*words)
    assert out.exit_code == 0
    assert "a.avi.mkv: skipped, the file exists" in out.stdout
    assert "2 of 2 videos done" in out.stdout
    same = run("-i", folder, "-o", folder, "-m", "bicubic")
    assert isinstance(same.exception, VideoError)
    assert len(list(folder.iterdir())) == 3


def test_a_report_that_cannot_be_written_is_refused_first(tmp_path):
    source = write_clip(tmp_path / "in.mkv")
    for page in (tmp_path, source / "report.html"):
        out = run("-i", source, "-o", tmp_path / "out.mkv", "-m", "bicubic", "--report", page)
        assert isinstance(out.exception, VideoError)
    assert not (tmp_path / "out.mkv").exists()


def test_preview_and_report(tmp_path):
    source = write_clip(tmp_path / "in.mkv", width=48, height=32)
    out = run("-i", source, "-o", tmp_path / "looks", "-m", "bicubic", "--preview", 2)
    assert out.exit_code == 0
    assert len(list((tmp_path / "looks").glob("*.png"))) == 2
    page = tmp_path / "report.html"
    out = run("-i", source, "-o", tmp_path / "out.mkv", "-m", "bicubic", "--report", page)
    assert out.exit_code == 0
    assert "<html" in page.read_text()


def test_previews_of_a_folder(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    write_clip(folder / "a.mkv", width=48, height=32)
    (folder / "b.mp4").write_text("no video")
    write_clip(folder / "c.mkv", width=48, height=32)
    out = run("-i", folder, "-o", tmp_path / "looks", "-m", "bicubic", "--preview", 1)
    assert out.exit_code == 1
    assert "b.mp4: failed" in out.stdout
    assert len(list((tmp_path / "looks").glob("?.mkv/*.png"))) == 2


def test_a_report_on_something_smaller_is_refused_first(tmp_path):
    source = write_clip(tmp_path / "in.mkv", width=48, height=32)
    words = ["-i", source, "-o", tmp_path / "out.mkv", "-m", "bicubic", "--height", 16]
    out = run(*words, "--report", tmp_path / "report.html")
    assert "--height 16 is less than the 32 lines" in str(out.exception)
    assert not (tmp_path / "out.mkv").exists()


PIPED = [sys.executable, "-m", "vsrkit", "upscale", "-m", "bicubic", "-i", "-", "-o", "-"]


def test_pipes(tmp_path):
    """y4m in, y4m out: the frames of the file way, bit by bit."""
    source = write_clip(tmp_path / "in.y4m", codec="rawvideo")
    out = subprocess.run(PIPED, input=source.read_bytes(), capture_output=True, check=True)
    assert out.stdout.startswith(b"YUV4MPEG2 W128 H96 F25:1")
    assert run("-i", source, "-o", tmp_path / "out.y4m", "-m", "bicubic").exit_code == 0
    assert (tmp_path / "out.y4m").read_bytes() == out.stdout
    (tmp_path / "piped.y4m").write_bytes(out.stdout)
    assert len(list(open_source(tmp_path / "piped.y4m").frames())) == 6


def test_rawvideo_on_a_pipe_becomes_a_file(tmp_path):
    raw = bytes(torch.randint(0, 256, (3 * 16 * 16 * 3 // 2,), dtype=torch.uint8).tolist())
    words = [*PIPED[:-1], str(tmp_path / "out.mkv"), "--raw", "16x16,yuv420p,30"]
    subprocess.run(words, input=raw, capture_output=True, check=True)
    info = open_source(tmp_path / "out.mkv").info
    assert (info.width, info.height, info.frame_rate) == (64, 64, 30)
    assert RawVideo.parse("16x16,gray,23.976").rate == Fraction("23.976")
    for wrong in ("16by16", "0x16,gray,25", "16x16,gray,25/0"):
        with pytest.raises(VideoError, match="does not describe rawvideo"):
            RawVideo.parse(wrong)


def test_interlaced_video_on_a_pipe_is_deinterlaced_or_refused(tmp_path):
    source = write_clip(tmp_path / "in.y4m", codec="rawvideo", width=32, height=32)
    marked = source.read_bytes().replace(b" Ip ", b" It ", 1)
    (tmp_path / "in.y4m").write_bytes(marked)
    out = subprocess.run(PIPED, input=marked, capture_output=True, check=True)
    assert b"is flagged as interlaced" in out.stderr
    assert run("-i", source, "-o", tmp_path / "out.y4m", "-m", "bicubic").exit_code == 0
    assert out.stdout == (tmp_path / "out.y4m").read_bytes()
    refused = subprocess.run([*PIPED, "--deinterlace", "refuse"], input=marked, capture_output=True)
    assert refused.returncode == 1


@pytest.mark.parametrize(
    ("text", "value"), [("90", 90), ("1:30", 90), ("0:01:30.5", Fraction(181, 2))]
)
def test_times(text, value):
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "soon", "1:2:3:4", "-3"])
def test_wrong_times(text):
    with pytest.raises(typer.BadParameter):
        seconds(text)


def test_rates_and_options():
    assert rate("24000/1001") == Fraction(24000, 1001)
    assert key_values(["preset=slow", "x264-params=a=1:b=2"]) == {
        "preset": "slow",
        "x264-params": "a=1:b=2",
    }
    with pytest.raises(typer.BadParameter):
        key_values(["preset"])
    with pytest.raises(typer.BadParameter):
        rate("0")


@pytest.mark.parametrize("stage", ["scan", "upscale"])
def test_ctrl_c_exits_130_and_the_job_is_resumed(tmp_path, stage):
    """A real process, a real signal."""
    source = write_clip(tmp_path / "in.mkv", frames=130, width=16, height=16)
    words = [
        *("-i", str(source), "-o", str(tmp_path / "out.mkv"), "-m", "bicubic"),
        *("--json-progress", "--tile", "0"),
    ]
    child = subprocess.Popen(
        [sys.executable, "-m", "vsrkit", "upscale", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell makes background jobs ignore Ctrl-C, and child processes inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    for line in child.stdout:
        report = json.loads(line)
        if report["stage"] == stage and report["done"]:
            child.send_signal(2)
            break
    _, said = child.communicate()
    assert child.returncode == 130, said
    assert "run the same command to resume" in said
    assert not (tmp_path / "out.mkv").exists()
    again = run(*words)
    assert again.exit_code == 0
    assert ("of them in an earlier run" in again.stderr) == (stage == "upscale")
