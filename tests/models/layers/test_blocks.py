"""Fused operations give the results of the plain ones, in float32 bit by bit."""

import copy
import gc

import pytest
import torch

from vsrkit.hardware.device import Precision, set_memory_layout
from vsrkit.models.layers import blocks
from vsrkit.models.layers.blocks import (
    ResidualBlock,
    activated,
    can_fuse,
    conv3x3,
    residual_blocks,
)

LAST = Precision("float32", channels_last=True)


def block_of(channels=16, slope=0.0):
    torch.manual_seed(1)
    block = ResidualBlock(channels, slope).eval()
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    set_memory_layout(block, LAST)
    return block


def features(*shape):
    return torch.randn(*shape).contiguous(memory_format=torch.channels_last)


def unfused(block, x):
    """The output with gradients enabled, when operations are not fused."""
    with torch.enable_grad():
        return block(x.clone(memory_format=torch.preserve_format)).detach()


needs_fused = pytest.mark.skipif(
    not blocks._has_fused_operations(), reason="this build of PyTorch has no oneDNN"
)


@needs_fused
@pytest.mark.parametrize("slope", [0.0, 0.1])
@pytest.mark.parametrize(
    "shape", [(1, 16, 9, 13), (3, 16, 32, 20), (1, 64, 45, 80), (5, 64, 16, 16)]
)
def test_same_bits_as_the_plain_block(shape, slope):
    block, x = block_of(shape[1], slope), features(*shape)
    kept = x.clone()
    with torch.inference_mode():
        assert can_fuse(x, block.conv1.weight)
        assert torch.equal(block(x), unfused(block, x))
    assert torch.equal(x, kept)  # the caller's input is not overwritten


@needs_fused
def test_a_sequence_overwrites_neither_its_input_nor_hooked_tensors():
    torch.manual_seed(0)
    sequence, x = residual_blocks(3, 16).eval(), features(2, 16, 12, 20)
    set_memory_layout(sequence, LAST)
    kept, seen = x.clone(), []
    with torch.inference_mode():
        run_per_frame = [x]
        for block in sequence:
            run_per_frame.append(block(run_per_frame[-1]))
        assert torch.equal(sequence(x), run_per_frame[-1])
        handle = sequence[1].register_forward_hook(
            lambda _, args, output: seen.append((*args, output))
        )
        assert torch.equal(sequence(x), run_per_frame[-1])
        handle.remove()
    given, output = seen[0]  # not overwritten after the hook saw them
    assert torch.equal(given, run_per_frame[1])
    assert torch.equal(output, run_per_frame[2])
    assert torch.equal(x, kept)


@needs_fused
@pytest.mark.parametrize("outputs", [3, 16, 48])
def test_same_bits_as_convolution_and_activation(outputs):
    conv, x = conv3x3(19, outputs).to(memory_format=torch.channels_last), features(2, 19, 21, 30)
    with torch.inference_mode():
        assert can_fuse(x, conv.weight)
        assert torch.equal(activated(conv, x, 0.1), torch.nn.functional.leaky_relu(conv(x), 0.1))


@pytest.mark.skipif(
    not (blocks._has_fused_operations() and blocks._has_fused_bfloat16(torch.bfloat16)),
    reason="this processor has no bfloat16 instructions",
)
@pytest.mark.parametrize("slope", [0.0, 0.1])
def test_bfloat16_is_as_accurate_as_the_plain_block(slope):
    block, x = block_of(64, slope), features(2, 64, 24, 20)
    exact = unfused(copy.deepcopy(block).double(), x.bfloat16().double())
    with torch.autocast("cpu", torch.bfloat16):
        plain = unfused(block, x.bfloat16())
        with torch.inference_mode():
            assert can_fuse(x.bfloat16(), block.conv1.weight)
            fused = block(x.bfloat16())
    assert fused.dtype == plain.dtype == torch.bfloat16
    size = exact.square().mean()
    apart, usual = ((y.double() - exact).square().mean() / size for y in (fused, plain))
    assert apart < 1.1 * usual  # rounded once less; both are about 2^-9 off
    assert apart > 0


@needs_fused
def test_changed_weights_are_packed_again():
    block, x = block_of(), features(1, 16, 8, 8)
    with torch.no_grad():
        before = block(x)
        block.conv2.weight.mul_(2)
        block.conv2.bias.add_(1)
        doubled = block(x)
        assert not torch.equal(before, doubled)
        assert torch.equal(doubled, unfused(block, x))
        block.load_state_dict({name: value / 3 for name, value in block.state_dict().items()})
        assert torch.equal(block(x), unfused(block, x))
        other = copy.deepcopy(block)
        other.conv1.weight.add_(1)
        assert torch.equal(other(x), unfused(other, x))
        assert torch.equal(block(x), unfused(block, x))


def test_packed_weights_are_freed_with_their_layer():
    block = block_of()
    gc.collect()
    before = len(blocks._packed)  # of models that other tests keep
    with torch.no_grad():
        block(features(1, 16, 8, 8))
    del block
    gc.collect()
    assert len(blocks._packed) <= before


def test_other_inputs_are_not_fused():
    block, x = block_of(), features(1, 16, 8, 8)
    weight = block.conv1.weight
    assert not can_fuse(x, weight)  # gradients are enabled
    with torch.no_grad():
        assert not can_fuse(x.contiguous(), weight)
        assert not can_fuse(x.bfloat16(), weight)
        assert not can_fuse(x.double(), weight)
        with torch.autocast("cpu", torch.bfloat16):
            assert not can_fuse(x, weight)
        with torch.autocast("cpu", torch.float16):
            assert not can_fuse(x.half(), weight)
    with torch.inference_mode():
        assert not can_fuse(x, weight.clone())  # inference tensors have no version counter
