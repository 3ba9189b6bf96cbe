"""FRVSR: exact to TecoGAN-PyTorch; frame by frame equals the clip at once."""

import pytest
import torch
from tests.golden.zoo.recipe import about, facts, filled, golden, sampled

from vsrkit.models.frvsr import FRVSR, FRVSRConfig, ShiftedBicubic, detect, space_to_depth

CASES = {
    "frvsr_bd": FRVSRConfig(channels=64),
    "frvsr_bi": FRVSRConfig(channels=64, degradation="BI"),
    "frvsr_10_128": FRVSRConfig(),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_tecogan_pytorch(name):
    case, model = golden(name), filled(name, FRVSR(CASES[name]))
    with torch.no_grad():
        sr = model(case["input"])
    # Each result feeds the next one: rounding errors grow a little.
    torch.testing.assert_close(sampled(sr), case["output"], rtol=0, atol=2e-5)


def test_parts_equal_tecogan_pytorch():
    case = golden("frvsr_ops")
    bicubic = ShiftedBicubic()
    assert torch.equal(bicubic.kernels, case["bicubic.kernels"])
    enlarged = bicubic(case["bicubic.input"])
    torch.testing.assert_close(enlarged, case["bicubic.output"], rtol=0, atol=1e-6)
    assert torch.equal(space_to_depth(case["s2d.input"]), case["s2d.output"])


def test_every_fourth_pixel_of_the_shifted_bicubic_is_the_input():
    frame = torch.rand(1, 3, 5, 6)
    assert torch.equal(ShiftedBicubic()(frame)[..., ::4, ::4], frame)


@pytest.mark.parametrize(
    ("name", "config", "parameters"),
    [
        ("frvsr", FRVSRConfig(channels=64), 2_589_093),
        ("frvsr_10_128", FRVSRConfig(), 5_054_693),
    ],
)
def test_full_size_has_the_published_parameters_and_names(name, config, parameters):
    assert about()["networks"][name]["parameters"] == parameters
    assert facts(lambda: FRVSR(config)) == about()["networks"][name]


@pytest.mark.parametrize("config", [*CASES.values(), FRVSRConfig(channels=8, blocks=3)])
def test_configuration_is_detected_from_shapes(config):
    with torch.device("meta"):
        model = FRVSR(config)
    assert detect(model.state_dict()) == config


def test_sides_that_are_not_multiples_of_eight():
    model = FRVSR(FRVSRConfig(channels=4, blocks=1)).eval()
    assert model(torch.rand(1, 2, 3, 15, 9)).shape == (1, 2, 3, 60, 36)
