"""RBPN: exact to the authors' code for given flows; Horn-Schunck finds a shift."""

import pytest
import torch
from tests.golden.zoo.recipe import about, check_gradients, facts, filled, golden, sampled

from vsrkit.models.layers.flow import horn_schunck
from vsrkit.models.rbpn import RBPN, Projections, RBPNConfig, detect, public_name

SMALL = RBPNConfig(frames=3, base_channels=8, channels=4, blocks=1)


def test_equals_the_authors_code_with_gradients():
    case = golden("rbpn_small")
    config = RBPNConfig(frames=4, base_channels=32, channels=8, blocks=2)
    model = filled("rbpn_small", Projections(config))
    sr = model(case["input"], case["neighbors"], case["flows"])
    torch.testing.assert_close(sampled(sr), case["output"], rtol=0, atol=1e-5)
    check_gradients("rbpn_small", model, sr)


def test_full_size_has_the_published_parameters_and_names():
    """12.2 in the paper's table is in units of 2^20."""
    assert about()["networks"]["rbpn"]["parameters"] == 12_771_943
    assert round(12_771_943 / 2**20, 1) == 12.2
    assert facts(lambda: RBPN(RBPNConfig()), public_name) == about()["networks"]["rbpn"]


@pytest.mark.parametrize("config", [RBPNConfig(), SMALL])
def test_configuration_is_detected_from_shapes(config):
    with torch.device("meta"):
        model = RBPN(config)
    assert detect({public_name(name): v for name, v in model.state_dict().items()}) == config


def test_given_flows_are_used():
    model, clip = RBPN(SMALL).eval(), torch.rand(1, 3, 3, 8, 8)
    flows = torch.zeros(1, 2, 2, 8, 8)
    with torch.no_grad():
        assert not torch.equal(model(clip, flows), model(clip, flows + 3))


@pytest.mark.parametrize("move", [(3, 2), (-1, 0), (5, -4)])
def test_flow_finds_a_moved_picture(move):
    """Smooth blobs moved by whole pixels; accurate to a tenth of a pixel away from borders."""
    torch.manual_seed(0)
    coarse = torch.rand(1, 3, 14, 18)
    wide = torch.nn.functional.interpolate(coarse, scale_factor=6, mode="bicubic").clamp(0, 1)
    right, down = move
    here = wide[..., 8:72, 8:96]
    there = wide[..., 8 - down : 72 - down, 8 - right : 96 - right]
    flow = horn_schunck(here, there)[..., 12:-12, 12:-12]
    wanted = torch.tensor([right, down], dtype=torch.float32).view(1, 2, 1, 1)
    assert (flow - wanted).abs().mean() < 0.1


def test_no_motion_is_no_flow():
    frame = torch.rand(1, 3, 20, 24)
    assert horn_schunck(frame, frame).abs().max() < 1e-4
