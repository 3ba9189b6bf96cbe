"""Our presets: any size and length, each frame once, exact inheritance, no grid, no step."""

from dataclasses import replace

import pytest
import torch

from vsrkit.errors import VsrkitError, WeightsError
from vsrkit.models.basicvsr import BasicVSR, BasicVSRConfig, public_name
from vsrkit.models.inherit import inherit
from vsrkit.models.vsrt_small import SmallConfig, VSRTSmall

TINY = SmallConfig(channels=8, tower_blocks=1, head_blocks=1, attention_channels=4)


def awake(config: SmallConfig) -> VSRTSmall:
    """A fresh model whose parts that start at zero do something."""
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


def test_frames_below_sixteen_pixels_are_refused():
    with pytest.raises(VsrkitError, match="at least 16x16, got 15x20"):
        VSRTSmall(TINY)(torch.rand(1, 1, 3, 15, 20))


@pytest.mark.parametrize("keep", [slice(0, 1), slice(2, 5), slice(6, 7), slice(0, 7)])
@pytest.mark.parametrize("propagation", ["carried", "hop", "none"])
def test_keep_gives_the_same_bits(keep, propagation):
    model = awake(replace(TINY, propagation=propagation))
    clip = torch.rand(1, 7, 3, 20, 24)
    with torch.no_grad():
        assert torch.equal(model(clip, keep=keep), model(clip)[:, keep])


def test_training_and_running_give_the_same_output():
    """In training all pairs of frames pass the flow network at once."""
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
    ],
)
def test_parts_can_be_taken_away(change):
    model = awake(replace(TINY, **change))
    clip = torch.rand(1, 3, 3, 32, 32)
    sr = model(clip)
    sr.square().mean().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []
    with torch.no_grad():
        assert not torch.allclose(sr, awake(TINY)(clip), atol=1e-6)


def test_a_fresh_model_is_the_enlarged_frame():
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


def test_inherited_whole_it_is_basicvsr():
    torch.manual_seed(1)
    teacher = BasicVSR(BasicVSRConfig(channels=16, blocks=3)).eval()
    tensors = public_tensors(teacher)
    config = SmallConfig(
        channels=16,
        tower_blocks=3,
        head_blocks=0,
        flow="spynet",
        tail="two-stage",
        attention_channels=4,
    )
    model = inherit(config, tensors, backward_blocks=range(3), forward_blocks=range(3)).eval()
    clip = torch.rand(1, 5, 3, 36, 44)
    with torch.no_grad():
        assert torch.equal(model(clip), teacher(clip))


def test_chosen_blocks_are_inherited_in_order():
    teacher = BasicVSR(BasicVSRConfig(channels=8, blocks=5))
    tensors = public_tensors(teacher)
    config = replace(TINY, tower_blocks=2)
    model = inherit(config, tensors, backward_blocks=(1, 4), forward_blocks=(0, 2))
    own = dict(model.backward_tower.main[2].named_parameters())
    assert torch.equal(own["0.conv1.weight"], tensors["backward_trunk.main.2.1.conv1.weight"])
    assert torch.equal(own["1.conv2.bias"], tensors["backward_trunk.main.2.4.conv2.bias"])
    own = dict(model.forward_tower.main[2].named_parameters())
    assert torch.equal(own["1.conv1.weight"], tensors["forward_trunk.main.2.2.conv1.weight"])
    assert torch.equal(model.fusion.weight, tensors["fusion.weight"])


def test_wrong_inheritance_is_refused():
    tensors = public_tensors(BasicVSR(BasicVSRConfig(channels=8, blocks=2)))
    with pytest.raises(VsrkitError, match="1 backward blocks are wanted, 2 were named"):
        inherit(TINY, tensors, backward_blocks=(0, 1), forward_blocks=(0,))
    with pytest.raises(WeightsError, match="has no tensor"):
        inherit(TINY, tensors, backward_blocks=(7,), forward_blocks=(0,))
    with pytest.raises(WeightsError, match="another model"):
        inherit(replace(TINY, channels=16), tensors, backward_blocks=(0,), forward_blocks=(0,))


def public_tensors(teacher):
    return {public_name(name): value for name, value in teacher.state_dict().items()}


def test_blocks_are_inherited_whole_whatever_the_widths():
    tensors = public_tensors(BasicVSR(BasicVSRConfig(channels=8, blocks=3)))
    config = replace(TINY, backward_widths=(4, 4), forward_widths=(4, 4))
    model = inherit(config, tensors, backward_blocks=(1,), forward_blocks=(2,))
    own = dict(model.backward_tower.main[2].named_parameters())
    assert torch.equal(own["0.conv1.weight"], tensors["backward_trunk.main.2.1.conv1.weight"])


def test_a_width_of_zero_is_no_block():
    model = VSRTSmall(replace(TINY, backward_widths=(4, 0, 8), forward_widths=(0, 0, 2)))
    assert [b.conv1.out_channels for b in model.backward_tower.main[2]] == [4, 8]
    assert [b.conv1.out_channels for b in model.forward_tower.main[2]] == [2]
