"""IconVSR: exact to BasicSR, with the authors' key frames."""

import pytest
import torch
from tests.golden.zoo.recipe import about, check_gradients, facts, filled, golden, sampled

from vsrkit.errors import VsrkitError
from vsrkit.models.basicvsr import public_name
from vsrkit.models.iconvsr import (
    REDS,
    VIMEO,
    IconVSR,
    IconVSRConfig,
    detect,
    neighbourhood,
    translate,
)

SMALL = IconVSRConfig(channels=16, blocks=2, key_stride=3)


@pytest.fixture(scope="module")
def model():
    return filled("iconvsr_small_p2", IconVSR(SMALL), public_name)


def test_equals_basicsr_and_keep_equals_a_slice(model):
    case = golden("iconvsr_small_p2")
    with torch.no_grad():
        sr = model(case["input"])
        torch.testing.assert_close(sampled(sr), case["output"], rtol=0, atol=1e-5)
        assert torch.equal(model(case["input"], keep=slice(2, 4)), sr[:, 2:4])


@pytest.mark.slow
def test_gradients_equal_basicsr(model):
    check_gradients(
        "iconvsr_small_p2", model, model(golden("iconvsr_small_p2")["input"]), public_name
    )


def test_a_short_clip_is_an_error(model):
    with pytest.raises(VsrkitError, match="takes 5 frames or more, got 4"):
        model(torch.rand(1, 4, 3, 8, 8))


@pytest.mark.parametrize(
    ("reach", "ends"),
    [(2, ([4, 3, 0, 1], [8, 9, 6, 5])), (3, ([6, 5, 4, 0], [9, 5, 4, 3]))],
)
def test_the_clip_is_extended_as_in_the_authors_code(reach, ends):
    numbers = neighbourhood(10, reach)
    assert numbers[: len(ends[0])] == ends[0]
    assert numbers[-4:] == ends[1]
    assert len(numbers) == 10 + 2 * reach


@pytest.mark.parametrize(
    ("name", "config", "parameters"),
    [("iconvsr_reds", REDS, 8_694_991), ("iconvsr_vimeo", VIMEO, 8_711_375)],
)
def test_full_size_has_the_published_parameters_and_names(name, config, parameters):
    assert about()["networks"][name]["parameters"] == parameters
    assert facts(lambda: IconVSR(config), public_name) == about()["networks"][name]
    with torch.device("meta"):
        model = IconVSR(config)
    assert detect({public_name(k): v for k, v in model.state_dict().items()}) == config


def test_names_of_mmediting_are_translated():
    names = about()["mmedit_names"]["iconvsr_reds"]
    assert list(translate(dict.fromkeys(names, torch.zeros(1)))) == list(names.values())
