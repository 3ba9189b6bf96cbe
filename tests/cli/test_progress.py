"""Speed and remaining time are counted from the beginning of a stage."""

import json

import pytest

from vsrkit.cli import progress as shown
from vsrkit.cli.progress import Pace, seconds_left, show_progress
from vsrkit.upscale.options import Progress


@pytest.fixture
def clock(monkeypatch):
    """A clock that is set by hand."""
    now = [100.0]
    monkeypatch.setattr(shown.time, "monotonic", lambda: now[0])
    return now


def at(done, stage="upscale", total=48):
    return Progress(stage=stage, done=done, total=total)


def test_frames_that_come_all_at_once_took_the_time_before(clock):
    pace = Pace()
    assert pace.frames_per_second(at(16)) is None  # resumed: those were made earlier
    clock[0] += 80
    for done in range(17, 33):
        clock[0] += 0.001
        speed = pace.frames_per_second(at(done))
    assert speed == pytest.approx(0.2, rel=1e-3)
    assert seconds_left(at(32), speed) == pytest.approx(80, rel=1e-3)


def test_each_stage_has_its_own_pace(clock):
    pace = Pace()
    pace.frames_per_second(at(0, "scan"))
    clock[0] += 1
    assert pace.frames_per_second(at(100, "scan")) == 100
    assert pace.frames_per_second(at(0)) is None
    clock[0] += 2
    assert pace.frames_per_second(at(1)) == 0.5


def test_no_time_left_without_a_speed_or_a_total():
    assert seconds_left(at(3), None) is None
    assert seconds_left(at(3, total=None), 2.0) is None


def test_lines_for_programs(clock, capsys):
    with show_progress(as_json=True, pipe=False) as show:
        show(at(0))
        clock[0] += 10
        show(at(5))
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["done"], first["fps"], first["eta_s"]) == (0, None, None)
    assert (second["done"], second["fps"], second["eta_s"]) == (5, 0.5, 86.0)
