"""Deformable convolution: exact to torchvision, differentiable, bounded in memory."""

import pytest
import torch
import torch.nn.functional as F
from tests.golden.zoo.recipe import about, golden

from vsrkit.models.layers.deform import DeformPack, deform_conv

CASES = sorted(["groups2_dg4", "anisotropic", "nopad", "integer", "far", "k1", "v1_nomask"])


@pytest.mark.parametrize("chunk", [2**24, 500], ids=["whole", "row by row"])
@pytest.mark.parametrize("case", CASES)
def test_equals_torchvision_with_all_gradients(case, chunk):
    data, options = golden(f"dcn_{case}"), about()["deform_cases"][case]
    inputs = {
        name: data[name].requires_grad_()
        for name in ("input", "offset", "mask", "weight", "bias")
        if name in data
    }
    out = deform_conv(
        inputs["input"],
        inputs["offset"],
        inputs.get("mask"),
        inputs["weight"],
        inputs.get("bias"),
        stride=tuple(options["stride"]),
        padding=tuple(options["padding"]),
        dilation=tuple(options["dilation"]),
        chunk=chunk,
    )
    # Positions pass through grid_sample's -1 ... 1 and come back with float32 rounding.
    torch.testing.assert_close(out, data["output"], rtol=0, atol=5e-6)
    (out * data["grad_output"]).sum().backward()
    for name, value in inputs.items():
        if f"grad_{name}" in data:  # there is none where the offset's gradient has a kink
            torch.testing.assert_close(value.grad, data[f"grad_{name}"], rtol=1e-4, atol=2e-5)


def test_without_offsets_it_is_a_convolution():
    x, weight, bias = torch.rand(2, 4, 7, 9), torch.rand(6, 4, 3, 3), torch.rand(6)
    out = deform_conv(x, torch.zeros(2, 18, 7, 9), torch.ones(2, 9, 7, 9), weight, bias)
    torch.testing.assert_close(out, F.conv2d(x, weight, bias, padding=1), rtol=0, atol=2e-5)


def test_whole_pixel_offsets_move_the_frame():
    x, weight = torch.rand(1, 2, 8, 8), torch.eye(2)[:, :, None, None]
    offset = torch.tensor([2.0, -1.0]).view(1, 2, 1, 1).expand(1, 2, 8, 8)  # 2 down, 1 left
    out = deform_conv(x, offset, None, weight, padding=(0, 0))
    torch.testing.assert_close(out[..., :6, 1:], x[..., 2:, :-1], rtol=0, atol=1e-5)
    assert out[..., 6:, :].abs().max() < 1e-5  # outside is 0; positions are rounded


@pytest.mark.parametrize("size", [(1, 5), (5, 1), (1, 1)])
def test_one_row_or_column(size):
    x, weight = torch.rand(1, 2, *size), torch.rand(3, 2, 3, 3)
    out = deform_conv(x, torch.zeros(1, 18, *size), None, weight)
    torch.testing.assert_close(out, F.conv2d(x, weight, padding=1), rtol=0, atol=1e-5)


def test_chunks_bound_the_memory(monkeypatch):
    seen = []
    sample = F.grid_sample
    monkeypatch.setattr(
        F, "grid_sample", lambda *args, **kw: seen.append(sample(*args, **kw)) or seen[-1]
    )
    x, offset = torch.rand(1, 8, 20, 30), torch.rand(1, 36, 20, 30)
    deform_conv(x, offset, None, torch.rand(4, 8, 3, 3), chunk=10_000)
    assert len(seen) == 5  # four rows of 30 x 9 taps x 8 channels are 8640 numbers
    assert max(part.numel() for part in seen) <= 10_000


@pytest.mark.parametrize("chunk", [2**24, 50], ids=["whole", "row by row"])
def test_gradients_equal_finite_differences(chunk):
    torch.manual_seed(0)
    shapes = [(1, 4, 4, 5), (1, 36, 4, 5), (1, 18, 4, 5), (3, 4, 3, 3), (3,)]
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    assert torch.autograd.gradcheck(lambda *args: deform_conv(*args, chunk=chunk), inputs)


def test_output_has_the_dtype_of_the_input():
    x = torch.rand(1, 4, 6, 6, dtype=torch.bfloat16)
    out = deform_conv(x, torch.zeros(1, 18, 6, 6), None, torch.rand(4, 4, 3, 3))
    assert out.dtype == torch.bfloat16


def test_pack_equals_basicsr():
    data = golden("dcn_pack")
    pack = DeformPack(16, groups=4)
    pack.weight = torch.nn.Parameter(data["state.weight"])
    pack.bias = torch.nn.Parameter(data["state.bias"])
    pack.conv_offset.weight = torch.nn.Parameter(data["state.conv_offset.weight"])
    pack.conv_offset.bias = torch.nn.Parameter(data["state.conv_offset.bias"])
    out = pack(data["input"], data["feat"])
    torch.testing.assert_close(out, data["output"], rtol=0, atol=5e-6)


def test_initial_offsets_are_zero_and_masks_half():
    pack, x = DeformPack(8, groups=2), torch.rand(1, 8, 6, 6)
    torch.testing.assert_close(
        pack(x, x), F.conv2d(x, pack.weight, padding=1) / 2, rtol=0, atol=1e-5
    )
