"""The small parts: average, warm start, reports, scores, clock."""

import json
import math

import numpy as np
import pytest
import torch
from tests.train.conftest import moving_picture
from torch import nn

from vsrkit.data.augment import to_clip
from vsrkit.data.clips import Clip
from vsrkit.data.degrade import CRF
from vsrkit.data.random_degradation import Fixed
from vsrkit.errors import VsrkitError, WeightsError
from vsrkit.evaluate.metrics import mean_psnr_y
from vsrkit.hardware.precision import Precision
from vsrkit.models.bicubic import Bicubic, BicubicConfig
from vsrkit.train.clock import Clock
from vsrkit.train.ema import Ema
from vsrkit.train.report import Report
from vsrkit.train.validate import held_pieces, score
from vsrkit.train.warm_start import take, warm_start


def test_the_average_follows_at_its_pace():
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    ema = Ema(model, 0.5)
    nn.init.ones_(model.weight)
    for _ in range(2):
        ema.update(model, step=1000)
    assert ema.model.weight.item() == pytest.approx(0.75)
    at_once = Ema(model, 0.0)
    nn.init.constant_(model.weight, 3.0)
    at_once.update(model, step=0)
    assert at_once.model.weight.item() == 3.0


def test_a_warm_start_takes_what_fits_and_lists_the_rest():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3))
    tensors = {"0.weight": torch.ones(4, 3, 3, 3), "1.weight": torch.ones(9), "x": torch.ones(1)}
    taken = take(model, tensors)
    assert (taken.filled, taken.misfits, taken.unused) == (["0.weight"], ["1.weight"], ["x"])
    assert model[0].weight.eq(1).all()


def test_a_warm_start_of_a_part(tiny_model):
    with pytest.raises(WeightsError, match="the model has no part 'wing'"):
        warm_start(nn.Sequential(), f"wing={tiny_model}")
    with pytest.raises(WeightsError, match="has no tensor that fits"):
        warm_start(nn.Sequential(nn.Conv2d(1, 1, 1)), f"0={tiny_model}")


def test_reports_are_lines_of_json(tmp_path):
    report = Report(tmp_path)
    report.scalars(1, loss=0.5)
    report.scalars(2, loss=0.25)
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"step": 1, "loss": 0.5},
        {"step": 2, "loss": 0.25},
    ]
    Report(None).scalars(1, loss=0.5)  # the other processes stay silent


def test_reports_that_cannot_be_written_stop_with_a_line(tmp_path):
    report = Report(tmp_path / "gone")
    with pytest.raises(VsrkitError, match="go on with --resume"):
        report.scalars(1, loss=0.5)


def test_tensorboard_gets_scalars_and_pictures(tmp_path):
    pytest.importorskip("tensorboard")
    report = Report(tmp_path, tensorboard=True)
    report.scalars(1, loss=0.5)
    report.picture(1, "clip", torch.rand(3, 8, 8))
    report.close()
    [events] = tmp_path.glob("events.out.tfevents.*")
    content = events.read_bytes()
    assert b"loss" in content
    assert b"PNG" in content


def test_the_score_of_bicubic_is_its_psnr(tmp_path):
    pixels = moving_picture(5, 64)
    path = tmp_path / "a.rgb"
    path.write_bytes(pixels.tobytes())
    pieces = held_pieces([Clip("a", path, pixels.shape)], Fixed(), frames=5)
    model = Bicubic(BicubicConfig())
    found, frame = score(model, pieces, Precision("float32", False), "cpu")
    sr = model(pieces[0].lr[None])[0].clamp(0, 1)
    assert found == pytest.approx(
        mean_psnr_y(sr[2:3], pieces[0].hr[2:3])
    )  # two at either end left out
    assert torch.equal(frame, sr[2])
    assert math.isfinite(found)


def test_the_middle_of_a_clip_is_held_out(tmp_path):
    pixels = moving_picture(7, 64)
    path = tmp_path / "a.rgb"
    path.write_bytes(pixels.tobytes())
    [piece] = held_pieces([Clip("a", path, pixels.shape)], Fixed(), frames=5, crop=8)
    assert piece.lr.shape == (5, 3, 8, 8)
    assert torch.equal(piece.hr, to_clip(pixels[1:6, 16:48, 16:48]))


def test_a_held_out_piece_is_encoded_amid_its_clip(tmp_path):
    pixels = moving_picture(9, 96)[:, :, :80]
    path = tmp_path / "a.rgb"
    path.write_bytes(pixels.tobytes())
    how = Fixed(CRF(30))
    [piece] = held_pieces([Clip("a", path, pixels.shape)], how, frames=5, crop=16)
    whole = how(to_clip(pixels), np.random.default_rng(0))
    assert torch.equal(piece.lr, whole[2:7, :, 4:20, 2:18])
    assert torch.equal(piece.hr, to_clip(pixels[2:7, 16:80, 8:72]))


def test_the_clock_tells_work_from_the_rest(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("vsrkit.train.clock.time.perf_counter", lambda: now[0])
    clock = Clock()
    for kind, seconds in (("work", 1), ("rest", 8), ("validation", 1), ("data", 50), ("work", 0)):
        now[0] += seconds  # what went before took this long
        clock.start(kind)
    assert clock.lap() == (5.0, 0.2)  # 8 of work, 1 + 1 of data and rest, in two steps
