"""TDAN: exact to the authors' code, loadable from theirs and mmediting's files."""

import pytest
import torch
from tests.golden.zoo.recipe import about, facts, filled, golden, sampled

from vsrkit.models.tdan import TDAN, TDANConfig, detect, public_name, translate


def test_equals_the_authors_code():
    case, model = golden("tdan_full"), filled("tdan_full", TDAN(TDANConfig()), public_name)
    clip = case["input"] + 0.5  # theirs is centred on 0
    with torch.no_grad():
        sr, aligned = model(clip)[:, 0], model.align(clip)
    torch.testing.assert_close(sampled(sr - 0.5), case["output"], rtol=0, atol=1e-5)
    torch.testing.assert_close(sampled(aligned - 0.5), case["mid.aligned_lrs"], rtol=0, atol=1e-5)
    assert torch.equal(aligned[:, 2], clip[:, 2])


def test_full_size_has_the_published_parameters_and_names():
    assert about()["networks"]["tdan"]["parameters"] == 1_970_819
    assert facts(lambda: TDAN(TDANConfig()), public_name) == about()["networks"]["tdan"]


def test_names_of_mmediting_are_translated():
    names = about()["mmedit_names"]["tdan"]
    assert list(translate(dict.fromkeys(names, torch.zeros(1)))) == list(names.values())


@pytest.mark.parametrize(
    "config", [TDANConfig(), TDANConfig(channels=8, frames=7, groups=2, extract_blocks=3)]
)
def test_configuration_is_detected_from_shapes(config):
    with torch.device("meta"):
        model = TDAN(config)
    assert detect({public_name(name): v for name, v in model.state_dict().items()}) == config
