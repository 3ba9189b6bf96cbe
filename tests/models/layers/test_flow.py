"""Warp and the flow networks: exact to the reference, safe in every precision."""

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tests.golden.recipe import tensor_for, video
from tests.paths import GOLDEN

from vsrkit.models.layers.flow import (
    LightFlow,
    SPyNet,
    _lucas_kanade_bands,
    _lucas_kanade_step,
    compose_flows,
    spynet_basicsr_name,
    spynet_public_name,
    warp,
)

GOLDEN = {
    name: value
    for name, value in load_file(GOLDEN / "vsrt.safetensors").items()
    if name.startswith(("warp.", "spynet."))
}


@pytest.fixture(scope="module")
def spynet():
    net = SPyNet().eval()
    for name, value in net.named_parameters():
        value.data = tensor_for("spynet.spynet." + spynet_public_name(name), value.shape)
    return net


@pytest.mark.parametrize("padding", ["zeros", "border"])
def test_warp_and_its_gradients_equal_the_reference(padding):
    x = GOLDEN["warp.x"].requires_grad_()
    flow = GOLDEN["warp.flow_nhw2"].permute(0, 3, 1, 2).contiguous().requires_grad_()
    out = warp(x, flow, padding=padding)
    torch.testing.assert_close(out, GOLDEN[f"warp.{padding}.out"], atol=1e-5, rtol=0)
    grad_x, grad_flow = torch.autograd.grad(out.square().sum(), (x, flow))
    torch.testing.assert_close(grad_x, GOLDEN[f"warp.{padding}.grad_x"], atol=1e-5, rtol=1e-5)
    wanted = GOLDEN[f"warp.{padding}.grad_flow"].permute(0, 3, 1, 2)
    torch.testing.assert_close(grad_flow, wanted, atol=1e-4, rtol=1e-5)


def test_composed_flows_add_up_along_the_path():
    """Everything moves by (2, 1), then the left half by (1, 0) and the right half by (0, 3)."""
    first = torch.tensor([2.0, 1.0]).view(1, 2, 1, 1).expand(1, 2, 6, 8)
    second = torch.zeros(1, 2, 6, 8)
    second[:, 0, :, :4], second[:, 1, :, 4:] = 1, 3
    both = compose_flows(first, second)
    assert both[0, :, 0, 1].tolist() == [3, 1]  # is in the left half after the first step
    assert both[0, :, 0, 2].tolist() == [2, 4]  # crosses into the right half
    assert both[0, :, 0, 7].tolist() == [2, 1]  # leaves the frame


def test_warp_nearest_equals_the_reference():
    flow = GOLDEN["warp.flow_nhw2"].permute(0, 3, 1, 2)
    out = warp(GOLDEN["warp.x"], flow, mode="nearest")
    assert torch.equal(out, GOLDEN["warp.zeros.out_nearest"])


def test_warp_follows_the_convention():
    x = torch.arange(20.0).view(1, 1, 4, 5)
    flow = torch.zeros(1, 2, 4, 5)
    flow[:, 0] = 1  # one pixel to the right
    assert torch.equal(warp(x, flow)[..., :-1], x[..., 1:])
    flow = torch.zeros(1, 2, 4, 5)
    flow[:, 1] = 1  # one pixel down
    torch.testing.assert_close(warp(x, flow)[..., :-1, :], x[..., 1:, :])


def test_warp_gradients_equal_finite_differences():
    torch.manual_seed(0)
    x, flow = (torch.randn(1, c, 4, 5, dtype=torch.float64, requires_grad=True) for c in (3, 2))
    assert torch.autograd.gradcheck(warp, (x, flow))


@pytest.mark.parametrize("padding", ["zeros", "border"])
def test_warp_reads_inside_the_frame_if_flow_is_nan(padding):
    flow = torch.full((1, 2, 24, 24), float("nan"), requires_grad=True)
    x = torch.rand(1, 16, 24, 24, requires_grad=True)
    out = warp(x, flow, padding=padding)
    out.sum().backward()
    if padding == "border":  # NaN is the centre of the frame
        middle = x[..., 11:13, 11:13].mean((2, 3), keepdim=True)
        torch.testing.assert_close(out, middle.expand_as(out))
        assert x.grad.sum() == out.numel()
        assert not flow.grad.any()
    else:
        assert out.isnan().all()
        assert not x.grad.any()


@pytest.mark.parametrize("size", [(2, 2), (2, 7), (13, 24)])
@torch.no_grad()
def test_warp_of_channels_last_features_equals_the_contiguous_one(size):
    """Flow to far outside, the border and whole pixels, compared in float64."""
    torch.manual_seed(0)
    x = torch.randn(2, 16, *size, dtype=torch.float64)
    flow = torch.randn(2, 2, *size, dtype=torch.float64) * 6
    flow[0] = flow[0].round()
    flow[1, :, 0, 0] = 1e9
    rows = warp(x.contiguous(memory_format=torch.channels_last), flow)
    torch.testing.assert_close(rows, warp(x, flow), atol=1e-12, rtol=0)


@torch.no_grad()
def test_warp_of_channels_last_features_stays_inside_for_any_flow():
    x = torch.ones(1, 16, 8, 9).contiguous(memory_format=torch.channels_last)
    for strange in (float("nan"), float("inf"), -float("inf"), 1e30):
        out = warp(x, torch.full((1, 2, 8, 9), strange))
        assert torch.isfinite(out).all()


def test_warp_never_samples_with_a_bfloat16_grid():
    """bfloat16 cannot represent 319: such a grid reads outside of a row of 320 pixels."""
    x, flow = torch.rand(1, 2, 9, 320), torch.rand(1, 2, 9, 320) * 8 - 4
    wanted = warp(x, flow, padding="border")
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(warp(x, flow, padding="border"), wanted)
    rounded = warp(x.bfloat16(), flow, padding="border")
    assert rounded.dtype == torch.bfloat16
    # Only the values were rounded (8 bits), not the places.
    torch.testing.assert_close(rounded.float(), wanted, atol=0.01, rtol=0)


def assert_same_flow(flow, wanted):
    """Within 1e-5 of the flow's range: processors round thirty 7x7 convolutions differently."""
    torch.testing.assert_close(flow, wanted, atol=1e-5 * wanted.abs().max().item(), rtol=0)


@pytest.mark.parametrize("size", ["1x33x40", "1x70x101"])
def test_spynet_equals_the_reference_at_odd_sizes(spynet, size):
    ref, near = GOLDEN[f"spynet.{size}.ref"], GOLDEN[f"spynet.{size}.supp"]
    with torch.no_grad():
        flow = spynet(ref, near)
    assert_same_flow(flow, GOLDEN[f"spynet.{size}.flow"])


@pytest.mark.parametrize(("seed", "n", "h", "w"), [(10, 2, 64, 64), (11, 1, 96, 64)])
def test_spynet_equals_the_reference(spynet, seed, n, h, w):
    ref, near = video(seed, n, 2, h, w).unbind(1)
    with torch.no_grad():
        flow = spynet(ref, near)
    assert_same_flow(flow, GOLDEN[f"spynet.{n}x{h}x{w}.flow"])


def test_spynet_names_in_both_public_styles():
    assert spynet_public_name("levels.3.4.weight") == "basic_module.3.basic_module.2.conv.weight"
    assert spynet_basicsr_name("levels.3.4.weight") == "basic_module.3.basic_module.4.weight"
    assert spynet_public_name("mean") == spynet_basicsr_name("mean") == "mean"


def test_spynet_has_the_published_number_of_parameters():
    assert sum(p.numel() for p in SPyNet().parameters()) == 1_440_300


@pytest.mark.parametrize(("h", "w"), [(16, 16), (17, 31), (45, 64)])
def test_light_flow_has_both_directions_at_any_size(h, w):
    net = LightFlow(channels=8).eval()
    torch.nn.init.normal_(net.levels[-1][-1].weight, std=0.1)
    a, b = torch.rand(2, 3, h, w), torch.rand(2, 3, h, w)
    with torch.no_grad():
        there, back = net(a, b)
    assert there.shape == back.shape == (2, 2, h, w)
    assert there.isfinite().all()
    assert there.abs().max() > 0


def test_an_untrained_light_flow_finds_a_shift():
    torch.manual_seed(0)
    still = F.interpolate(torch.rand(1, 3, 20, 20), (104, 104), mode="bicubic")
    a, b = still[..., 4:68, 4:68], still[..., 2:66, 7:71]  # 3 pixels to the left, 2 down
    there, back = LightFlow(channels=8)(a, b)
    inner = (..., slice(16, 48), slice(16, 48))
    expected = torch.tensor([-3.0, 2.0]).view(1, 2, 1, 1).expand_as(there[inner])
    for found, wanted in ((there[inner], expected), (back[inner], -expected)):
        # closed form, not trained: a tenth of a pixel is what two steps per level reach
        assert (found - wanted).abs().mean() < 0.1
        assert (found - wanted).abs().max() < 0.4


def test_light_flow_of_equal_frames_is_zero():
    frame = torch.rand(1, 3, 32, 32)
    there, back = LightFlow(channels=8)(frame, frame)
    # a warp by nothing is exact but for the rounding of its coordinates
    assert there.abs().max() < 1e-3
    assert back.abs().max() < 1e-3


@pytest.mark.parametrize("size", [(7, 900), (90, 640), (61, 33)])
def test_bands_of_rows_have_the_bits_of_whole_frames(size):
    a, b = torch.rand(2, 2, 1, *size, generator=torch.Generator().manual_seed(size[0]))
    assert torch.equal(_lucas_kanade_bands(a, b), _lucas_kanade_step(a, b))
