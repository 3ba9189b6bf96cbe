"""VESPCN: the network of the paper, compared with a second implementation."""

import pytest
import torch
from tests.golden.zoo.recipe import about, facts, filled, golden, sampled

from vsrkit.models.layers.resample import imresize
from vsrkit.models.vespcn import VESPCN, VESPCNConfig, detect, rgb_to_ycbcr, ycbcr_to_rgb

CASES = {"vespcn_y": VESPCNConfig(), "vespcn_rgb": VESPCNConfig(luma=False)}
PARAMETERS = {"vespcn_y": 93_992, "vespcn_rgb": 108_232}


@pytest.mark.parametrize("name", CASES)
def test_equals_the_second_implementation(name):
    case, model = golden(name), filled(name, VESPCN(CASES[name]))
    with torch.no_grad():
        sr = model.enlarge(case["input"])
    torch.testing.assert_close(sampled(sr), case["output"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_parameters_and_names(name):
    assert about()["networks"][name]["parameters"] == PARAMETERS[name]
    assert facts(lambda: VESPCN(CASES[name])) == about()["networks"][name]
    with torch.device("meta"):
        model = VESPCN(CASES[name])
    assert detect(model.state_dict()) == CASES[name]


def test_chroma_is_bicubic_and_luma_from_the_network():
    model, clip = VESPCN(VESPCNConfig()).eval(), torch.rand(1, 3, 3, 8, 8)
    with torch.no_grad():
        y, colour = rgb_to_ycbcr(model(clip)[:, 0]).split([1, 2], 1)
        brightness = model.enlarge(rgb_to_ycbcr(clip)[:, :, :1])
    torch.testing.assert_close(y, brightness, rtol=0, atol=1e-5)
    bicubic = imresize(rgb_to_ycbcr(clip[:, 1])[:, 1:], 4)
    torch.testing.assert_close(colour, bicubic, rtol=0, atol=1e-5)


def test_ycbcr_round_trip():
    frames = torch.rand(2, 3, 4, 4)
    torch.testing.assert_close(ycbcr_to_rgb(rgb_to_ycbcr(frames)), frames, rtol=0, atol=1e-6)
    white = rgb_to_ycbcr(torch.ones(3, 1, 1)).flatten()
    torch.testing.assert_close(white * 255, torch.tensor([235.0, 128, 128]), rtol=0, atol=1e-3)
