"""Choosing a device, and errors for devices this machine does not have."""

import pytest
import torch

from vsrkit.errors import VsrkitError
from vsrkit.hardware.device import resolve_device


@pytest.fixture
def machine(monkeypatch):
    """A function that pretends the machine has `cuda` CUDA devices and maybe MPS."""

    def pretend(cuda, mps):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)

    return pretend


@pytest.mark.parametrize(
    ("cuda", "mps", "expected"), [(1, True, "cuda"), (0, True, "mps"), (0, False, "cpu")]
)
def test_auto_prefers_cuda_then_mps_then_cpu(machine, cuda, mps, expected):
    machine(cuda, mps)
    assert resolve_device("auto") == expected


@pytest.mark.parametrize("name", ["cpu", "cuda", "cuda:1", "mps"])
def test_a_device_of_this_machine_is_accepted(machine, name):
    machine(2, True)
    assert resolve_device(name) == name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("abacus", "no device called 'abacus'; choose auto, cpu"),
        ("cuda:first", "no device called 'cuda:first'"),
        ("xpu", "no device called 'xpu'"),
        ("mps", "no MPS device is available; use --device cpu"),
        ("cuda:2", "no cuda:2; this machine has 2 CUDA devices"),
    ],
)
def test_other_devices_are_refused(machine, name, message):
    machine(2, False)
    with pytest.raises(VsrkitError, match=message):
        resolve_device(name)


def test_cuda_is_refused_without_a_gpu(machine):
    machine(0, False)
    with pytest.raises(VsrkitError, match="no CUDA device is available; use --device cpu"):
        resolve_device("cuda:0")
