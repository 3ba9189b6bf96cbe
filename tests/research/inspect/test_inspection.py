"""An inspection shows the values inside a model and leaves the model unchanged."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from tests.models.test_contract import SMALL, clip_for, small
from torch.nn import functional as F

from vsrkit.models.anatomy import Anatomy
from vsrkit.models.layers.blocks import upsample_bilinear
from vsrkit.models.spec import Carried, Segments, Window
from vsrkit.models.vsrt import VSRT, VSRTConfig
from vsrkit.models.vsrt_small import SmallConfig, VSRTSmall
from vsrkit.research.inspect.attention import attention_modules, attentions
from vsrkit.research.inspect.clip_sample import Sample, frames_around
from vsrkit.research.inspect.features import feature_blocks, feature_modules, record_calls
from vsrkit.research.inspect.flows import motions
from vsrkit.research.inspect.inspection import as_json, inspect_model
from vsrkit.research.inspect.inspection_page import sections
from vsrkit.research.inspect.page import encode_figures, render
from vsrkit.research.inspect.switches import contributions, switches, upscale_one

WITH_FLOW = {
    "vsrt", "vsrt-small", "vsrt-stream", "basicvsr", "basicvsrpp", "realbasicvsr", "iconvsr",
    "psrt", "iart", "rvrt", "toflow", "rbpn", "frvsr", "vespcn", "spmc",
}  # fmt: skip
WITH_ATTENTION = {"vsrt": 3, "vsrt-small": 1, "edvr": 1, "psrt": 1, "iart": 1, "rvrt": 1}
TINY = VSRTConfig(
    frames=3, depth=2, channels=8, extract_blocks=1, tower_blocks=1, reconstruct_blocks=1, size=16
)


def sample_of(clip, centre=1, pixel=(5, 6)):
    numbers = list(range(clip.shape[1]))
    return Sample(clip, numbers, centre, pixel, (0, 0), clip[0, centre])


def perturbed(model):
    """The model with noise on all weights, because some layers start at zero."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    return model.eval()


@pytest.mark.parametrize("name", SMALL)
def test_every_architecture_can_be_inspected(name):
    model, clip = small(name), clip_for(small(name))
    context = model.spec.context
    centre = clip.shape[1] // 2 if isinstance(context, Window) else clip.shape[1] - 1
    with torch.no_grad():
        before = model(clip)
        seen = inspect_model(model, sample_of(clip, centre))
        assert torch.equal(model(clip), before)  # no hook remains
    assert bool(seen.motions) == (name in WITH_FLOW)
    assert len(seen.attentions) == WITH_ATTENTION.get(name, 0)
    for layer in seen.attentions:
        assert sum(layer.shares) == pytest.approx(1, abs=1e-5)
    shown = sections(seen, name=name, source=Path("clip.mp4"), trained=False)
    page = render("title", shown, encode_figures(shown))
    assert ("estimates no optical flow" in page) == (name not in WITH_FLOW)
    assert ("has no attention" in page) == (name not in WITH_ATTENTION)
    assert "has no trained weights here" in page
    alone = clip.shape[1] == 1
    assert ("without" in str(as_json(seen)["parts"])) != alone
    assert (name == "bicubic") == (not seen.blocks)


def test_the_paper_s_attention_finds_the_same_patch_in_another_frame():
    model = perturbed(VSRT(TINY))
    attention = model.layers[0].attention
    (part, _) = model.anatomy.attention
    anatomy = Anatomy(attention=(replace(part, title="layer"),))
    with torch.no_grad():
        for layer in (attention.to_q, attention.to_k):  # compare the features as they are
            layer.weight.zero_()
            layer.weight[:, 0, 1, 1] = 30
            layer.bias.zero_()
        model.layers[0].attention_norm = torch.nn.Identity()
        x = torch.randn(1, 3, 8, 16, 16, generator=torch.Generator().manual_seed(2))
        x[0, 2, :, 0:8, 8:16] = 1.5 * x[0, 1, :, 8:16, 0:8]  # frame 2 has it, elsewhere
        with record_calls({"layer": attention}) as calls:
            attention(x, slice(0, 3))
        sample = sample_of(torch.rand(1, 3, 3, 16, 16), 1, (3, 12))
        (seen,) = attentions(anatomy, {"layer": attention}, calls, sample)
    assert seen.patch == (0, 8, 8, 8)
    assert seen.maps.sum() / 64 == pytest.approx(1, abs=1e-5)
    assert seen.maps[2, 0:8, 8:16].min() > 0.99
    assert seen.shares[2] == pytest.approx(1, abs=0.01)
    assert seen.patches == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("change", [{"stride": 4}, {"heads": 2}, {"attention": "linear"}])
@pytest.mark.parametrize("pixel", [(0, 0), (9, 4), (15, 15)])
def test_other_kinds_of_attention_are_read_in_the_same_way(change, pixel):
    model = perturbed(VSRT(replace(TINY, depth=1, **change)))
    clip = clip_for(small("vsrt"))
    modules = attention_modules(model, model.anatomy)
    with torch.no_grad(), record_calls(modules) as calls:
        model(clip)
        (seen,) = attentions(model.anatomy, modules, calls, sample_of(clip, 1, pixel))
    assert seen.maps.sum() / 64 == pytest.approx(1, abs=1e-5)
    x, y, width, height = seen.patch
    assert x <= pixel[0] < x + width
    assert y <= pixel[1] < y + height
    assert seen.of == 3 * (9 if "stride" in change else 4)


@pytest.mark.parametrize("pixel", [(1, 2), (20, 18), (38, 33)])
def test_span_weights_are_those_that_the_output_is_computed_with(pixel):
    config = SmallConfig(channels=8, tower_blocks=1, attention_channels=8)
    model = perturbed(VSRTSmall(config))
    clip = torch.rand(1, 3, 3, 36, 40, generator=torch.Generator().manual_seed(3))
    sample = sample_of(clip, 1, pixel)
    modules = attention_modules(model, model.anatomy)
    with torch.no_grad(), record_calls(modules) as calls:
        model(clip)
        (seen,) = attentions(model.anatomy, modules, calls, sample)
    frame, near = calls["attention"][1].args
    total = torch.zeros(3, 36, 40)
    for head in range(config.attention_heads):
        values = [near[d].values[head].detach().requires_grad_() for d in (-1, 0, 1)]
        tokens = {
            d: replace(near[d], values=[v] * 2) for d, v in zip((-1, 0, 1), values, strict=True)
        }
        out = model.attention._head(head, frame, tokens)
        out[0, 0, pixel[1], pixel[0]].backward()  # how much of each value is in it
        for place, value in enumerate(values):
            weight = value.grad[0].sum(-1)  # (I', J'): by patch, a span more on every side
            grid = weight.repeat_interleave(4, 0).repeat_interleave(4, 1)
            start = 4 * config.span + model.attention.shift(head)
            total[place] += grid[start : start + 36, start : start + 40] / 2
    torch.testing.assert_close(seen.maps, total, atol=1e-6, rtol=1e-5)
    if pixel == (20, 18):  # near an edge, patches are cut
        assert seen.maps.sum() / 16 == pytest.approx(1, abs=1e-5)
        assert seen.of == 75


def moving_clip(step=1):
    """A smooth texture that moves `step` pixels to the right in each frame."""
    coarse = torch.rand(1, 3, 12, 16, generator=torch.Generator().manual_seed(4))
    wide = F.interpolate(coarse, (48, 64), mode="bicubic").clamp(0, 1)[0]
    return torch.stack([wide[..., 8 - step * t : 56 - step * t] for t in range(3)])[None]


def test_flow_gives_the_motion_and_warping_removes_it():
    model = VSRTSmall(SmallConfig(channels=8, tower_blocks=1)).eval()  # its flow needs no weights
    with torch.no_grad():
        to_prev, to_next = motions(model.anatomy.flow, sample_of(moving_clip()))
    inner = (slice(8, -8), slice(8, -8))
    assert (to_prev.frame, to_prev.neighbour) == (1, 0)
    assert to_prev.flow[0][inner].mean() == pytest.approx(-1, abs=0.1)
    assert to_next.flow[0][inner].mean() == pytest.approx(1, abs=0.1)
    assert to_next.flow[1][inner].mean() == pytest.approx(0, abs=0.1)
    assert to_next.psnr > to_next.psnr_still + 6


def test_switching_a_part_off_gives_the_network_built_without_it():
    """With the same weights, switching a part off equals the ablation in the paper."""
    model = perturbed(VSRT(TINY))
    clip = clip_for(small("vsrt"))
    sample = sample_of(clip)
    with torch.no_grad():
        sr = upscale_one(model, clip, 1)
        without = {
            part.title: part.without
            for part in contributions(
                model, model.anatomy, sample, sr, lambda what, done, total: None
            )
        }
        for title, change in {"attention": {"attention": "none"}, "flow": {"flow": False}}.items():
            other = VSRT(replace(TINY, **change)).eval()
            kept = other.state_dict().keys()
            other.load_state_dict({k: v for k, v in model.state_dict().items() if k in kept})
            expected = upscale_one(other, clip, 1)
            # Not equal: a warp by zero flow still interpolates.
            torch.testing.assert_close(without[title], expected, atol=1e-5, rtol=0)
            assert not torch.allclose(without[title], sr, atol=1e-4)
    base = upsample_bilinear(clip[:, 1], 4)[0].clamp(0, 1)
    assert torch.equal(without["the whole network"], base)


def test_a_part_that_does_nothing_shows_no_difference():
    model = VSRTSmall(SmallConfig(channels=8, tower_blocks=1, attention_channels=8)).eval()
    torch.nn.init.normal_(model.tail.conv.weight, std=0.1)  # attention still starts at zero
    clip = torch.rand(1, 3, 3, 16, 16, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        seen = inspect_model(model, sample_of(clip))
    found = {part.title: part for part in seen.contributions}
    assert found["attention"].psnr == float("inf")
    assert found["attention"].rms == 0
    assert found["backward chain"].rms > 0
    assert '"inf"' in str(as_json(seen)).replace("'", '"')


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_output_of_a_block_is_the_input_of_the_next(norm):
    model = perturbed(VSRT(replace(TINY, norm=norm)))
    clip = clip_for(small("vsrt"))
    sample = sample_of(clip)
    with torch.no_grad(), record_calls(feature_modules(model, model.anatomy)) as calls:
        sr = model(clip)
    found = feature_blocks(model.anatomy, calls, sample)
    titles = [block.title for block in found]
    assert titles[:3] == ["encoder", "layer 1, attention", "layer 1, feed-forward"]
    for one, two in pairwise(found[1:-1]):
        assert torch.equal(one.after, two.before)
    whole = found[-1].after + upsample_bilinear(clip[:, 1], 4)[0]
    torch.testing.assert_close(whole, sr[0, 1])


def test_the_chains_of_a_preset_run_in_opposite_directions():
    model = perturbed(VSRTSmall(SmallConfig(channels=8, tower_blocks=1, attention_channels=8)))
    clip = torch.rand(1, 4, 3, 16, 16, generator=torch.Generator().manual_seed(6))
    found = {}
    for centre in (0, 3):
        with torch.no_grad(), record_calls(feature_modules(model, model.anatomy)) as calls:
            model(clip)
        blocks = feature_blocks(model.anatomy, calls, sample_of(clip, centre))
        found[centre] = {block.title: block for block in blocks}
    assert not found[0]["forward chain"].before.any()  # nothing comes before the first frame
    assert found[0]["backward chain"].before.any()
    assert not found[3]["backward chain"].before.any()
    joined = torch.cat([found[3][f"{d} chain"].after for d in ("backward", "forward")])[None]
    with torch.no_grad():
        fused = F.leaky_relu(model.fusion(joined), 0.1)[0]
    torch.testing.assert_close(found[3]["fusion"].after, fused)


@pytest.mark.parametrize(
    ("context", "number", "expected"),
    [
        (Window(5), 4, ([2, 3, 4, 5, 6], 2)),
        (Window(3), 0, ([2, 0, 1], 1)),  # padded like in `upscale`
        (Segments(16, 4), 1, ([0, 1, 2, 3, 4], 1)),
        (Segments(16, 4), 9, ([6, 7, 8, 9], 3)),
        (Carried(), 9, ([3, 4, 5, 6, 7, 8, 9], 6)),
        (Carried(needs_second_frame=True), 0, ([0, 1], 0)),
        (Carried(look_ahead=1), 8, ([2, 3, 4, 5, 6, 7, 8, 9], 6)),
    ],
)
def test_frames_around_the_chosen_one(context, number, expected):
    assert frames_around(number, 10, context) == expected


def test_a_preset_lists_its_parts():
    model, clip = small("vsrt-small"), clip_for(small("vsrt-small"))
    titles = [part.title for part in switches(model.anatomy, sample_of(clip))]
    assert titles == [
        "the other frames",
        "attention",
        "flow",
        "backward chain",
        "forward chain",
        "head",
        "the whole network",
    ]
