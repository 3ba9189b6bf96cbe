"""The presets accept any size and length, `keep` is exact, and BasicVSR is a special case."""

from dataclasses import replace

import pytest
import torch

from vsrkit.errors import VsrkitError
from vsrkit.models.basicvsr import BasicVSR, BasicVSRConfig
from vsrkit.models.layers.resample import stacked_weight
from vsrkit.models.vsrt_small import SmallConfig, VSRTSmall

TINY = SmallConfig(channels=8, tower_blocks=1, head_blocks=1, attention_channels=4)


def awake(config: SmallConfig) -> VSRTSmall:
    """A model with random values for the parameters that are initialised to zero."""
    torch.manual_seed(0)
    model = VSRTSmall(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.any():
                parameter.normal_(0, 0.1 if "weight" in name or "distance" in name else 0.01)
    return model


@pytest.mark.parametrize(("h", "w"), [(16, 16), (17, 19), (33, 40), (64, 21)])
@pytest.mark.parametrize("frames", [1, 2, 5])
def test_any_size_and_any_number_of_frames(h, w, frames):
    with torch.no_grad():
        sr = awake(TINY)(torch.rand(1, frames, 3, h, w))
    assert sr.shape == (1, frames, 3, 4 * h, 4 * w)
    assert sr.isfinite().all()


def test_frames_below_sixteen_pixels_are_an_error():
    with pytest.raises(VsrkitError, match="at least 16x16, got 15x20"):
        VSRTSmall(TINY)(torch.rand(1, 1, 3, 15, 20))


@pytest.mark.parametrize("keep", [slice(0, 1), slice(2, 5), slice(6, 7), slice(0, 7)])
@pytest.mark.parametrize(
    "change",
    [
        {"propagation": "carried"},
        {"propagation": "hop"},
        {"propagation": "none"},
        {"flow_hypotheses": True, "frame_hypotheses": True},
        {"stack": 2, "segment": 4},
    ],
)
def test_keep_gives_the_same_bits(keep, change):
    model = awake(replace(TINY, **change))
    clip = torch.rand(1, 7, 3, 32, 36)
    with torch.no_grad():
        assert torch.equal(model(clip, keep=keep), model(clip)[:, keep])


def test_training_and_evaluation_mode_give_the_same_output():
    """In training, all pairs of frames pass the flow network as one batch."""
    model = awake(TINY)
    clip = torch.rand(2, 4, 3, 24, 24)
    with torch.no_grad():
        torch.testing.assert_close(model.train()(clip), model.eval()(clip), atol=1e-5, rtol=0)


def test_carried_sees_the_whole_clip_and_hop_only_its_neighbours():
    clip = torch.rand(1, 7, 3, 16, 16)
    changed = clip.clone()
    changed[:, 6] = torch.rand(3, 16, 16)
    for propagation, reach in (("carried", 6), ("hop", 2), ("none", 1)):
        model = awake(replace(TINY, propagation=propagation))
        with torch.no_grad():
            differs = (model(clip) - model(changed)).abs().amax((0, 2, 3, 4)) > 0
        # Attention adds one frame to what the towers see.
        assert differs.tolist() == [t >= 6 - reach for t in range(7)], propagation


@pytest.mark.parametrize(
    "change",
    [
        {"attention": False},
        {"flow": "none"},
        {"flow": "spynet"},
        {"tail": "two-stage"},
        {"reach": 2},
        {"flow_hypotheses": True},
        {"frame_hypotheses": True},
    ],
)
def test_every_option_changes_the_output_and_trains(change):
    model = awake(replace(TINY, **change))
    clip = torch.rand(1, 3, 3, 32, 32)
    sr = model(clip)
    sr.square().mean().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []
    with torch.no_grad():
        assert not torch.allclose(sr, awake(TINY)(clip), atol=1e-6)


def test_the_initial_output_is_the_enlarged_frame():
    clip = torch.rand(1, 2, 3, 16, 16)
    base = torch.nn.functional.interpolate(clip[0], scale_factor=4, mode="bilinear")
    with torch.no_grad():
        assert torch.equal(VSRTSmall(TINY)(clip)[0], base)


def test_bfloat16_stays_close_to_float32():
    model = awake(SmallConfig(tower_blocks=2))
    clip = torch.rand(1, 3, 3, 24, 24)
    with torch.no_grad():
        exact = model(clip)
        with torch.autocast("cpu", torch.bfloat16):
            rounded = model(clip)
    # The model's share of the output, not the enlarged frame that both add.
    error = (rounded.float() - exact).square().mean()
    assert 10 * torch.log10(exact.amax() ** 2 / error) > 50


def test_with_basicvsr_weights_it_is_basicvsr():
    """With SPyNet, all blocks, the two-stage tail, no head and attention at zero."""
    torch.manual_seed(1)
    teacher = BasicVSR(BasicVSRConfig(channels=16, blocks=3)).eval()
    config = SmallConfig(
        channels=16,
        tower_blocks=3,
        head_blocks=0,
        flow="spynet",
        tail="two-stage",
        attention_channels=4,
    )
    model = VSRTSmall(config).eval()
    model.flow.load_state_dict(teacher.spynet.state_dict())
    model.backward_tower.load_state_dict(teacher.backward_trunk.state_dict())
    model.forward_tower.load_state_dict(teacher.forward_trunk.state_dict())
    model.fusion.load_state_dict(teacher.fusion.state_dict())
    model.tail.load_state_dict(teacher.tail.state_dict())
    clip = torch.rand(1, 5, 3, 36, 44)
    with torch.no_grad():
        assert torch.equal(model(clip), teacher(clip))


def test_a_width_of_zero_is_no_block():
    model = VSRTSmall(replace(TINY, backward_widths=(4, 0, 8), forward_widths=(0, 0, 2)))
    assert [b.conv1.out_channels for b in model.backward_tower.main[2]] == [4, 8]
    assert [b.conv1.out_channels for b in model.forward_tower.main[2]] == [2]


@torch.no_grad()
def test_scale_2_sees_the_mean_of_2x2_pixels_with_inherited_weights():
    """Where all 2x2 pixels are equal, the detail is that of the model for single pixels.

    Of one frame: carried features are warped at the size of the frame, not of the grid.
    """
    one, two = awake(TINY), VSRTSmall(replace(TINY, stack=2)).eval()
    tensors = one.state_dict()
    for name in ("backward_tower.main.0.weight", "forward_tower.main.0.weight"):
        tensors[name] = stacked_weight(tensors[name], 2)
    two.load_state_dict(tensors)
    small = torch.rand(1, 1, 3, 16, 20)
    large = small.repeat_interleave(2, -1).repeat_interleave(2, -2)
    detail = one(small) - upsampled(small, 4)
    # Weights of equal pixels are added in another order.
    torch.testing.assert_close(two(large) - upsampled(large, 2), detail, rtol=0, atol=1e-5)


def upsampled(clip: torch.Tensor, scale: int) -> torch.Tensor:
    frames = torch.nn.functional.interpolate(
        clip.flatten(0, 1), scale_factor=scale, mode="bilinear"
    )
    return frames.unflatten(0, clip.shape[:2])


def test_scale_2_takes_even_sizes_from_32():
    model = VSRTSmall(replace(TINY, stack=2))
    assert (model.spec.scale, model.spec.multiple, model.spec.minimum) == (2, 2, 32)
    with pytest.raises(VsrkitError, match="multiples of 2, got 33x32"):
        model(torch.rand(1, 1, 3, 33, 32))
    with pytest.raises(ValueError, match="stack must be 1"):
        VSRTSmall(replace(TINY, stack=3))
