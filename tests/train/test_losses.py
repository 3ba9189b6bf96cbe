import numpy as np
import pytest
import torch
from tests import paths

from vsrkit.errors import VsrkitError
from vsrkit.models.edvr import EDVR, EDVRConfig
from vsrkit.models.rrn import RRN, RRNConfig
from vsrkit.models.vsrt_small import SmallConfig, VSRTSmall
from vsrkit.train.losses import (
    FLOOR,
    Charbonnier,
    Colour,
    Grid,
    ModelLoss,
    Output,
    Psnr,
    Spectrum,
    Steadiness,
    charbonnier,
    square_error,
    temporal_change,
    weight_luma,
)


def psnr_loss(model, **options):
    return ModelLoss(model, [Psnr(**options)])


GOLDEN = np.load(paths.GOLDEN / "charbonnier.npz")


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_charbonnier_equals_the_release(reduction):
    a, b = (torch.from_numpy(GOLDEN[name]) for name in "ab")
    # float32 sums of this many numbers, added up in another order
    assert float(charbonnier(a, b, reduction=reduction)) == pytest.approx(
        float(GOLDEN[reduction]), rel=1e-6
    )


@pytest.fixture
def panned():
    """(1, 4, 3, 64, 64): a picture that moves by 4 HR pixels (1 LR pixel) to the left."""
    torch.manual_seed(0)
    picture = torch.nn.functional.interpolate(torch.rand(1, 3, 12, 12), size=(64, 96))[0]
    return torch.stack([picture[..., 4 * t : 4 * t + 64] for t in range(4)])[None]


def test_mirrored_clips_are_followed_by_their_frames_in_reverse_order(preset):
    lr, hr = torch.rand(2, 3, 3, 16, 16), torch.rand(2, 3, 3, 64, 64)
    plain = ModelLoss(preset, [Charbonnier()])
    mirrored = ModelLoss(preset, [Charbonnier()], mirrored=True)
    both = [torch.stack([clip[:, t] for t in (0, 1, 2, 2, 1, 0)], 1) for clip in (lr, hr)]
    assert mirrored(lr, hr) == plain(*both) != plain(lr, hr)


def to_prev(pixels):
    flow = torch.zeros(1, 3, 2, 16, 16)
    flow[:, :, 0] = pixels
    return flow


def test_motion_along_the_flow_is_no_change(panned):
    # 1e-10: positions are rounded to float32.
    assert temporal_change(panned, panned, to_prev(1.0)) < 1e-10
    # Along a wrong flow HR itself changes: those pixels count as occluded.
    strange = panned.flip(1)
    assert temporal_change(strange, panned, to_prev(1.0)) > temporal_change(
        strange, panned, to_prev(-5.0)
    )


def test_flicker_costs_its_square(panned):
    flickering = panned + 0.1 * torch.tensor([0.0, 1, 0, 1]).view(1, 4, 1, 1, 1)
    inside = 60 / 64  # the last columns of each frame were outside of the previous one
    assert float(temporal_change(flickering, panned, to_prev(1.0))) == pytest.approx(
        0.01 * inside, rel=1e-4
    )
    # A constant error does not flicker.
    assert temporal_change(panned + 0.1, panned, to_prev(1.0)) < 1e-10


def test_temporal_change_has_gradients_for_frames_but_not_for_the_flow(panned):
    sr, flow = torch.rand_like(panned).requires_grad_(), to_prev(1.0).requires_grad_()
    temporal_change(sr, panned, flow).backward()
    assert sr.grad.abs().sum() > 0
    assert flow.grad is None


def test_temporal_change_is_computed_for_each_clip(panned):
    flickering = panned + 0.1 * torch.tensor([0.0, 1, 0, 1]).view(1, 4, 1, 1, 1)
    both = temporal_change(
        torch.cat([panned, flickering]),
        panned.expand(2, -1, -1, -1, -1),
        to_prev(1.0).repeat(2, 1, 1, 1, 1),
    )
    assert both.shape == (2,)
    assert both[0] < 1e-10 < both[1]


def test_luma_weighs_most():
    grey, colour = torch.zeros(2, 1, 1, 3, 4, 4)
    grey += 1
    colour[:, :, 0], colour[:, :, 1] = 0.587, -0.299  # red against green, with a luma of 0
    assert weight_luma(grey).square().sum(2).mean() == pytest.approx(1)
    plain = colour.square().sum(2).mean().item() / 3
    assert weight_luma(colour).square().sum(2).mean().item() == pytest.approx(0.3 * plain)


class Shift(torch.nn.Module):
    """Enlarges the clips of a batch and adds one value to each."""

    def __init__(self, *by: float) -> None:
        super().__init__()
        self.by = torch.nn.Parameter(torch.tensor(by))

    def forward(self, clip):
        return clip.repeat_interleave(4, -1).repeat_interleave(4, -2) + self.by.view(-1, 1, 1, 1, 1)


def test_easy_clips_weigh_as_much_as_hard_ones():
    lr = torch.rand(2, 3, 3, 4, 4)
    goal = Shift(0.0, 0.0)(lr).detach()
    model = Shift(0.2, 0.05)
    loss = psnr_loss(model)(lr, goal)["psnr"]
    assert loss.item() == pytest.approx((np.log(0.04 + FLOOR) + np.log(0.0025 + FLOOR)) / 2)
    loss.backward()
    # Reducing either error by a tenth gains the same, but for the floor.
    hard, easy = (model.by.grad * model.by.detach()).tolist()
    assert easy == pytest.approx(hard, rel=0.05)


def test_errors_below_the_floor_count_little():
    lr = torch.rand(1, 3, 3, 4, 4)
    goal = Shift(0.0)(lr).detach()
    assert psnr_loss(Shift(1e-4))(lr, goal)["psnr"].item() == pytest.approx(np.log(FLOOR), abs=1e-3)


@pytest.fixture
def preset():
    torch.manual_seed(0)
    model = VSRTSmall(
        SmallConfig(channels=8, tower_blocks=1, attention_channels=8, flow_channels=8)
    )
    torch.nn.init.normal_(model.tail.conv.weight, std=0.05)  # zero weights would pass no gradient
    for level in model.flow.levels:
        torch.nn.init.normal_(level[-1].weight, std=0.1)
    return model.train()


def test_steadiness_adds_the_temporal_change(preset):
    torch.manual_seed(1)
    lr, hr = torch.rand(2, 4, 3, 16, 16), torch.rand(2, 1, 3, 64, 64).expand(-1, 4, -1, -1, -1)
    with torch.no_grad():
        found = psnr_loss(preset, steadiness=2.0)(lr, hr)["psnr"]
        sr, (to_prev, _) = preset(lr), preset.flows(list(lr.unbind(1)))
        change = temporal_change(sr, hr, torch.stack(to_prev[1:], 1))
        expected = torch.log(square_error(sr, hr) + 2 * change + FLOOR).mean()
    assert change.min() > 0
    torch.testing.assert_close(found, expected)
    one = psnr_loss(preset, steadiness=2.0)(
        lr[:, :1], hr[:, :1]
    )  # one frame has no temporal change
    torch.testing.assert_close(one, psnr_loss(preset)(lr[:, :1], hr[:, :1]))


def test_the_flow_is_trained_too(preset):
    lr, hr = torch.rand(1, 3, 3, 16, 16), torch.rand(1, 3, 3, 64, 64)
    psnr_loss(preset, steadiness=1.0)(lr, hr)["psnr"].backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in preset.flow.parameters())


def test_models_that_output_the_centre_are_compared_with_the_centre():
    model = EDVR(EDVRConfig(channels=8, frames=3, groups=2, extract_blocks=1, reconstruct_blocks=1))
    lr, hr = torch.rand(1, 3, 3, 16, 16), torch.rand(1, 3, 3, 64, 64)
    with torch.no_grad():
        expected = torch.log(square_error(model(lr), hr[:, 1:2]) + FLOOR).mean()
        torch.testing.assert_close(psnr_loss(model)(lr, hr)["psnr"], expected)


def test_steadiness_is_refused_for_models_without_its_flow():
    with pytest.raises(
        VsrkitError, match="steadiness and gan_frames = 3 need the flow of a preset"
    ):
        psnr_loss(RRN(RRNConfig(channels=4, blocks=1)), steadiness=1.0)


def output(sr, hr, flow=None):
    return Output(sr, hr, flow, flow)


def test_terms_are_weighted_and_added_by_name(preset):
    lr, hr = torch.rand(1, 3, 3, 16, 16), torch.rand(1, 3, 3, 64, 64)
    with torch.no_grad():
        terms = ModelLoss(preset, [Charbonnier(weight=2.0), Steadiness(weight=3.0)])(lr, hr)
        sr, (to_prev, _) = preset(lr), preset.flows(list(lr.unbind(1)))
    assert list(terms) == ["charbonnier", "steadiness"]
    torch.testing.assert_close(terms["charbonnier"], 2 * charbonnier(sr, hr))
    change = temporal_change(sr, hr, torch.stack(to_prev[1:], 1))
    torch.testing.assert_close(terms["steadiness"], 3 * (change + 1e-6).sqrt().mean())


def test_steadiness_weighs_calm_and_busy_clips_by_their_root(panned):
    change = torch.tensor([0.0, 1, 0, 1]).view(1, 4, 1, 1, 1)
    weak, strong = (
        Steadiness(weight=1.0)(output(panned + by * change, panned, to_prev(1.0)))["steadiness"]
        for by in (0.05, 0.1)
    )
    assert float(strong / weak) == pytest.approx(2, rel=1e-3)


def test_subpixels_that_are_brighter_on_average_cost_their_square():
    torch.manual_seed(0)
    hr = torch.rand(2, 3, 3, 24, 24)
    pattern = torch.tensor([0.01, 0, -0.01, 0]).repeat(6)
    term = Grid(weight=0.5, scale=4)
    assert term(output(hr, hr))["grid"] == 0
    # 1e-6: sums of float32. A colour that is off everywhere is no pattern.
    assert float(term(output(hr + 0.1, hr))["grid"]) < 1e-6
    sr = (hr + pattern).requires_grad_()
    [found] = term(output(sr, hr)).values()
    assert float(found.detach()) == pytest.approx(0.5 * 2.55**2 / 2, rel=1e-4)
    found.backward()
    # The gradient points along the pattern: less of it costs less.
    assert (sr.grad.sum((0, 1, 2, 3)) * pattern).sum() > 0


def test_colours_of_squares_are_compared_without_their_details():
    hr = torch.rand(1, 2, 3, 32, 32)
    detail = torch.tensor([0.1, -0.1]).repeat(16)
    term = Colour(weight=2.0)
    # 1e-6: sums of float32
    assert term(output(hr + detail, hr))["colour"] < 1e-6
    assert float(term(output(hr + 0.1, hr))["colour"]) == pytest.approx(0.2, rel=1e-4)


def test_power_costs_only_where_the_output_has_more_of_it():
    torch.manual_seed(0)
    hr = torch.rand(1, 2, 3, 64, 64)
    term = Spectrum(weight=0.5)
    assert term(output(hr, hr))["spectrum"] == 0
    assert term(output(0.5 * hr, hr))["spectrum"] == 0
    twice = float(term(output(2 * hr, hr))["spectrum"])
    assert twice == pytest.approx(0.5 * 10 * np.log10(4), rel=1e-3)
    # A pattern that grows and fades has no peak at a multiple of a quarter, but more power.
    x = torch.arange(64)
    fading = 0.3 * torch.cos(x * torch.pi / 2) * torch.sin(x * torch.pi / 64)
    assert term(output(hr + fading, hr))["spectrum"] > 0.1
