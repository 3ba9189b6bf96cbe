"""Precision: what `auto` picks is what was measured, measured once, and asked for by name."""

import json

import pytest
import torch
from torch import nn

from vsrkit.errors import VsrkitError
from vsrkit.hardware import precision
from vsrkit.hardware.precision import (
    CANDIDATES,
    Convolution,
    Precision,
    bfloat16_survives,
    commonest_convolution,
    lay_out,
    measured_speeds,
    resolve_precision,
)
from vsrkit.models.bicubic import Bicubic, BicubicConfig
from vsrkit.models.zoo import build_model


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("VSRKIT_CACHE", str(tmp_path))
    monkeypatch.setattr(precision, "bfloat16_survives", lambda: True)  # a child costs seconds
    return tmp_path / "speeds.json"


@pytest.fixture
def net():
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3), nn.Conv2d(16, 16, 3))


def test_the_commonest_convolution_holds_most_weights(net):
    assert commonest_convolution(net) == Convolution(16, 16, 3, 1)
    assert commonest_convolution(build_model("vsrt-s")) == Convolution(16, 64, 3, 1)
    assert commonest_convolution(build_model("basicvsr-reds4")) == Convolution(64, 64, 3, 1)
    assert commonest_convolution(nn.ReLU()) is None


@pytest.mark.parametrize("fastest", range(len(CANDIDATES)))
def test_auto_takes_the_fastest(net, cache, monkeypatch, fastest):
    speeds = {c: 2.0 if i == fastest else 1.0 for i, c in enumerate(CANDIDATES)}
    monkeypatch.setattr(precision, "_time", lambda shape, c, device: speeds[c])
    assert resolve_precision("auto", net) == CANDIDATES[fastest]


def test_a_type_asked_for_by_name_is_kept(net, cache, monkeypatch):
    speeds = dict(zip(CANDIDATES, (1.0, 2.0, 9.0), strict=True))
    monkeypatch.setattr(precision, "_time", lambda shape, c, device: speeds[c])
    assert resolve_precision("float32", net) == Precision("float32", True)
    speeds = dict(zip(CANDIDATES, (9.0, 2.0, 1.0), strict=True))
    assert resolve_precision("bfloat16", net) == Precision("bfloat16", True)


def test_what_kills_a_process_is_never_tried_in_this_one(net, cache, monkeypatch):
    monkeypatch.setattr(precision, "bfloat16_survives", bfloat16_survives)
    monkeypatch.setattr(
        precision, "BFLOAT16_TRIAL", "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
    )
    monkeypatch.setattr(
        precision,
        "_time",
        lambda shape, c, device: 1.0 if c.dtype == "float32" else pytest.fail("tried"),
    )
    assert resolve_precision("auto", net).dtype == "float32"
    with pytest.raises(VsrkitError, match="use float32 or auto"):
        resolve_precision("bfloat16", net)


def test_speeds_are_measured_once_and_kept(cache, monkeypatch):
    shape, cpu = Convolution(4, 4, 3, 1), torch.device("cpu")
    first = measured_speeds(shape, cpu)
    assert all(speed > 0 for speed in first.values())
    assert json.loads(cache.read_text())
    monkeypatch.setattr(precision, "_time", lambda *args: pytest.fail("measured again"))
    assert measured_speeds(shape, cpu) == first


@pytest.mark.parametrize("content", ["{", "[]", "null"])
def test_a_damaged_cache_only_means_to_measure_again(cache, content):
    cache.write_text(content)
    assert measured_speeds(Convolution(2, 2, 3, 1), torch.device("cpu"))


def test_bfloat16_as_the_tests_run_it_survives():
    assert bfloat16_survives()


def test_an_unwritable_cache_is_not_an_error(cache, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("VSRKIT_CACHE", str(tmp_path / "file"))
    assert measured_speeds(Convolution(2, 2, 3, 1), torch.device("cpu"))


def test_layout_changes_memory_not_values(net):
    before = [p.clone() for p in net.parameters()]
    lay_out(net, Precision("float32", True))
    assert net[1].weight.is_contiguous(memory_format=torch.channels_last)
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))


def test_a_model_without_convolutions_runs_in_float32(cache):
    assert resolve_precision("auto", Bicubic(BicubicConfig())) == Precision("float32", False)
