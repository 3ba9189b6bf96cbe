"""Precision: `auto` takes the fastest, a type named by the user is used, results are cached."""

import json

import pytest
import torch
from torch import nn

from vsrkit.errors import VsrkitError
from vsrkit.hardware import device as device_module
from vsrkit.hardware.device import (
    CANDIDATES,
    Convolution,
    Precision,
    autocast,
    bfloat16_works,
    device_title,
    half_type,
    largest_convolution,
    measure_speeds,
    resolve_precision,
    resolve_training_precision,
    set_memory_layout,
)
from vsrkit.models.bicubic import Bicubic, BicubicConfig
from vsrkit.models.zoo import build_model


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("VSRKIT_CACHE", str(tmp_path))
    monkeypatch.setattr(device_module, "bfloat16_works", lambda: True)  # no child process
    return tmp_path / "speeds.json"


@pytest.fixture
def net():
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3), nn.Conv2d(16, 16, 3))


def test_the_largest_convolution_holds_most_weights(net):
    assert largest_convolution(net) == Convolution(16, 16, 3, 1)
    assert largest_convolution(build_model("vsrt-s")) == Convolution(16, 64, 3, 1)
    assert largest_convolution(build_model("basicvsr-reds4")) == Convolution(64, 64, 3, 1)
    assert largest_convolution(nn.ReLU()) is None


@pytest.mark.parametrize("fastest", range(len(CANDIDATES)))
def test_auto_takes_the_fastest(net, cache, monkeypatch, fastest):
    speeds = {c: 2.0 if i == fastest else 1.0 for i, c in enumerate(CANDIDATES)}
    monkeypatch.setattr(device_module, "_time", lambda shape, c, device: speeds[c])
    assert resolve_precision("auto", net) == CANDIDATES[fastest]


def test_float32_never_runs_bfloat16(net, cache, monkeypatch):
    monkeypatch.setattr(
        device_module, "bfloat16_works", lambda: pytest.fail("a process was started")
    )
    times = {CANDIDATES[0]: 1.0, CANDIDATES[1]: 2.0}
    monkeypatch.setattr(device_module, "_time", lambda shape, c, device: times.pop(c))
    assert resolve_precision("float32", net) == CANDIDATES[1]
    # `auto` later measures bfloat16 only and reuses the two speeds.
    monkeypatch.setattr(device_module, "bfloat16_works", lambda: True)
    times[CANDIDATES[2]] = 1.5
    assert resolve_precision("auto", net) == CANDIDATES[1]
    assert times == {}


def test_a_type_named_by_the_user_is_used(net, cache, monkeypatch):
    speeds = dict(zip(CANDIDATES, (1.0, 2.0, 9.0), strict=True))
    monkeypatch.setattr(device_module, "_time", lambda shape, c, device: speeds[c])
    assert resolve_precision("float32", net) == Precision("float32", True)
    speeds = dict(zip(CANDIDATES, (9.0, 2.0, 1.0), strict=True))
    assert resolve_precision("bfloat16", net) == Precision("bfloat16", True)


def test_bfloat16_that_crashes_a_child_process_is_not_run(net, cache, monkeypatch):
    monkeypatch.setattr(device_module, "bfloat16_works", bfloat16_works)
    monkeypatch.setattr(
        device_module, "BFLOAT16_TRIAL", "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
    )
    monkeypatch.setattr(
        device_module,
        "_time",
        lambda shape, c, device: 1.0 if c.dtype == "float32" else pytest.fail("was run"),
    )
    assert resolve_precision("auto", net).dtype == "float32"
    with pytest.raises(VsrkitError, match="use float32 or auto"):
        resolve_precision("bfloat16", net)


def test_speeds_are_measured_once(cache, monkeypatch):
    shape, cpu = Convolution(4, 4, 3, 1), torch.device("cpu")
    first = measure_speeds(shape, cpu)
    assert all(speed > 0 for speed in first.values())
    assert json.loads(cache.read_text())
    monkeypatch.setattr(device_module, "_time", lambda *args: pytest.fail("measured again"))
    assert measure_speeds(shape, cpu) == first


@pytest.mark.parametrize("content", ["{", "[]", "null"])
def test_a_damaged_cache_file_is_ignored(cache, content):
    cache.write_text(content)
    assert measure_speeds(Convolution(2, 2, 3, 1), torch.device("cpu"))


def test_bfloat16_works_on_this_machine():
    assert bfloat16_works()


def test_an_unwritable_cache_is_not_an_error(cache, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("VSRKIT_CACHE", str(tmp_path / "file"))
    assert measure_speeds(Convolution(2, 2, 3, 1), torch.device("cpu"))


def test_memory_layout_keeps_values(net):
    before = [p.clone() for p in net.parameters()]
    set_memory_layout(net, Precision("float32", True))
    assert net[1].weight.is_contiguous(memory_format=torch.channels_last)
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))


def test_a_model_without_convolutions_runs_in_float32(cache):
    assert resolve_precision("auto", Bicubic(BicubicConfig())) == Precision("float32", False)


@pytest.mark.parametrize(
    ("capability", "expected"), [((7, 5), "float16"), ((8, 0), "bfloat16"), ((9, 0), "bfloat16")]
)
def test_training_uses_the_sixteen_bit_type_of_the_card(
    net, cache, monkeypatch, capability, expected
):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a card")
    measured = []

    def fast_if_short(shape, candidate, device):
        measured.append(candidate.dtype)
        return 1.0 if candidate.dtype == "float32" else 2.0

    monkeypatch.setattr(device_module, "_time", fast_if_short)
    assert half_type(torch.device("cuda:1")) == expected
    assert resolve_training_precision("auto", net, "cuda:1") == Precision(expected, True)
    assert set(measured) == {"float32", expected}
    assert resolve_training_precision("float32", net, "cuda:1").dtype == "float32"
    assert device_title("cuda:1") == "cuda:1 (a card)"


def test_on_a_cpu_training_uses_bfloat16_unless_float16_is_named(net, cache, monkeypatch):
    monkeypatch.setattr(device_module, "_time", lambda shape, c, device: float(c.dtype[0] != "f"))
    assert half_type(torch.device("cpu")) == "bfloat16"
    assert resolve_training_precision("auto", net) == Precision("bfloat16", True)
    monkeypatch.setattr(device_module, "_time", lambda shape, c, device: 1.0)
    assert resolve_training_precision("float16", net) == Precision("float16", True)
    assert device_title("cpu") == "cpu"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_autocast_runs_convolutions_in_its_type(net, dtype):
    with autocast(Precision(dtype, True), "cpu"):
        assert net(torch.rand(1, 3, 16, 16)).dtype == getattr(torch, dtype)


def test_speeds_of_earlier_versions_are_kept_and_not_used(cache):
    shape, cpu = Convolution(4, 4, 3, 1), torch.device("cpu")
    measure_speeds(shape, cpu)
    known = json.loads(cache.read_text())
    [key] = [key for key in known if key.endswith("|by type")]
    old = key.removesuffix("|by type")
    cache.write_text(json.dumps({old: [1.0, 2.0, 3.0]}))
    measure_speeds(shape, cpu)
    assert json.loads(cache.read_text())[old] == [1.0, 2.0, 3.0]
