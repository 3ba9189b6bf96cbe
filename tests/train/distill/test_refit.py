"""Fits by least squares recover known convolutions; a refit changes only the last one."""

from copy import deepcopy
from pathlib import Path

import pytest
import torch
from tests.train.conftest import moving_picture, write_cache
from torch import nn

from vsrkit.data.degrade import Fixed
from vsrkit.errors import VsrkitError
from vsrkit.hardware.device import Precision
from vsrkit.models.rrn import RRN, RRNConfig
from vsrkit.models.vsrt_small import SmallConfig, VSRTSmall
from vsrkit.models.zoo import load_model
from vsrkit.train.distill import refit as refitting
from vsrkit.train.distill.refit import (
    fit,
    last_convolution,
    normal_equations,
    prune_channels,
    refit,
    refit_clips,
    remove_grid,
)
from vsrkit.train.loop import train
from vsrkit.train.training_data import ClipPair

PLAIN = Precision("float32", channels_last=False)
DIRECT = SmallConfig(channels=8, tower_blocks=1, attention_channels=8)
TWO_STAGE = SmallConfig(
    channels=8, tower_blocks=1, attention=False, head_blocks=0, tail="two-stage", tail_widths=(8, 8)
)


def made_by(model):
    """A clip whose HR is the output of the model."""
    lr = torch.rand(4, 3, 16, 16)
    with torch.no_grad():
        return ClipPair("a", lr, model(lr[None])[0])


@pytest.fixture
def undamped(monkeypatch):
    """Fit without damping, colours and luma alike."""
    monkeypatch.setattr(refitting, "REFIT_DAMPING", 1e-9)
    monkeypatch.setattr(refitting, "LUMA_STEP", 1.0)


@pytest.mark.parametrize("config", [DIRECT, TWO_STAGE], ids=["direct", "two-stage"])
@pytest.mark.usefixtures("undamped")
def test_a_disturbed_convolution_is_recovered(config):
    torch.manual_seed(0)
    good = VSRTSmall(config).eval()
    for p in last_convolution(good).parameters():
        torch.nn.init.normal_(p, std=0.1)
    disturbed = deepcopy(good)
    for p in last_convolution(disturbed).parameters():
        p.data.add_(0.05 * torch.randn_like(p))
    clips = [made_by(good) for _ in range(3)]
    refit(disturbed, clips, PLAIN, "cpu")
    new = torch.rand(1, 3, 3, 16, 16)
    with torch.no_grad():
        # Inverted sums of float32 products: about half of the digits are left.
        torch.testing.assert_close(disturbed(new), good(new), atol=1e-3, rtol=0)


def test_only_the_last_convolution_changes_and_hooks_are_gone():
    torch.manual_seed(0)
    model = VSRTSmall(DIRECT).eval()
    before = deepcopy(model.state_dict())
    refit(
        model,
        [ClipPair("a", torch.rand(3, 3, 16, 16), torch.rand(3, 3, 64, 64))],
        PLAIN,
        "cpu",
    )
    changed = {name for name, tensor in model.state_dict().items() if tensor.ne(before[name]).any()}
    assert changed == {"tail.conv.weight", "tail.conv.bias"}
    assert not model.tail.conv._forward_hooks


@pytest.mark.usefixtures("undamped")
def test_clips_are_weighted_by_their_mean_square_error():
    torch.manual_seed(0)
    fresh = VSRTSmall(DIRECT).eval()  # its tail is zero: it adds no detail
    grey = [torch.full((3, 3, 16, 16), 0.5)] * 2
    base = torch.full((3, 3, 64, 64), 0.5)
    # The same frames with two brighter targets. Equal weights would give the mean of the targets,
    # 0.5 + (0.1 + 0.3) / 2; division by the square errors moves it towards the closer one.
    clips = [ClipPair("a", grey[0], base + 0.1), ClipPair("b", grey[1], base + 0.3)]
    refit(fresh, clips, PLAIN, "cpu")
    with torch.no_grad():
        middle = fresh(grey[0][None])[0, 1, :, 16:48, 16:48].mean()
    weights = 1 / 0.1**2, 1 / 0.3**2
    expected = 0.5 + (0.1 * weights[0] + 0.3 * weights[1]) / sum(weights)
    assert float(middle) == pytest.approx(expected, abs=2e-3)


@pytest.mark.usefixtures("undamped")
def test_a_clip_without_error_neither_fails_nor_dominates():
    torch.manual_seed(0)
    fresh = VSRTSmall(DIRECT).eval()  # its output for black is black
    black = ClipPair("a", torch.zeros(3, 3, 16, 16), torch.zeros(3, 3, 64, 64))
    bright = ClipPair("b", torch.full((3, 3, 16, 16), 0.5), torch.full((3, 3, 64, 64), 0.7))
    refit(fresh, [black, bright], PLAIN, "cpu")
    with torch.no_grad():
        made = fresh(bright.lr[None])[0, 1, :, 16:48, 16:48].mean()
    # Black still weighs 400 times as much (an error of 0.04 over the floor of 1e-4); with a floor
    # of 1e-6 the result would be 0.03 lower.
    assert float(made) == pytest.approx(0.7, abs=0.015)


def test_clips_too_small_for_the_models_are_left_out(tmp_path):
    sides = {"small": 60, "large": 96}
    clips = [write_cache(tmp_path, moving_picture(4, sides[name]), name) for name in sides]
    [found] = refit_clips(clips, Fixed())
    assert (found.name, found.lr.shape) == ("large", (4, 3, 24, 24))


def test_luma_changes_by_a_share_and_colour_differences_fully():
    change = torch.randn(48, 5)
    moved = refitting.damp_luma(change).unflatten(0, (3, 16))
    change = change.unflatten(0, (3, 16))
    luma, luma_moved = (
        torch.einsum("c,cpi->pi", refitting.Y_SHARES.float(), x) for x in (change, moved)
    )
    torch.testing.assert_close(luma_moved, refitting.LUMA_STEP * luma)
    # Differences between the channels do not depend on luma.
    torch.testing.assert_close(moved[0] - moved[1], change[0] - change[1])
    torch.testing.assert_close(moved[2] - moved[1], change[2] - change[1])


def pattern_of(frames):
    """The mean of each subpixel of a colour, relative to that of all."""
    places = torch.nn.functional.pixel_unshuffle(frames, 4).mean((0, 2, 3)).unflatten(0, (3, 16))
    return places - places.mean(1, keepdim=True)


def test_a_pattern_is_removed_and_details_stay():
    torch.manual_seed(0)
    good = VSRTSmall(DIRECT).eval()
    for p in last_convolution(good).parameters():
        torch.nn.init.normal_(p, std=0.05)

    def clip():
        lr = torch.rand(4, 3, 24, 24) * torch.rand(3, 1, 1)
        with torch.no_grad():
            return ClipPair("a", lr, good(lr[None])[0])

    clips, new = [clip() for _ in range(12)], clip()
    bad = deepcopy(good)
    stripes = torch.tensor([0.02, 0, -0.02, 0]).repeat(12)
    last_convolution(bad).bias.data += stripes
    last_convolution(bad).weight.data += 0.2 * stripes.view(-1, 1, 1, 1)
    before, after = deepcopy(bad), bad
    remove_grid(after, clips, PLAIN, "cpu")
    with torch.no_grad():
        was, now = (model(new.lr[None])[0] - new.hr for model in (before, after))
    assert pattern_of(was).abs().max() > 0.015
    assert pattern_of(now).abs().max() < 0.002
    assert now.std() < was.std()


def test_a_tail_of_two_stages_has_no_grid_to_remove():
    model = VSRTSmall(TWO_STAGE).eval()
    with pytest.raises(VsrkitError, match="whose tail is one convolution"):
        remove_grid(model, [made_by(model)], PLAIN, "cpu")


@pytest.mark.parametrize("goal", ["hr", "no-grid"])
def test_a_run_ends_with_a_refitted_model(config, goal):
    c = config(steps=2, refit="bi", refit_goal=goal)
    train(c)
    last, refitted = (
        load_model(Path(c.run_dir) / f"{name}.safetensors").state_dict()
        for name in ("last", "refitted")
    )
    changed = {name for name in last if last[name].ne(refitted[name]).any()}
    assert changed == {"tail.conv.weight", "tail.conv.bias"}


def test_an_impossible_refit_is_refused_before_the_first_step(config, tmp_path):
    with pytest.raises(VsrkitError, match="refit is only for vsrt-s and vsrt-m"):
        last_convolution(RRN(RRNConfig(channels=4, blocks=1)))
    with pytest.raises(VsrkitError, match="got 99"):
        train(config(refit="crf99"))
    assert not (tmp_path / "run" / "log.jsonl").exists()


def test_a_convolution_is_recovered_from_its_output():
    torch.manual_seed(0)
    conv, x = nn.Conv2d(5, 4, 3, padding=1), torch.randn(4, 5, 20, 20)
    with torch.no_grad():
        equations = normal_equations(x, conv(x), 4000)
        found = fit(equations, list(range(5)))
    # The damping is 1e-4 of the mean square.
    torch.testing.assert_close(found.weight, conv.weight.data, atol=1e-3, rtol=0)
    torch.testing.assert_close(found.bias, conv.bias.data, atol=1e-3, rtol=0)
    assert found.error < 1e-3 * equations.square


def test_redundant_channels_are_removed_first():
    torch.manual_seed(0)
    x = torch.randn(4, 6, 20, 20)
    x[:, 5] = 2 * x[:, 0]  # redundant
    conv = nn.Conv2d(6, 4, 3, padding=1)
    with torch.no_grad():
        conv.weight[:, 3] *= 1e-3  # has almost no effect
        fits = prune_channels(normal_equations(x, conv(x), 4000), [6, 5, 4, 3])
    assert 3 not in fits[4].channels
    assert len({0, 5} & set(fits[4].channels)) == 1
    assert fits[4].error < 0.01 * fits[3].error
    errors = [fits[size].error for size in (6, 5, 4, 3)]
    assert errors == sorted(errors)
