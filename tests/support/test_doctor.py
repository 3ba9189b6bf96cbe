"""The report describes the machine, and the self-test fails if a stage fails."""

import json

import pytest
from tests.cli.test_cli import run_inside

from vsrkit.support import doctor


def test_self_test_passes_with_bicubic():
    checks = doctor.run_checks("bicubic")
    assert [check for check in checks if not check.passed] == []
    assert "6 frames, 22." in checks[-1].found


def test_an_error_fails_the_check(monkeypatch):
    def broken(*arguments, **options):
        raise RuntimeError("no\nsuch thing")

    monkeypatch.setattr(doctor, "upscale_video", broken)
    check = doctor.run_checks("bicubic")[-1]
    assert not check.passed
    assert check.found.startswith("RuntimeError: no such thing")


@pytest.fixture
def quick(monkeypatch):
    """Skip the measurements; the test chooses the result of the self-test."""
    monkeypatch.setattr(doctor, "_speeds", lambda model: {"float32": 100.0, "bfloat16": 0.0})

    def decide(passed):
        checks = [doctor.Check("upscale", passed, "something")]
        monkeypatch.setattr(doctor, "run_checks", lambda model: checks)

    decide(True)
    return decide


def test_text_report(quick, monkeypatch, capsys):
    code, out, _ = run_inside(monkeypatch, capsys, "doctor")
    assert code == 0
    lines = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert {"vsrkit", "packages", "processor", "memory", "devices", "weights", "cache"} <= set(
        lines
    )
    assert "torch 2" in lines["packages"]
    assert "h264" in lines["decoders"]
    assert lines["speed"] == "float32 100 GFLOP/s; bfloat16 not supported"
    assert lines["self-test"] == "ok: upscale: something"


def test_json_report(quick, monkeypatch, capsys):
    code, out, _ = run_inside(monkeypatch, capsys, "doctor", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["healthy"]
    assert found["cores"] >= 1
    assert found["encoders"]["libx264"]
    assert found["checks"][0]["name"] == "upscale"


def test_a_failed_self_test_exits_with_1(quick, monkeypatch, capsys):
    quick(False)
    code, out, _ = run_inside(monkeypatch, capsys, "doctor")
    assert code == 1
    assert "FAILED: upscale: something" in out


def test_the_self_test_can_be_skipped(quick, monkeypatch, capsys):
    code, out, _ = run_inside(monkeypatch, capsys, "doctor", "--no-self-test")
    assert code == 0
    assert "self-test" not in out
