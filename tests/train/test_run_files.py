"""The log of a run and the timing of its steps."""

import json

import pytest
import torch

from vsrkit.errors import VsrkitError
from vsrkit.train.run_files import RunLog, StepTimer


def test_the_log_is_lines_of_json(tmp_path):
    run_log = RunLog(tmp_path)
    run_log.scalars(1, loss=0.5)
    run_log.scalars(2, loss=0.25)
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"step": 1, "loss": 0.5},
        {"step": 2, "loss": 0.25},
    ]
    RunLog(None).scalars(1, loss=0.5)  # all processes but the main one


def test_a_log_that_cannot_be_written_ends_the_run_in_one_line(tmp_path):
    run_log = RunLog(tmp_path / "gone")
    with pytest.raises(VsrkitError, match="continue with --resume"):
        run_log.scalars(1, loss=0.5)


def test_tensorboard_gets_scalars_and_images(tmp_path):
    pytest.importorskip("tensorboard")
    run_log = RunLog(tmp_path, tensorboard=True)
    run_log.scalars(1, loss=0.5)
    run_log.image(1, "clip", torch.rand(3, 8, 8))
    run_log.close()
    [events] = tmp_path.glob("events.out.tfevents.*")
    content = events.read_bytes()
    assert b"loss" in content
    assert b"PNG" in content


def test_the_timer_separates_work_from_the_rest(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("vsrkit.train.run_files.time.perf_counter", lambda: now[0])
    timer = StepTimer()
    for kind, seconds in (("work", 1), ("rest", 8), ("validation", 1), ("data", 50), ("work", 0)):
        now[0] += seconds  # duration of the previous kind
        timer.start(kind)
    assert timer.lap() == (5.0, 0.2)  # 8 of work, 1 + 1 of data and rest, in two steps
