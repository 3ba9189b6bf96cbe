"""DUF: exact to BasicSR in all three depths."""

import pytest
import torch
from tests.golden.zoo.recipe import about, facts, filled, golden, sampled

from vsrkit.models.duf import DUF, L16, L28, L52, DUFConfig, detect, public_name

SMALL = {"channels": 16, "growth": 8, "blocks": 3, "head_channels": 32, "filter_channels": 64}


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("duf_small_eps1e-3", DUFConfig(**SMALL)),
        ("duf_small_eps1e-5", DUFConfig(**SMALL, norm_eps=1e-5)),
        ("duf_16l_full", L16),
    ],
)
def test_equals_basicsr(name, config):
    case, model = golden(name), filled(name, DUF(config), public_name)
    with torch.no_grad():
        sr = model(case["input"])[:, 0]
    torch.testing.assert_close(sampled(sr), case["output"], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "config", "parameters"),
    [
        ("duf_16l", L16, 1_900_640),
        ("duf_28l", L28, 2_118_432),
        ("duf_52l", L52, 5_821_952),
    ],
)
def test_full_size_has_the_published_parameters_and_names(name, config, parameters):
    assert about()["networks"][name]["parameters"] == parameters
    assert facts(lambda: DUF(config), public_name) == about()["networks"][name]
    with torch.device("meta"):
        model = DUF(config)
    assert detect({public_name(k): v for k, v in model.state_dict().items()}) == config


def test_every_filter_sums_to_one():
    """Without the residual, a grey frame stays grey, except near the zero padding."""
    model = DUF(DUFConfig(**SMALL)).eval()
    torch.nn.init.zeros_(model.conv3d_r2.weight)
    torch.nn.init.zeros_(model.conv3d_r2.bias)
    with torch.no_grad():
        sr = model(torch.full((1, 7, 3, 10, 10), 0.4))
    torch.testing.assert_close(sr[..., 8:-8, 8:-8], torch.full((1, 1, 3, 24, 24), 0.4))
