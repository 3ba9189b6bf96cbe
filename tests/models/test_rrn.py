"""RRN: exact to the authors' code, also frame by frame."""

import pytest
import torch
from tests.golden.zoo.recipe import about, facts, filled, golden, sampled

from vsrkit.hardware.device import Precision
from vsrkit.inference.engine import Engine, upscale_frames
from vsrkit.models.rrn import L5, L10, RRN, RRNConfig, detect, public_name
from vsrkit.models.zoo import load_model

SMALL = RRNConfig(channels=16, blocks=2)
FLOAT32 = Precision("float32", channels_last=False)


@pytest.mark.parametrize(("name", "config"), [("rrn_small", SMALL), ("rrn_10l_full", L10)])
def test_equals_the_authors_code(name, config):
    case, model = golden(name), filled(name, RRN(config), public_name)
    with torch.no_grad():
        sr = model(case["input"])
    torch.testing.assert_close(sampled(sr), case["output"], rtol=0, atol=1e-5)


def test_the_first_step_uses_the_second_frame():
    """The second frame takes the place of the one before the first, also after a cut."""
    case, model = golden("rrn_small"), filled("rrn_small", RRN(SMALL), public_name)
    shot = case["input"][0]
    with torch.no_grad():
        wanted = model(case["input"])[0].clamp(0, 1)
        engine = Engine(model, FLOAT32)
        found = list(upscale_frames([*shot, *shot, shot[0]], engine, cuts=[4, 8]))
        alone = model(shot[None, :1])[0].clamp(0, 1)
    torch.testing.assert_close(torch.stack(found[:4]), wanted, rtol=0, atol=1e-5)
    assert torch.equal(torch.stack(found[4:8]), torch.stack(found[:4]))
    torch.testing.assert_close(found[8], alone[0], rtol=0, atol=1e-5)


def test_every_tile_has_its_own_state():
    torch.manual_seed(0)
    model, shot = RRN(RRNConfig(channels=4, blocks=1)).eval(), torch.rand(3, 3, 40, 40)
    whole = torch.stack(list(upscale_frames(shot, Engine(model, FLOAT32))))
    tiled = torch.stack(list(upscale_frames(shot, Engine(model, FLOAT32, tile=32))))
    assert (whole - tiled).abs().mean() < 1e-3  # tiles see less around them


@pytest.mark.parametrize(
    ("name", "config", "parameters"), [("rrn_5l", L5, 1_888_560), ("rrn_10l", L10, 3_364_400)]
)
def test_full_size_has_the_published_parameters_and_names(name, config, parameters):
    assert about()["networks"][name]["parameters"] == parameters
    assert facts(lambda: RRN(config), public_name) == about()["networks"][name]


def test_loads_a_data_parallel_file(tmp_path):
    model = RRN(SMALL)
    tensors = {f"module.{public_name(name)}": v for name, v in model.state_dict().items()}
    torch.save(tensors, tmp_path / "RRN.pth")
    assert load_model(tmp_path / "RRN.pth").config == SMALL
    assert detect({}) is None
