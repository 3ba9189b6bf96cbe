"""benchmarks/quality.py: the tables of README.md and docs/results.md."""

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
    """Runs the script with arguments on the files of `tmp_path`; returns its exit code."""
    module = runpy.run_path(str(SCRIPT))
    files = {"--results": "results", "--readme": "README.md", "--page": "results.md"}
    places = [word for option, name in files.items() for word in (option, str(tmp_path / name))]
    (tmp_path / "results").mkdir()

    def run(*words: str) -> object:
        monkeypatch.setattr(sys, "argv", ["quality.py", *places, *words])
        try:
            module["main"]()
        except SystemExit as stop:
            return stop.code
        return 0

    return run


def test_pages_get_their_tables_and_keep_the_rest(tmp_path: Path, quality) -> None:
    results = tmp_path / "results"
    (results / "a.json").write_text(json.dumps([result("good", 27.0), result("vsrt-s", 24.123)]))
    (results / "b.json").write_text(json.dumps(result("partly", 25.0, partial=True)))
    (results / "speed.json").write_text(json.dumps({"frames_per_second": 3}))
    times = {"rows": [{"model": "vsrt-s", "seconds": 0.355}, {"model": "vsrt-m", "seconds": 1.0}]}
    (results / "presets.json").write_text(json.dumps(times))
    for name in ("README.md", "results.md"):
        (tmp_path / name).write_text(f"# hello\n\n{BEGIN}\nold\n{END}\n\nbye\n")
    assert "out of date" in quality("--check")
    assert "old" in (tmp_path / "README.md").read_text()
    assert quality() == 0
    assert quality("--check") == 0
    rows = {}
    for name in ("README.md", "results.md"):
        text = (tmp_path / name).read_text()
        assert text.startswith("# hello\n")
        assert text.endswith("\n\nbye\n")
        assert "old" not in text
        rows[name] = [line for line in text.splitlines() if line.startswith("|")]
    short, full = rows["README.md"], rows["results.md"]
    assert "| VSR-Transformer (published) | 24.08/0.8125 |" in "\n".join(full)
    measured = [row for row in full if row.startswith("| **")]
    assert [row.split("**")[1] for row in measured] == ["vsrt-s", "partly", "good"]
    assert measured[0].endswith("**24.12/0.5000** | 0.50 |")
    assert "**25.00/0.5000**\\* |" in measured[1]
    assert "(published elsewhere)" in full[full.index(measured[0]) - 1]
    assert full[-1].startswith("| IART (trained on 6 frames) | 32.15/0.9010 |")
    assert short[2:] == [
        "| `vsrt-s` | 24.12 / 0.5000 |  | 0.35 |",
        "| VSR-Transformer (published) | 27.36 / 0.8258 |  |  |",
    ]


@pytest.mark.parametrize("page", ["README.md", "results.md"])
def test_a_page_without_markers_is_not_changed(tmp_path: Path, quality, page: str) -> None:
    for name in ("README.md", "results.md"):
        (tmp_path / name).write_text(f"{BEGIN}\n{END}\n")
    (tmp_path / page).write_text("# hello\n")
    assert "add the lines" in quality()
    assert (tmp_path / page).read_text() == "# hello\n"
    assert (tmp_path / "README.md").read_text() in ("# hello\n", f"{BEGIN}\n{END}\n")


def test_the_committed_tables_match_the_committed_results(monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["quality.py", "--check"])
    runpy.run_path(str(SCRIPT), run_name="__main__")


def test_the_table_of_the_readme_has_at_most_eight_rows() -> None:
    rows = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("|")]
    assert 2 < len(rows) <= 2 + 8
