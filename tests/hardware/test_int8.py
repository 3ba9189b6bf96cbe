"""The trial of int8 convolutions: what is missing or wrong is named."""

import pytest
import torch

from vsrkit.hardware import int8
from vsrkit.hardware.device import Precision, resolve_precision


@pytest.fixture(autouse=True)
def tried_again():
    int8.int8_fault.cache_clear()
    yield
    int8.int8_fault.cache_clear()


def test_missing_operators_are_named(monkeypatch):
    def missing(*arguments):
        raise RuntimeError("no such operator: onednn::qconv_prepack\nmore lines")

    monkeypatch.setattr(int8, "_convolution", missing)
    assert int8.int8_fault() == (
        f"PyTorch {torch.__version__} has no int8 convolutions here "
        "(no such operator: onednn::qconv_prepack)"
    )


def test_wrong_results_are_found(monkeypatch):
    def overflowing(values, weights, steps):
        products = values.float().sum() * torch.ones(1, len(steps), 12, 12)
        return products.clamp(max=2**15)

    monkeypatch.setattr(int8, "_convolution", overflowing)
    assert int8.int8_fault() == "int8 convolutions are wrong on this processor"


@pytest.mark.parametrize("kind", ["int8", "int8-exact"])
def test_int8_runs_beside_the_fastest_floats_in_channels_last(kind):
    found = resolve_precision(kind, torch.nn.Conv2d(8, 8, 3))
    assert found.int8 == kind == found.name
    assert found.channels_last
    assert found.floats == Precision(found.dtype, channels_last=True)
    assert str(found) == f"{kind} beside {found.dtype}"
