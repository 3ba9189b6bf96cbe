"""Loading and saving: names, vsrkit's files, public checkpoints, and invalid files."""

import json
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.models.zoo.pair import install_pair

import vsrkit
from vsrkit.errors import UnknownModelError, VsrkitError, WeightsError
from vsrkit.models import zoo
from vsrkit.models.layers.flow import SPyNet, spynet_basicsr_name, spynet_public_name
from vsrkit.models.vsrt import VSRT, VSRTConfig
from vsrkit.models.vsrt_small import SmallConfig, VSRTSmall
from vsrkit.models.weights import model_digest
from vsrkit.models.zoo import build_model, list_models, load_model, load_spynet, save_model
from vsrkit.models.zoo.vsrt_files import public_name

TINY = VSRTConfig(
    frames=2, depth=2, channels=6, size=16, extract_blocks=1, tower_blocks=2, reconstruct_blocks=1
)


def released(model):
    """A state dict as the release saves it."""
    tensors = {public_name(name): value for name, value in model.state_dict().items()}
    return tensors | {"pos_embedding.penc.inv_freq": torch.ones(1)}


def same_weights(a, b):
    return all(
        torch.equal(x, y)
        for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    )


@pytest.mark.parametrize(
    "wrap",
    [
        lambda s: {"params": s},
        lambda s: {"params": {"wrong": torch.zeros(1)}, "params_ema": s},
        lambda s: {"module." + k: v for k, v in s.items()},
        lambda s: {"state_dict": {"module." + k: v for k, v in s.items()}},
        lambda s: {"module._orig_mod." + k: v for k, v in s.items()},
        lambda s: {"generator": s, "epoch": 3},
        lambda s: {k: v for k, v in s.items() if not k.endswith((".mean", ".std"))},
        lambda s: (
            {"module.step_counter": torch.ones(1)}
            | {"module.generator." + k: v for k, v in s.items()}
        ),
        lambda s: (
            {"generator." + k: torch.zeros_like(v) for k, v in s.items()}
            | {"generator_ema." + k: v for k, v in s.items()}
            | {"discriminator.conv.weight": torch.ones(1), "perceptual_loss.x": torch.ones(1)}
        ),
        lambda s: (
            {"generator." + k: torch.zeros_like(v) for k, v in s.items()}
            | {"generator_ema.module." + k: v for k, v in s.items()}
            | {"generator_ema.steps": torch.ones(1), "generator_ema.step_counter": torch.ones(1)}
        ),
        lambda s: {"n_averaged": torch.ones(1)} | {"module." + k: v for k, v in s.items()},
        lambda s: s,
    ],
)
def test_a_released_checkpoint_loads_however_it_is_wrapped(tmp_path, wrap):
    model = VSRT(TINY)
    torch.save(wrap(released(model)), tmp_path / "net.pth")
    loaded = load_model(tmp_path / "net.pth")
    assert loaded.config == TINY
    assert not loaded.training
    assert same_weights(model, loaded)


def test_frames_and_heads_can_be_set(tmp_path):
    torch.save(released(VSRT(TINY)), tmp_path / "net.pth")
    loaded = load_model(tmp_path / "net.pth", frames=5, heads=2)
    assert loaded.config == replace(TINY, frames=5, heads=2)
    assert load_model("vsrt-reds", frames=3).spec.context.size == 3
    with pytest.raises(VsrkitError, match="has no option 'heads'"):
        load_model("vsrt-s", heads=2)
    for wrong in ({"heads": 3}, {"heads": 0}, {"frames": 0}):
        with pytest.raises(VsrkitError, match="invalid configuration of"):
            load_model("vsrt-reds", **wrong)
    with pytest.raises(VsrkitError, match="must be odd, got 4"):
        load_model("edvr-m", frames=4)


@pytest.mark.parametrize("style", [spynet_public_name, spynet_basicsr_name])
@pytest.mark.parametrize("with_buffers", [True, False])
def test_spynet_files_load_in_both_styles(tmp_path, style, with_buffers):
    flow = SPyNet()
    tensors = dict(flow.state_dict() if with_buffers else flow.named_parameters())
    torch.save({"params": {style(k): v for k, v in tensors.items()}}, tmp_path / "spynet.pth")
    assert same_weights(flow, load_spynet(tmp_path / "spynet.pth"))


def test_a_saved_model_loads_with_the_same_weights(tmp_path):
    config = SmallConfig(channels=8, tower_blocks=1, attention_channels=4, segment=5, warmup=2)
    model = VSRTSmall(config).eval()
    torch.nn.init.normal_(model.tail.conv.weight, std=0.1)
    save_model(tmp_path / "m.safetensors", model, score=26.5)
    loaded = load_model(tmp_path / "m.safetensors")
    assert loaded.config == config
    assert set(load_file(tmp_path / "m.safetensors")) == set(model.state_dict())
    clip = torch.rand(1, 3, 3, 16, 20)
    with torch.no_grad():
        assert torch.equal(model(clip), loaded(clip))


def test_half_precision_halves_the_file_and_loads_as_float32(tmp_path):
    model = VSRT(TINY)
    save_model(tmp_path / "whole.safetensors", model)
    save_model(tmp_path / "half.safetensors", model, half=True)
    sizes = [(tmp_path / f"{name}.safetensors").stat().st_size for name in ("whole", "half")]
    assert sizes[1] < 0.55 * sizes[0]
    for name, value in load_model(tmp_path / "half.safetensors").state_dict().items():
        assert torch.equal(value, model.state_dict()[name].half().float())


def test_a_failed_save_leaves_the_old_file(tmp_path):
    (tmp_path / "dir").write_text("in the way")
    with pytest.raises(WeightsError, match="cannot write"):
        save_model(tmp_path / "dir" / "m.safetensors", VSRT(TINY))
    save_model(tmp_path / "m.safetensors", VSRT(TINY))
    assert [p.name for p in tmp_path.iterdir() if "m.safe" in p.name] == ["m.safetensors"]


class Bomb:
    """An object whose unpickling runs code."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return Path.touch, (self.target,)


def bad_files(tmp_path):
    model = VSRT(TINY)
    good = released(model)
    torch.save({"params": good}, tmp_path / "whole.pth")
    save_model(tmp_path / "whole.safetensors", model)
    cut = {k: v for k, v in good.items() if k != "upconv1.bias"}
    wrong = good | {"upconv1.bias": torch.zeros(5)}
    more = good | {"extra.weight": torch.zeros(1)}
    torch.save({"optimizer": [1, 2]}, tmp_path / "no-tensors.pth")
    torch.save(torch.zeros(3), tmp_path / "bare.pth")
    torch.save({"a.weight": torch.zeros(3)}, tmp_path / "other.pth")
    torch.save(cut, tmp_path / "missing.pth")
    torch.save(wrong, tmp_path / "shape.pth")
    torch.save(more, tmp_path / "extra.pth")
    (tmp_path / "text.pth").write_text("hello")
    (tmp_path / "accents.pth").write_text("Grüße")
    (tmp_path / "dot.pth").write_bytes(b".")
    (tmp_path / "empty.pth").write_bytes(b"")
    (tmp_path / "empty.safetensors").write_bytes(b"")
    for name in ("whole.pth", "whole.safetensors"):
        data = (tmp_path / name).read_bytes()
        (tmp_path / f"cut-{name}").write_bytes(data[: len(data) // 2])
    (tmp_path / "bomb.pth").write_bytes(pickle.dumps(Bomb(tmp_path / "exploded")))
    about = {"vsrkit": json.dumps({"architecture": "vsrt", "config": {"nonsense": 1}})}
    save_file({"x": torch.zeros(1)}, tmp_path / "lies.safetensors", metadata=about)
    about = {"vsrkit": json.dumps({"architecture": "from the future"})}
    save_file({"x": torch.zeros(1)}, tmp_path / "newer.safetensors", metadata=about)
    about = {"vsrkit": json.dumps({"architecture": "edvr", "config": {"channels": -3}})}
    save_file({"x": torch.zeros(1)}, tmp_path / "negative.safetensors", metadata=about)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no-tensors.pth", "is not a model"),
        ("bare.pth", "is not a model"),
        ("other.pth", "the first is 'a.weight'"),
        ("missing.pth", r"has no tensor 'upconv1.bias', of shape \(24,\)"),
        ("shape.pth", r"'upconv1.bias' has shape \(5,\), expected \(24,\)"),
        ("extra.pth", "contains 'extra.weight', which this model does not have"),
        ("text.pth", "cannot be read as a PyTorch weight file"),
        ("accents.pth", "cannot be read as a PyTorch weight file"),
        ("dot.pth", "cannot be read as a PyTorch weight file"),
        ("empty.pth", "cannot be read as a PyTorch weight file"),
        ("empty.safetensors", "is not a complete safetensors file"),
        ("cut-whole.pth", "cannot be read as a PyTorch weight file"),
        ("cut-whole.safetensors", "is not a complete safetensors file"),
        ("bomb.pth", "cannot be read as a PyTorch weight file .Unsupported"),
        ("lies.safetensors", "has invalid metadata"),
        ("newer.safetensors", "update vsrkit"),
        ("negative.safetensors", "has invalid metadata"),
        ("nowhere.pth", "is not a file"),
        (".", "is not a file"),
    ],
)
def test_an_invalid_file_is_reported_in_one_line(tmp_path, name, message):
    bad_files(tmp_path)
    with pytest.raises(WeightsError, match=message) as error:
        load_model(tmp_path / name)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "exploded").exists()


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(UnknownModelError, match="did you mean 'vsrt-reds'"):
        load_model("vsrt-red")
    with pytest.raises(UnknownModelError, match="did you mean 'edvr-m'"):
        load_model("EDVR-M")


def test_an_unknown_name_unlike_any_other_gets_no_suggestion():
    with pytest.raises(UnknownModelError) as error:
        load_model("upscaler9000")
    assert str(error.value) == "no model called 'upscaler9000'; `vsrkit models` lists all"


def test_every_listed_model_can_be_built():
    assert vsrkit.list_models() == list_models()
    for name in list_models():
        with torch.device("meta"):
            assert build_model(name).spec.scale in (1, 2, 4)


def test_only_one_place_unpickles():
    source = Path(vsrkit.__file__).parent
    users = [p.name for p in source.rglob("*.py") if "torch.load(" in p.read_text()]
    assert users == ["weights.py"]
    # Arrays of the metrics' weights, by a reader that knows three names of numpy.
    users = [p.name for p in source.rglob("*.py") if "import pickle" in p.read_text()]
    assert users == ["metric_weights.py"]


def test_importing_the_package_does_not_import_torch():
    code = "import sys, vsrkit, vsrkit.cli; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("installed", "factor", "expected"),
    [
        (("vsrt-s-web", "vsrt-s-x2"), None, "vsrt-s-web"),
        (("vsrt-s-web", "vsrt-s-x2"), 2, "vsrt-s-x2"),
        (("vsrt-s-web", "vsrt-s-x2"), 1.5, "vsrt-s-x2"),
        (("vsrt-s-web", "vsrt-s-x2"), 2.01, "vsrt-s-web"),
        (("vsrt-s", "vsrt-s-x2"), 3, "vsrt-s"),
        (("vsrt-s-web",), 2, "vsrt-s-web"),
        ((), 2, "bicubic"),
    ],
)
def test_the_default_model_is_the_cheapest_that_is_large_enough(
    monkeypatch, installed, factor, expected
):
    monkeypatch.setattr(zoo, "local_weights", lambda name: name if name in installed else None)
    assert zoo.default_model(factor) == expected


def test_a_sharpness_interpolates_the_weights_of_a_pair(monkeypatch, tmp_path):
    install_pair(monkeypatch, tmp_path)
    soft, sharp = load_model("soft"), load_model("sharp")
    for name in ("soft", "sharp"):
        assert same_weights(load_model(name, sharpness=0), soft)
        assert same_weights(load_model(name, sharpness=1), sharp)
        middle = load_model(name, sharpness=0.25)
        assert not middle.training
        for key, weights in middle.named_parameters():
            a, b = soft.get_parameter(key).double(), sharp.get_parameter(key).double()
            torch.testing.assert_close(weights.double(), a + (b - a) / 4, rtol=1e-6, atol=1e-8)
    assert same_weights(load_model("soft"), soft)


def test_the_default_model_has_a_sharper_companion_in_the_package():
    soft, sharp = load_model("vsrt-s-web"), load_model("vsrt-s-vivid")
    assert not same_weights(soft, sharp)
    for sharpness, wanted in ((0, soft), (1, sharp)):
        found = load_model("vsrt-s-web", sharpness=sharpness)
        assert same_weights(found, wanted)
        assert model_digest(found) == model_digest(wanted)  # by which ranges of int8 are found


def test_a_sharpness_that_no_pair_has_is_an_error(monkeypatch, tmp_path):
    install_pair(monkeypatch, tmp_path, sharp=False)
    with pytest.raises(VsrkitError, match="vsrt-m has no sharper companion; a sharpness is for "):
        load_model("vsrt-m", sharpness=0.5)
    for wrong in (-0.1, 1.01, float("nan")):
        with pytest.raises(VsrkitError, match="a sharpness is a number from 0 to 1, not"):
            load_model("soft", sharpness=wrong)
    with pytest.raises(WeightsError, match="soft needs the weights of sharp, which are not inst"):
        load_model("soft", sharpness=0.5)


def test_companions_have_the_same_configuration():
    for entry in zoo.MODELS.values():
        if entry.sharper:
            companion = zoo.MODELS[entry.sharper]
            assert (companion.architecture, companion.config) == (entry.architecture, entry.config)
