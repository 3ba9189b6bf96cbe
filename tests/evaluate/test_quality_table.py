import json
import runpy
import sys
from pathlib import Path

import pytest
from tests.paths import ROOT

SCRIPT = ROOT / "benchmarks" / "quality.py"
BEGIN, END = "<!-- quality table: begin -->", "<!-- quality table: end -->"


def result(model: str, psnr: float, **more: object) -> dict:
    clips = {name: {"psnr": psnr, "ssim": 0.5} for name in ("calendar", "city", "foliage", "walk")}
    protocol = {"name": "vid4", "channel": "y"}
    return {
        "format": 1, "model": model, "set": "vid4", "protocol": protocol, "lr": "made by BI",
        "clips": clips, "average": {"psnr": psnr, "ssim": 0.5}, "partial": False,
        "seconds_per_frame": 0.5, **more,
    }  # fmt: skip


@pytest.fixture
def quality(tmp_path: Path, monkeypatch):
    """The script's main with words, on files of its own; returns what it exits with."""
    module = runpy.run_path(str(SCRIPT))
    places = ["--results", str(tmp_path / "results"), "--readme", str(tmp_path / "README.md")]

    def run(*words: str) -> object:
        monkeypatch.setattr(sys, "argv", ["quality.py", *places, *words])
        try:
            module["main"]()
        except SystemExit as stop:
            return stop.code
        return 0

    return run


def test_the_readme_gets_its_table_and_keeps_the_rest(tmp_path: Path, quality) -> None:
    results = tmp_path / "results"
    results.mkdir()
    (results / "a.json").write_text(json.dumps([result("good", 27.0), result("worse", 24.123)]))
    (results / "b.json").write_text(json.dumps(result("partly", 25.0, partial=True)))
    (results / "speed.json").write_text(json.dumps({"frames_per_second": 3}))
    (tmp_path / "README.md").write_text(f"# hello\n\n{BEGIN}\nold\n{END}\n\nbye\n")
    assert "out of date" in quality("--check")
    assert quality() == 0
    assert quality("--check") == 0
    text = (tmp_path / "README.md").read_text()
    assert text.startswith("# hello\n")
    assert text.endswith("\n\nbye\n")
    assert "old" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert "| VSR-Transformer (published) | 24.08/0.8125 |" in text
    assert [row.split("**")[1] for row in rows[-3:]] == ["worse", "partly", "good"]
    assert rows[-3].endswith("**24.12/0.5000** | 0.50 |")
    assert "**25.00/0.5000**\\* |" in rows[-2]


def test_a_readme_without_a_place_is_left_alone(tmp_path: Path, quality) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "README.md").write_text("# hello\n")
    assert "add the lines" in quality()
    assert (tmp_path / "README.md").read_text() == "# hello\n"
