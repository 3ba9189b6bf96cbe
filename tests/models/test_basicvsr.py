"""BasicVSR: exact to BasicSR, in segments, loadable from every public naming style."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file
from tests.golden.zoo.recipe import about, check_gradients, facts, filled, golden, sampled

from vsrkit.hardware.files import cache_directory
from vsrkit.models.basicvsr import BasicVSR, BasicVSRConfig, detect, public_name, translate
from vsrkit.models.spec import Segments, pieces
from vsrkit.models.zoo import load_model, local_weights

USERS_CACHE = cache_directory()  # before a fixture replaces it
SMALL = BasicVSRConfig(channels=16, blocks=2)


def small() -> BasicVSR:
    model = filled("basicvsr_small", BasicVSR(SMALL), public_name)
    assert isinstance(model, BasicVSR)
    return model


@pytest.mark.parametrize("name", ["basicvsr_small", "basicvsr_small_b2t2"])
def test_equals_basicsr(name):
    case = golden(name)
    with torch.no_grad():
        sr = small()(case["input"])
    # float32 sums in another order: about 3e-7 was seen
    torch.testing.assert_close(sampled(sr), case["output"], rtol=0, atol=1e-5)


def test_gradients_equal_basicsr():
    model = small()
    check_gradients("basicvsr_small", model, model(golden("basicvsr_small")["input"]), public_name)


@pytest.mark.parametrize("keep", [slice(0, 1), slice(1, 3), slice(2, 5), slice(4, 5)])
def test_keep_equals_a_slice_of_all_frames(keep):
    clip, model = golden("basicvsr_small")["input"][..., :16, :16], small()
    with torch.no_grad():
        assert torch.equal(model(clip, keep=keep), model(clip)[:, keep])


def test_passes_stop_at_the_last_frame_needed():
    model, runs = small(), {"backward": 0, "forward": 0}

    def count(name):
        def hook(module, inputs, output):
            runs[name] += 1

        return hook

    model.backward_trunk.register_forward_hook(count("backward"))
    model.forward_trunk.register_forward_hook(count("forward"))
    with torch.no_grad():
        model(torch.rand(1, 6, 3, 8, 8), keep=slice(4, 5))
    assert runs == {"backward": 2, "forward": 5}


def test_one_frame_is_enough():
    assert small()(torch.rand(1, 1, 3, 12, 10)).shape == (1, 1, 3, 48, 40)


def test_warmup_brings_segments_closer_to_the_whole_clip():
    torch.manual_seed(0)
    model, shot = small(), torch.rand(6, 3, 8, 8)
    with torch.no_grad():
        whole = model(shot[None])[0]

        def distance(length, warmup):
            parts = [
                model(piece.clip[None], keep=piece.keep)[0]
                for piece in pieces(shot, Segments(length, warmup))
            ]
            return (torch.cat(parts) - whole).abs().mean().item()

        assert distance(6, 0) == 0
        distances = [distance(2, warmup) for warmup in (0, 1, 2, 4)]
    assert distances == sorted(distances, reverse=True)
    assert distances[2] < distances[0] / 2
    assert distances[3] == 0  # every piece is the whole clip


def test_full_size_has_the_published_parameters_and_names():
    expected = about()["networks"]["basicvsr"]
    assert expected["parameters"] == 6_291_311
    assert facts(lambda: BasicVSR(BasicVSRConfig()), public_name) == expected


def test_names_of_mmediting_are_translated():
    names = about()["mmedit_names"]["basicvsr"]
    assert list(translate(dict.fromkeys(names, torch.zeros(1)))) == list(names.values())


def test_loads_a_file_in_the_style_of_mmediting(tmp_path):
    """As mmagic saves it: a prefix, a step counter, other names."""
    model = small()
    back = {public: foreign for foreign, public in about()["mmedit_names"]["basicvsr"].items()}
    tensors = {
        "generator." + back[public_name(name)]: value for name, value in model.state_dict().items()
    }
    torch.save({"state_dict": {**tensors, "step_counter": torch.zeros(1)}}, tmp_path / "x.pth")
    loaded = load_model(tmp_path / "x.pth")
    assert loaded.config == SMALL
    clip = torch.rand(1, 2, 3, 8, 8)
    with torch.no_grad():
        assert torch.equal(loaded(clip), model(clip))


def test_loads_a_file_of_basicsr(tmp_path):
    model = small()
    tensors = {public_name(name): value for name, value in model.state_dict().items()}
    save_file(tensors, tmp_path / "x.safetensors")
    assert load_model(tmp_path / "x.safetensors").config == SMALL
    assert detect(tensors) == SMALL
    assert detect({name: tensors[name] for name in tensors if "fusion" not in name}) is None


@pytest.mark.weights
def test_trained_weights_beat_bicubic(monkeypatch):
    """Needs `vsrkit weights get`: a moving edge is sharper than by interpolation."""
    name = "basicvsr-vimeo90k-bi"
    monkeypatch.setenv("VSRKIT_CACHE", str(USERS_CACHE))
    if local_weights(name) is None:
        pytest.skip(f"vsrkit weights get {name}")
    hr = torch.stack([_disc(128, 40 + 2 * t) for t in range(4)])
    lr = torch.nn.functional.interpolate(hr, scale_factor=0.25, mode="bicubic", antialias=True)
    with torch.no_grad():
        sr = load_model(name)(lr[None])[0]
    blurred = torch.nn.functional.interpolate(lr, scale_factor=4, mode="bicubic")
    assert (sr - hr).square().mean() < 0.5 * (blurred - hr).square().mean()


def _disc(size, centre):
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    distance = ((x - centre) ** 2 + (y - size / 2) ** 2).sqrt()
    return (30 - distance).clamp(0, 1).expand(3, size, size).contiguous()


def test_segment_and_warmup_are_part_of_the_spec():
    context = BasicVSR(replace(SMALL, segment=7, warmup=3)).spec.context
    assert (context.length, context.warmup) == (7, 3)
