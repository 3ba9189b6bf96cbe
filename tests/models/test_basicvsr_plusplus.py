"""BasicVSR++: exact to BasicSR, in segments, loadable from every public naming style."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from tests.golden.zoo.recipe import about, check_gradients, facts, filled, golden, sampled
from torch import nn

from vsrkit.hardware.device import Precision
from vsrkit.inference.engine import Engine, upscale_frames
from vsrkit.models.basicvsr_plusplus import (
    BRANCHES,
    NTIRE,
    NTIRE_DECOMPRESS,
    BasicVSRPlusPlus,
    BasicVSRPlusPlusConfig,
    detect,
    public_name,
    translate,
)
from vsrkit.models.zoo import load_model

SMALL = BasicVSRPlusPlusConfig(channels=16, blocks=2)
SAME_SIZE = BasicVSRPlusPlusConfig(channels=8, blocks=1, groups=4, same_size=True)
FLOAT32 = Precision("float32", channels_last=False)


def small() -> BasicVSRPlusPlus:
    model = filled("basicvsrpp_small", BasicVSRPlusPlus(SMALL), public_name)
    assert isinstance(model, BasicVSRPlusPlus)
    return model


def random(config: BasicVSRPlusPlusConfig) -> BasicVSRPlusPlus:
    """A network with no layer that is initialised to zero."""
    torch.manual_seed(0)
    model = BasicVSRPlusPlus(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
    return model


@pytest.mark.parametrize(
    ("name", "config"),
    [("basicvsrpp_small", SMALL), ("basicvsrpp_full", BasicVSRPlusPlusConfig())],
)
def test_equals_basicsr(name, config):
    case, model = golden(name), filled(name, BasicVSRPlusPlus(config), public_name)
    with torch.no_grad():
        sr = model(case["input"])
    # float32 sums in another order: about 6e-7 was seen
    torch.testing.assert_close(sampled(sr), case["output"], rtol=0, atol=1e-5)


def test_gradients_equal_basicsr():
    model, case = small(), golden("basicvsrpp_small")
    check_gradients("basicvsrpp_small", model, model(case["input"]), public_name)


@pytest.mark.parametrize("keep", [slice(0, 1), slice(1, 3), slice(2, 5), slice(4, 5)])
def test_keep_equals_a_slice_of_all_frames(keep):
    clip, model = golden("basicvsrpp_small")["input"][..., :16, :16], small()
    with torch.no_grad():
        assert torch.equal(model(clip, keep=keep), model(clip)[:, keep])


def test_only_wanted_frames_are_reconstructed():
    model, runs = small(), dict.fromkeys([*BRANCHES, "tail"], 0)

    def count(name):
        def hook(module, inputs, output):
            runs[name] += 1

        return hook

    for branch in BRANCHES:
        model.backbone[branch].register_forward_hook(count(branch))
    model.tail.register_forward_hook(count("tail"))
    with torch.no_grad():
        model(torch.rand(1, 6, 3, 8, 8), keep=slice(2, 4))
    assert runs == {"backward_1": 6, "forward_1": 6, "backward_2": 6, "forward_2": 4, "tail": 2}


@pytest.mark.parametrize(("frames", "height", "width"), [(1, 12, 10), (2, 7, 9), (3, 1, 5)])
def test_any_length_and_size(frames, height, width):
    with torch.no_grad():
        sr = small()(torch.rand(2, frames, 3, height, width))
    assert sr.shape == (2, frames, 3, 4 * height, 4 * width)
    assert sr.isfinite().all()


def test_a_mirrored_clip_does_not_affect_the_next_one():
    """The reference takes a shortcut for mirrored clips and keeps taking it afterwards."""
    model, clip = small(), torch.rand(1, 4, 3, 16, 16)
    mirrored = torch.cat([clip, clip.flip(1)], 1)
    with torch.no_grad():
        expected = model(clip)
        model(mirrored)
        assert torch.equal(model(clip), expected)


def test_segments_are_the_same_for_any_chunk_and_tiles_have_no_seams():
    model = random(BasicVSRPlusPlusConfig(channels=8, blocks=1, groups=4, segment=2, warmup=1))
    shot = F.interpolate(torch.rand(5, 3, 5, 6), (40, 48), mode="bilinear")
    engine = Engine(model, FLOAT32)
    one, many = (torch.stack(list(upscale_frames(shot, engine, chunk=n))) for n in (1, 5))
    assert torch.equal(one, many)
    tiled = torch.stack(list(upscale_frames(shot, Engine(model, FLOAT32, tile=32))))
    assert (tiled - one).abs().mean() < 5e-3  # tiles see less around them


@pytest.mark.parametrize(
    ("name", "config", "parameters"),
    [
        ("basicvsrpp", BasicVSRPlusPlusConfig(), 7_322_927),
        ("basicvsrpp_c128n25_hrin", NTIRE_DECOMPRESS, 44_075_631),
    ],
)
def test_full_size_has_the_published_parameters_and_names(name, config, parameters):
    assert about()["networks"][name]["parameters"] == parameters
    assert facts(lambda: BasicVSRPlusPlus(config), public_name) == about()["networks"][name]


def test_the_large_network_has_the_published_parameters():
    assert facts(lambda: BasicVSRPlusPlus(NTIRE))["parameters"] == 43_780_463


def test_same_size_network_keeps_the_size():
    """Independent of the network's own code: features and flow at a quarter of the size."""
    model, clip = random(SAME_SIZE), torch.rand(1, 3, 3, 16, 20)
    seen = []
    model.spynet.register_forward_hook(lambda _, inputs, flow: seen.append((inputs[0], flow)))
    with torch.no_grad():
        sr = model(clip)
        nn.init.zeros_(model.tail.conv_last.weight)
        nn.init.zeros_(model.tail.conv_last.bias)
        assert torch.equal(model(clip), clip)  # only detail is added
    assert sr.shape == clip.shape
    assert {tuple(flow.shape) for _, flow in seen} == {(1, 2, 4, 5)}
    quarter = F.interpolate(clip[:, 0], scale_factor=0.25, mode="bicubic", align_corners=False)
    torch.testing.assert_close(seen[0][0], quarter, rtol=0, atol=1e-6)


def test_same_size_network_runs_on_odd_sizes():
    frames = list(upscale_frames(torch.rand(3, 3, 7, 9), Engine(random(SAME_SIZE), FLOAT32)))
    assert [frame.shape for frame in frames] == [(3, 7, 9)] * 3


def test_names_of_mmediting_are_translated():
    names = about()["mmedit_names"]["basicvsrpp"]
    assert list(translate(dict.fromkeys(names, torch.zeros(1)))) == list(names.values())


@pytest.mark.parametrize("config", [SMALL, SAME_SIZE])
@pytest.mark.parametrize("style", ["mmagic", "params", "flat"])
def test_loads_every_public_style(tmp_path, config, style):
    model = random(config)
    tensors = {public_name(name): value for name, value in model.state_dict().items()}
    if style == "mmagic":
        back = {ours: theirs for theirs, ours in about()["mmedit_names"]["basicvsrpp"].items()}
        tensors = {"generator." + back.get(k, k): v for k, v in tensors.items()}
        tensors["step_counter"] = torch.zeros(1)
    torch.save({"params": tensors} if style == "params" else tensors, tmp_path / "x.pth")
    loaded = load_model(tmp_path / "x.pth")
    assert loaded.config == config
    clip = torch.rand(1, 2, 3, 8, 8)
    with torch.no_grad():
        assert torch.equal(loaded(clip), model(clip))


def test_detects_only_its_own_tensors():
    tensors = {public_name(name): value for name, value in small().state_dict().items()}
    assert detect(tensors) == SMALL
    assert (
        detect({n: v for n, v in tensors.items() if n != "deform_align.backward_1.weight"}) is None
    )


def test_groups_must_divide_the_channels():
    for groups in (3, 10):
        with pytest.raises(ValueError, match="groups must be even and divide 32 channels"):
            replace(SMALL, groups=groups)
