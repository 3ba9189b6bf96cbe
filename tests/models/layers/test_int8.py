"""Residual blocks and convolutions in int8: close to float, the same in any number of threads."""

import pickle

import pytest
import torch
from torch import nn

from vsrkit.hardware.int8 import int8_fault
from vsrkit.models.layers.blocks import ResidualBlock, ResidualBlocks, residual_blocks
from vsrkit.models.layers.int8 import (
    Int8Blocks,
    Int8Conv,
    Ranges,
    _rounded,
    observed,
    quantisable,
    quantised,
)

pytestmark = pytest.mark.skipif(int8_fault() is not None, reason=str(int8_fault()))


class Net(nn.Module):
    """Blocks of three widths, and a convolution that may run in int8."""

    int8_convolutions = ("last", "missing")

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = ResidualBlocks(*(ResidualBlock(32, width=w) for w in (16, 32, 48)))
        for block in self.blocks:
            nn.init.kaiming_normal_(block.conv1.weight)
            nn.init.normal_(block.conv1.bias, std=0.1)
            nn.init.normal_(block.conv2.bias, std=0.1)
        self.last = nn.Conv2d(32, 48, 3, padding=1)
        self.missing = None

    def forward(self, x):
        return self.last(self.blocks(x))


def features(h=21, w=35):
    x = torch.randn(1, 32, h, w, generator=torch.Generator().manual_seed(h))
    return x.contiguous(memory_format=torch.channels_last)


@pytest.fixture
def net():
    return Net().eval()


@torch.inference_mode()
def calibrated(net, x):
    copy, parts = observed(net)
    copy(x)
    return {name: part.ranges for name, part in parts.items()}


@pytest.mark.parametrize("exact", [False, True])
@torch.inference_mode()
def test_the_result_is_close_to_that_in_floats(net, exact):
    x = features()
    wanted = net(x)
    found = quantised(net, calibrated(net, x), exact=exact)(x)
    # A byte's step is about 1/30 of the standard deviation here, and there are seven roundings.
    error = (found - wanted).square().mean().sqrt() / wanted.square().mean().sqrt()
    assert 0 < error < 0.04


@torch.inference_mode()
def test_a_float_stream_is_more_precise_than_one_of_bytes(net):
    x = features()
    ranges, wanted = calibrated(net, x), net.blocks(x)
    bytes_, floats = (
        (quantised(net, ranges, exact=exact).blocks(x) - wanted).square().mean()
        for exact in (False, True)
    )
    assert floats < bytes_


@torch.inference_mode()
def test_exact_leaves_convolutions_and_single_blocks_in_floats(net):
    net.single = residual_blocks(1, 32)
    ranges = calibrated(net, features())
    ranges["single"] = Ranges(ranges["blocks"].stream[:2], ranges["blocks"].inner[:1], (1.0,) * 32)
    bytes_, exact = (quantised(net, ranges, exact=e) for e in (False, True))
    assert isinstance(bytes_.last, Int8Conv)
    assert isinstance(bytes_.single, Int8Blocks)
    assert isinstance(exact.blocks, Int8Blocks)
    assert isinstance(exact.last, nn.Conv2d)
    assert isinstance(exact.single, ResidualBlocks)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("size", [(17, 33), (64, 50)])
@torch.inference_mode()
def test_threads_change_no_bit(net, exact, size):
    x = features(*size)
    run = quantised(net, calibrated(net, x), exact=exact)
    threads, results = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            results.append(run(x))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0], results[1])


@torch.inference_mode()
def test_values_outside_of_the_ranges_are_clamped(net):
    x = features()
    run = quantised(net, calibrated(net, x), exact=False)
    assert run(100 * x).isfinite().all()


@torch.inference_mode()
def test_the_input_is_not_changed_and_its_type_is_kept(net):
    x = features().bfloat16()
    before = x.clone()
    for exact in (False, True):
        blocks = quantised(net, calibrated(net, x.float()), exact=exact).blocks
        assert blocks(x).dtype == torch.bfloat16
        assert torch.equal(x, before)


@torch.inference_mode()
def test_a_copy_leaves_the_model_alone_and_shares_its_weights(net):
    x = features()
    before = net(x)
    copy = quantised(net, calibrated(net, x), exact=False)
    assert isinstance(copy.blocks, Int8Blocks)
    assert torch.equal(net(x), before)
    assert copy.blocks.blocks[0].conv1.weight is net.blocks[0].conv1.weight


@torch.inference_mode()
def test_a_copy_that_has_run_can_be_sent_to_another_process(net):
    x = features()
    copy = quantised(net, calibrated(net, x), exact=False)
    wanted = copy(x)
    assert torch.equal(pickle.loads(pickle.dumps(copy))(x), wanted)


@torch.inference_mode()
def test_large_channels_do_not_take_the_steps_of_small_ones(net):
    """One channel of large values: without balance its range would be that of all channels."""
    x = features()
    x[:, 3] *= 30
    ranges, wanted = calibrated(net, x), net.blocks(x)
    assert ranges["blocks"].balance[3] > 2 * ranges["blocks"].balance[4]
    rest = [c for c in range(32) if c != 3]
    flat = {"blocks": Ranges(_unbalanced(net, x), ranges["blocks"].inner, (1.0,) * 32)}
    balanced, plain = (
        (quantised(net, r, exact=False).blocks(x) - wanted)[:, rest].square().mean()
        for r in (ranges, flat)
    )
    assert balanced < plain / 2


def _unbalanced(net, x):
    stream = [(float(x.min()), float(x.max()))]
    for block in net.blocks:
        x = block(x)
        stream.append((float(x.min()), float(x.max())))
    return tuple(stream)


def test_rounded_kernels_keep_their_sums():
    kernels = 20 * torch.randn(16, 32, 3, 3, generator=torch.Generator().manual_seed(3))
    rounded = _rounded(kernels)
    assert torch.equal(rounded, rounded.round())
    assert (rounded - kernels).abs().max() < 1.5  # single values go to the second nearest step
    sums = (rounded - kernels).sum((2, 3)).abs()
    assert sums.max() < 0.5 + 1e-4 < (kernels.round() - kernels).sum((2, 3)).abs().max()


def test_only_blocks_with_relu_and_named_convolutions_run_in_int8(net):
    assert quantisable(net) == ["last", "blocks"]
    assert quantisable(nn.Sequential(residual_blocks(2, 16, slope=0.1))) == []
    assert quantisable(nn.Sequential(residual_blocks(0, 16))) == []
