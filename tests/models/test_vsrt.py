"""The VSR-Transformer: exact to the release, and every option has an effect."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from tests.golden.recipe import noise, tensor_for, video
from tests.paths import GOLDEN

from vsrkit.errors import VsrkitError
from vsrkit.models.layers.blocks import FrameNorm
from vsrkit.models.layers.patch_attention import (
    PositionCode,
    attention_weights,
    position_release,
    position_xyt,
)
from vsrkit.models.layers.window_cache import WindowCache
from vsrkit.models.vsrt import PAPER, REDS, VSRT, VSRTConfig
from vsrkit.models.zoo import build_model
from vsrkit.models.zoo.vsrt_files import detect, public_name

FOLDER = GOLDEN
GOLDEN = load_file(FOLDER / "vsrt.safetensors")
SMALL = VSRTConfig(
    frames=5, depth=2, channels=16, extract_blocks=2, tower_blocks=2, reconstruct_blocks=2
)
TINY = replace(
    SMALL, frames=3, channels=6, size=16, extract_blocks=1, tower_blocks=1, reconstruct_blocks=1
)


def filled(config: VSRTConfig) -> VSRT:
    """A model with weights generated from their public names."""
    model = VSRT(config).eval()
    for name, value in model.named_parameters():
        value.data = tensor_for(public_name(name), value.shape)
    return model


@pytest.fixture(scope="module")
def small():
    return filled(SMALL)


@pytest.fixture(scope="module")
def run(small):
    """Output, loss and gradients of the release's small model on its training pair."""
    sr = small(video(1, 1, 5, 64, 64))
    loss = ((sr - video(2, 1, 5, 256, 256)).square() + 1e-12).sqrt().sum()
    small.zero_grad()
    loss.backward()
    return sr.detach(), loss.item()


def test_the_model_equals_the_release(run):
    sr, _ = run
    torch.testing.assert_close(sr[..., ::4, ::4], GOLDEN["whole.output"], atol=1e-4, rtol=0)
    detail = sr[..., 100:140, 100:140]
    torch.testing.assert_close(detail, GOLDEN["whole.detail"], atol=1e-4, rtol=0)


def test_training_loss_and_gradients_equal_the_release(small, run):
    wanted = json.loads((FOLDER / "vsrt_grads.json").read_text())
    assert run[1] == pytest.approx(wanted["loss_sum"], rel=1e-6)
    gradients = {public_name(name): p.grad for name, p in small.named_parameters()}
    assert gradients.keys() == wanted["grad_norm_and_first"].keys()
    for name, (norm, first) in wanted["grad_norm_and_first"].items():
        if name.endswith("to_k.bias"):
            continue  # softmax does not see it: its true gradient is 0, what is stored is round-off
        # A warp's gradient jumps where a sample crosses a pixel: changing every weight by 1e-7
        # moves the flow network's norms by up to 1.1e-3 and the others' by up to 9e-5.
        relative = 3e-3 if name.startswith("spynet.") else 2e-4
        assert gradients[name].norm().item() == pytest.approx(norm, rel=relative), name
        assert gradients[name].flatten()[0].item() == pytest.approx(first, abs=relative * norm)


def test_gradients_reach_every_parameter(small, run):
    for name, parameter in small.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("heads", [1, 2])
def test_attention_equals_the_release(heads):
    layer = VSRT(replace(SMALL, frames=3, depth=1, heads=heads)).layers[0]
    for name, value in layer.named_parameters():
        public = public_name(f"layers.0.{name}").removeprefix("transformer.layers.0.0.")
        if public.startswith("fn."):
            value.data = GOLDEN[f"attention.w.{public}"]
    x = noise(30, 1, 3, 16, 64, 64)
    everything = slice(0, 3)
    with torch.no_grad():
        core = layer.attention(x, everything)
        sublayer = x + layer.attention(layer.attention_norm(x[0])[None], everything)
        q = layer.attention._tokens(layer.attention.to_q(x[0])[None])
        k = layer.attention._tokens(layer.attention.to_k(x[0])[None])
        q, k = (y.unflatten(-1, (heads, -1)).transpose(1, 2)[0] for y in (q, k))
        weights = attention_weights(q, k, scaled=True)
    golden = {
        key: GOLDEN[f"attention.h{heads}.{key}"] for key in ("weights", "core_out", "sublayer_out")
    }
    torch.testing.assert_close(weights[:, ::4], golden["weights"], atol=1e-5, rtol=0)
    torch.testing.assert_close(core[..., ::4, ::4], golden["core_out"], atol=1e-5, rtol=0)
    torch.testing.assert_close(sublayer[..., ::4, ::4], golden["sublayer_out"], atol=1e-5, rtol=0)


def test_feed_forward_equals_the_release():
    layer = VSRT(replace(SMALL, frames=3, depth=1)).layers[0]
    for name, value in layer.named_parameters():
        public = public_name(f"layers.0.{name}").replace("transformer.layers.0.1.", "ff.")
        if public.startswith("ff."):
            value.data = tensor_for(public, value.shape)
    x = noise(40, 1, 3, 16, 64, 64)
    golden = {k.removeprefix("feed_forward."): v for k, v in GOLDEN.items() if "feed_forward" in k}
    flows = golden["flows_forward"], golden["flows_backward"]  # to the previous, to the next
    with torch.no_grad():
        core = layer.feed_forward(x, golden["lrs"], flows, slice(0, 3))
        z = layer.feed_forward_norm(x[0])[None]
        sublayer = x + layer.feed_forward(z, golden["lrs"], flows, slice(0, 3))
    torch.testing.assert_close(core[..., ::2, ::2], golden["core_out"], atol=1e-5, rtol=0)
    torch.testing.assert_close(sublayer[..., ::2, ::2], golden["sublayer_out"], atol=1e-5, rtol=0)


@pytest.mark.parametrize("frames", [3, 5, 7, 9, 13])
@pytest.mark.parametrize("version", ["v4", "v5"])
def test_release_position_code(frames, version):
    code = position_release(frames, 12, 10, 14, interleaved=version == "v5")
    wanted = GOLDEN[f"position.{version}.T{frames}"][0]
    torch.testing.assert_close(code[..., ::2], wanted, atol=1e-6, rtol=0)


def test_paper_position_code_splits_64_channels_into_22_22_20():
    code = position_xyt(5, 64, 6, 7)
    assert code.shape == (5, 64, 6, 7)
    x, y, t = code.split([22, 22, 20], 1)
    assert torch.equal(x, x[:1, :, :1, :].expand_as(x))  # depends on the column alone
    assert torch.equal(y, y[:1, :, :, :1].expand_as(y))
    assert torch.equal(t, t[:, :, :1, :1].expand_as(t))
    frequency = 10000 ** (-2 / (64 / 3))
    torch.testing.assert_close(x[0, 2, 0], (torch.arange(7) * frequency).sin())
    torch.testing.assert_close(t[:, 1, 0, 0], torch.arange(5.0).cos())


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("vsrt-reds", 32_564_335),
        ("vsrt-vimeo", 43_845_615),
        ("vsrt-paper", 27_104_367),
        ("vsrt-paper-vimeo", 36_216_431),
    ],
)
def test_presets_have_the_published_size(name, parameters):
    with torch.device("meta"):
        model = build_model(name)
    assert sum(p.numel() for p in model.parameters()) == parameters


def test_depthwise_values_give_the_count_of_the_papers_table():
    with torch.device("meta"):
        model = VSRT(replace(REDS, value="depthwise"))
    assert sum(p.numel() for p in model.parameters()) == 32_382_895


@pytest.mark.parametrize("keep", [slice(2, 3), slice(0, 2), slice(4, 5), slice(1, 4)])
def test_keep_gives_the_same_frames(small, keep):
    clip = video(3, 1, 5, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(small(clip, keep=keep), small(clip)[:, keep], atol=1e-5, rtol=0)


@pytest.mark.parametrize("stride", [1, 2, 4])
def test_overlapping_patches_fold_back_to_the_input(stride):
    attention = VSRT(replace(TINY, patch=8, stride=stride)).layers[0].attention
    x = torch.rand(2, 3, 6, 16, 24)
    tokens = attention._tokens(x)
    assert tokens.shape[1] == 3 * ((16 - 8) // stride + 1) * ((24 - 8) // stride + 1)
    torch.testing.assert_close(attention._frames(tokens, x), x)


def test_stride_equal_to_the_patch_is_the_default():
    clip = torch.rand(1, 3, 3, 16, 16)
    with torch.no_grad():
        plain = filled(TINY)(clip)
        assert torch.equal(filled(replace(TINY, stride=8))(clip), plain)
        assert not torch.allclose(filled(replace(TINY, stride=4))(clip), plain, atol=1e-4)


VARIANTS = {
    "without STCSA": {"attention": "none"},
    "without BOFF": {"feed_forward": "towers"},
    "without flow": {"flow": False},
    "plain block": {"attention": "linear", "feed_forward": "token", "token_width": 8},
    "post-norm": {"norm": "post"},
    "one residual": {"inner_residual": False},
    "depthwise values": {"value": "depthwise"},
    "not scaled": {"scaled": False},
    "newer position": {"position": "release-v5", "frames": 7},
    "x, y, t position": {"position": "xyt"},
    "position at every layer": {"position_at": "every layer"},
    "printed flow rule": {"flow_rule": "printed"},
    "sum fusion": {"fusion": "sum"},
    "paper's slope": {"slope": 0.01},
    "leaky blocks": {"block_slope": 0.1},
    "no convolution at full size": {"full_size_conv": False},
    "last activation": {"last_activation": True},
    "one frame": {"frames": 1},
    "two heads": {"heads": 2},
    "any size": {"size": None},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_option_changes_the_output_and_trains(name):
    torch.manual_seed(0)
    config = replace(TINY, **VARIANTS[name])
    model = filled(config)
    clip = torch.rand(2, config.frames, 3, 16, 16)
    sr = model(clip)
    assert sr.shape == (2, config.frames, 3, 64, 64)
    with torch.no_grad():
        keep = slice(config.frames // 2, config.frames // 2 + 1)
        torch.testing.assert_close(model(clip, keep=keep), sr[:, keep], atol=1e-5, rtol=0)
        if config.frames == TINY.frames:
            assert not torch.allclose(filled(TINY)(clip), sr, atol=1e-6)
    sr.square().sum().backward()
    silent = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert silent == []


def test_the_printed_flow_rule_warps_the_frames_own_features():
    """Frame t is warped by s(V[t-1], V[t]) backward and by s(V[t+1], V[t]) forward."""
    model = filled(replace(TINY, flow_rule="printed"))
    clip = video(6, 1, 3, 16, 16)
    with torch.no_grad():
        first, middle, last = clip[0].unsqueeze(1)
        forward = [model.flow(middle, first), model.flow(last, middle), model.flow(last, last)]
        backward = [model.flow(first, first), model.flow(first, middle), model.flow(middle, last)]
        flows = model._flows(clip, None)
        for found, expected in zip(flows, (forward, backward), strict=True):
            torch.testing.assert_close(found[0], torch.cat(expected), atol=1e-5, rtol=0)
        cached = model._flows(clip, WindowCache())
        for found, expected in zip(cached, flows, strict=True):
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
        x, layer = noise(7, 1, 3, 6, 16, 16), model.layers[0].feed_forward
        changed = x.clone()
        changed[:, 0] += 1
        everything = slice(0, 3)
        before, after = (layer(each, clip, flows, everything) for each in (x, changed))
    assert not torch.equal(before[:, 0], after[:, 0])
    assert torch.equal(before[:, 1:], after[:, 1:])  # no frame reads the features of another


def test_attention_of_the_paper_starts_nearly_one_hot_and_scaled_nearly_even():
    """The similarity of tokens of 4096 values is not divided by 64 in the printed equation."""
    torch.manual_seed(0)
    x = torch.randn(1, 5, 64, 64, 64)
    largest = {}
    for scaled in (True, False):
        config = replace(PAPER, depth=1, tower_blocks=0, reconstruct_blocks=0, scaled=scaled)
        with torch.no_grad():
            weights = VSRT(config).layers[0].attention.weights(x, slice(2, 3))
        largest[scaled] = weights.amax(-1).mean().item()
    assert largest[False] > 0.8  # of 320 patches
    assert largest[True] < 0.02


@pytest.mark.parametrize("config", [PAPER, replace(PAPER, stride=4)])
def test_the_papers_network_accepts_any_multiple_of_the_patch(config):
    config = replace(
        config, depth=1, channels=6, tower_blocks=1, extract_blocks=1, reconstruct_blocks=1
    )
    with torch.no_grad():
        sr = VSRT(config)(torch.rand(1, 5, 3, 16, 24))
    assert sr.shape == (1, 5, 3, 64, 96)
    assert sr.isfinite().all()


def test_configuration_of_a_released_file_is_detected(small):
    tensors = {public_name(name): value for name, value in small.state_dict().items()}
    assert detect(tensors) == replace(SMALL, frames=2)  # depth stands in for the frames
    assert detect({"fusion.weight": torch.zeros(1)}) is None


def test_public_names_are_those_of_the_release(small):
    names = {public_name(name) for name in small.state_dict()}
    assert len(names) == len(small.state_dict())
    assert {
        "conv_first.weight",
        "feature_extraction.1.conv2.bias",
        "spynet.spynet.mean",
        "spynet.spynet.basic_module.5.basic_module.4.conv.bias",
        "transformer.layers.1.0.fn.fn.to_q.weight",
        "transformer.layers.1.0.fn.fn.conv.weight",
        "transformer.layers.0.1.fn.fn.backward_resblocks.main.2.1.conv1.weight",
        "transformer.layers.0.1.fn.fn.fusion.weight",
        "reconstruction.1.conv1.weight",
        "upconv2.bias",
        "conv_last.weight",
    } <= names


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 4, 3, 16, 16), "takes 3 RGB frames at once, got 4"),
        ((1, 3, 3, 24, 16), "takes 16x16 pixels only, got 24x16"),
    ],
)
def test_an_invalid_clip_is_reported_in_one_line(shape, message):
    with pytest.raises(VsrkitError, match=message) as error:
        VSRT(TINY)(torch.rand(shape))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 4}, "4 heads do not divide 6 channels"),
        ({"stride": 3}, "stride must divide"),
        ({"size": 20}, "do not divide 20 pixels"),
        ({"depth": 0}, "positive"),
    ],
)
def test_an_invalid_configuration_is_an_error(change, message):
    with pytest.raises(ValueError, match=message):
        replace(TINY, **change)


def test_bfloat16_stays_close_to_float32():
    model = filled(TINY)
    clip = video(5, 1, 3, 16, 16)
    with torch.no_grad():
        exact = model(clip)
        with torch.autocast("cpu", torch.bfloat16):
            rounded = model(clip).float()
    assert 10 * torch.log10(1 / (rounded - exact).square().mean()) > 50


def test_a_batch_of_two_equals_two_calls():
    model = filled(TINY)
    clips = torch.rand(2, 3, 3, 16, 16)
    with torch.no_grad():
        both = model(clips)
        assert torch.equal(both, model(clips))
        alone = torch.cat([model(clips[:1]), model(clips[1:])])
    torch.testing.assert_close(
        both, alone, atol=1e-6, rtol=0
    )  # batches may be summed in other order


def test_the_norm_preserves_the_memory_format():
    norm = FrameNorm([8, 6, 6])
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    x = torch.randn(2, 8, 6, 6)
    first, last = norm(x), norm(x.contiguous(memory_format=torch.channels_last))
    assert first.is_contiguous()
    assert last.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(first, last, atol=1e-6, rtol=0)  # sums in another order


@pytest.mark.parametrize("name", ["release", "release-v5", "xyt", "none"])
def test_the_position_code_is_computed_once_on_the_device_of_the_features(name):
    code = PositionCode(name)
    features = torch.rand(2, 3, 6, 8, 8)
    with torch.inference_mode():
        first = code(features)
    assert code(features[:1]) is first
    assert not first.is_inference()  # a model that was validated is trained further
    assert (first + features).shape == features.shape
    other = code(torch.empty(1, 3, 6, 8, 8, device="meta", dtype=torch.float16))
    assert (other.device.type, other.dtype) == ("meta", torch.float16)
    assert torch.equal(code(features), first)
    assert not list(code.state_dict())
