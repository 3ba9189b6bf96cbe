"""SPMC: the splat against scalar loops, the network against a second implementation."""

import pytest
import torch
from tests.golden.zoo.recipe import about, facts, filled, golden, sampled

from vsrkit.models.spmc import SPMC, SPMCConfig, detect, splat


@pytest.mark.parametrize(("name", "channels"), [("spmc_small", 8), ("spmc_full", 32)])
def test_equals_the_second_implementation(name, channels):
    case, model = golden(name), filled(name, SPMC(SPMCConfig(channels=channels)))
    with torch.no_grad():
        estimates = model.estimates(case["input"])
    # Pixels thrown onto a grid four times as fine magnify the rounding of a flow: 1.4e-5 was seen.
    torch.testing.assert_close(sampled(estimates), case["output"], rtol=0, atol=5e-5)


@pytest.mark.parametrize("scale", [2, 4])
def test_splat_equals_scalar_loops_with_gradients(scale):
    case = golden("spmc_layer")
    frame, flow = case["input"].requires_grad_(), case["flow"].requires_grad_()
    out = splat(frame, flow, scale)
    torch.testing.assert_close(out, case[f"x{scale}.output"], rtol=0, atol=5e-6)
    (out * case[f"x{scale}.grad_output"]).sum().backward()
    torch.testing.assert_close(frame.grad, case[f"x{scale}.grad_input"], rtol=0, atol=1e-5)
    torch.testing.assert_close(flow.grad, case[f"x{scale}.grad_flow"], rtol=0, atol=1e-4)


def test_splat_without_motion_fills_every_fourth_pixel():
    frame = torch.rand(1, 2, 3, 4)
    out = splat(frame, torch.zeros(1, 2, 3, 4), 4)
    assert torch.equal(out[..., ::4, ::4], frame)
    assert out.sum() == pytest.approx(frame.sum())


def test_parameters_and_names():
    assert about()["networks"]["spmc"]["parameters"] == 1_722_161
    assert facts(lambda: SPMC(SPMCConfig())) == about()["networks"]["spmc"]
    with torch.device("meta"):
        model = SPMC(SPMCConfig(channels=8))
    assert detect(model.state_dict()) == SPMCConfig(channels=8)


def test_more_frames_with_the_same_weights():
    model = SPMC(SPMCConfig(channels=2, frames=5)).eval()
    assert model(torch.rand(1, 5, 3, 8, 8)).shape == (1, 1, 3, 32, 32)
