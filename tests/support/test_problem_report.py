"""The file of `--debug`: what maintainers need, and nothing private."""

import json
import sys

import pytest
from tests.clips import write_rich_clip

from vsrkit import __version__, cli
from vsrkit.support.problem_report import Names


def run(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["vsrkit", *map(str, words), "--debug"])
    with pytest.raises(BaseException) as ended:  # noqa: PT011  SystemExit or the error itself
        cli.main()
    return ended.value


@pytest.fixture
def private(tmp_path, monkeypatch):
    monkeypatch.setenv("VSRKIT_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "Anna Smith" / "holiday"
    folder.mkdir(parents=True)
    return folder


def report_in(tmp_path):
    (path,) = (tmp_path / "cache" / "reports").iterdir()
    text = path.read_text(encoding="utf-8")
    for name in ("Anna", "Smith", "holiday", "secret", "A film", "the picture"):
        assert name not in text, name
    return json.loads(text)


def test_a_successful_run(private, tmp_path, monkeypatch, capsys):
    source = write_rich_clip(private / "secret.mkv", frames=3)
    words = ("upscale", source, private / "secret.mp4", "-m", "bicubic", "--scale", "2")
    assert run(monkeypatch, *words).code in (0, None)
    report = report_in(tmp_path)
    assert report["vsrkit"] == __version__
    assert report["packages"]["torch"]
    command = ["upscale", "<file 1>.mkv", "<file 2>.mp4", "-m", "bicubic", "--scale", "2"]
    assert report["command"] == command
    probed = report["inputs"][0]["probe"]
    assert (probed["codec"], probed["height"], probed["width"]) == ("h264", 24, 32)
    assert [s["codec"] for s in probed["streams"]][:3] == ["h264", "aac", "srt"]
    assert any("font.ttf" in line or "dropped" in line for line in report["log"])
    assert report["error"] is None
    assert "attach it to a report" in capsys.readouterr().err


def test_a_failure(private, tmp_path, monkeypatch):
    source = private / "secret.mkv"
    source.write_bytes(b"no video")
    error = run(monkeypatch, "upscale", source, "-o", private / "out.mkv", "-m", "bicubic")
    assert "cannot read" in str(error)
    report = report_in(tmp_path)
    assert "VideoError" in report["error"][-1]
    assert "<file 1>.mkv" in report["error"][-1]
    assert any("<vsrkit>" in line for line in report["error"])
    assert "<file 1>.mkv" in report["inputs"][0]["probe"]


def test_names_in_texts(tmp_path):
    names = Names([str(tmp_path / "clips"), "film.of.anna.mp4", "bicubic", "-o", "1/25"])
    text = f"cannot read {tmp_path}/clips/b/c.avi: /home/anna/x/y.txt and film.of.anna.mp4"
    assert names.shorten(text) == "cannot read <file 1>/....avi: .../y.txt and <file 2>.mp4"
    assert names.shorten({"a": ["-m", "bicubic", 3]}) == {"a": ["-m", "bicubic", 3]}
