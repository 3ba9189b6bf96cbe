"""RSDN: exact to the authors' code, with both parts of its result."""

import pytest
import torch
import torch.nn.functional as F
from tests.golden.zoo.recipe import about, facts, filled, golden, sampled

from vsrkit.models.rsdn import RSDN, RSDNConfig, detect, public_name, split_structure


def test_equals_the_authors_code():
    case = golden("rsdn9_128_full")
    model = filled("rsdn9_128_full", RSDN(RSDNConfig()), public_name)
    clip = case["input"]
    state, found = model.start(clip[:, 1]), {"output": [], "mid.out_d": [], "mid.out_s": []}
    with torch.no_grad():
        for frame in clip.unbind(1):
            sr, state = model.step(frame, state)
            found["output"].append(sr)
            found["mid.out_d"].append(F.pixel_shuffle(state.detail, 4))
            found["mid.out_s"].append(F.pixel_shuffle(state.structure, 4))
    for name, frames in found.items():
        # Four steps through ten layers each that feed the next: 7e-6 was seen.
        torch.testing.assert_close(sampled(torch.stack(frames, 1)), case[name], rtol=0, atol=2e-5)


def test_structure_and_detail_add_up():
    frame = torch.rand(2, 3, 8, 10)
    structure, detail = split_structure(frame)
    torch.testing.assert_close(structure + detail, frame, rtol=0, atol=1e-6)
    flat = torch.full((1, 3, 4, 4), 0.3)
    assert split_structure(flat)[1].abs().max() == 0


def test_full_size_has_the_published_parameters_and_names():
    assert about()["networks"]["rsdn9_128"]["parameters"] == 6_180_236
    assert facts(lambda: RSDN(RSDNConfig()), public_name) == about()["networks"]["rsdn9_128"]


@pytest.mark.parametrize("config", [RSDNConfig(), RSDNConfig(channels=8, blocks=2)])
def test_configuration_is_detected_from_shapes(config):
    with torch.device("meta"):
        model = RSDN(config)
    assert detect({public_name(name): v for name, v in model.state_dict().items()}) == config
