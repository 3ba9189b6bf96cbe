"""RealBasicVSR: exact to mmagic, with repeated cleaning, loadable from public files."""

from dataclasses import replace

import pytest
import torch
from tests.golden.zoo.recipe import about, check_gradients, facts, filled, golden, sampled

from vsrkit.hardware.device import Precision
from vsrkit.inference.engine import Engine, upscale_frames
from vsrkit.models.realbasicvsr import (
    MAX_PASSES,
    RealBasicVSR,
    RealBasicVSRConfig,
    detect,
    public_name,
    translate,
)
from vsrkit.models.zoo import load_model

SMALL = RealBasicVSRConfig(channels=16, cleaning_blocks=2, blocks=2)
FLOAT32 = Precision("float32", channels_last=False)


def small(threshold: float = 255) -> RealBasicVSR:
    config = replace(SMALL, threshold=threshold)
    model = filled("realbasicvsr_small", RealBasicVSR(config), public_name)
    assert isinstance(model, RealBasicVSR)
    return model


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("realbasicvsr_small", SMALL),
        ("realbasicvsr_small_refine", replace(SMALL, threshold=5)),  # three passes
        ("realbasicvsr_full", RealBasicVSRConfig()),
    ],
)
def test_equals_mmagic(name, config):
    case, model = golden(name), filled(name, RealBasicVSR(config), public_name)
    with torch.no_grad():
        cleaned, sr = model.clean(case["input"]), model(case["input"])
    # float32 sums in another order
    torch.testing.assert_close(sampled(cleaned), case["mid.cleaned"], rtol=0, atol=1e-5)
    torch.testing.assert_close(sampled(sr), case["output"], rtol=0, atol=1e-5)


def test_gradients_equal_mmagic():
    model, case = small(), golden("realbasicvsr_small")
    check_gradients("realbasicvsr_small", model, model(case["input"]), public_name)


@pytest.mark.parametrize("enough", [1, 2, 3])
def test_cleaning_stops_after_a_pass_that_changes_little(enough):
    """The residues of this network shrink from pass to pass: thresholds between them."""
    model, clip, sizes = small(), golden("realbasicvsr_small")["input"], []
    with torch.no_grad():
        for passes in range(1, MAX_PASSES + 1):
            model.config = replace(SMALL, threshold=0)
            sizes.append((model.clean(clip, passes) - model.clean(clip, passes - 1)).abs().mean())
        threshold = 255 * sizes[enough - 1].item() * 1.01
        assert [s.item() < threshold / 255 for s in sizes].index(True) == enough - 1
        model.config = replace(SMALL, threshold=threshold)
        assert torch.equal(model.clean(clip), model.clean(clip, enough))


def test_pieces_of_a_shot_have_one_pass():
    """Otherwise the output would depend on where segments begin."""
    model, shot = small(threshold=5), golden("realbasicvsr_small")["input"][0, :, :, :16, :16]
    with torch.no_grad():
        once, repeated = small()(shot[None])[0], model(shot[None])[0]
    found = torch.stack(list(upscale_frames(shot, Engine(model, FLOAT32))))
    torch.testing.assert_close(found, once.clamp(0, 1), rtol=0, atol=1e-5)
    assert (repeated - once).abs().max() > 0.1


@pytest.mark.parametrize(("frames", "height", "width"), [(1, 12, 10), (2, 7, 9), (3, 1, 5)])
def test_any_length_and_size(frames, height, width):
    with torch.no_grad():
        sr = small()(torch.rand(2, frames, 3, height, width))
    assert sr.shape == (2, frames, 3, 4 * height, 4 * width)
    assert sr.isfinite().all()


def test_full_size_has_the_published_parameters_and_names():
    expected = about()["networks"]["realbasicvsr"]
    assert expected["parameters"] == 6_294_834
    assert facts(lambda: RealBasicVSR(RealBasicVSRConfig()), public_name) == expected


@pytest.mark.parametrize("averaged", [True, False])
def test_loads_a_file_of_mmagic(tmp_path, averaged):
    """As it is trained: averaged weights, which are used for tests, and a discriminator."""
    model = small()
    tensors = {public_name(name): value for name, value in model.state_dict().items()}
    content = {f"generator_ema.{name}" if averaged else f"generator.{name}": value
               for name, value in tensors.items()}  # fmt: skip
    if averaged:
        content |= {f"generator.{name}": torch.zeros_like(v) for name, v in tensors.items()}
    content |= {"discriminator.conv_0.weight": torch.zeros(1), "step_counter": torch.zeros(1)}
    content |= {"perceptual_loss.vgg.mean": torch.zeros(3)}
    torch.save({"state_dict": content, "meta": {}}, tmp_path / "x.pth")
    loaded = load_model(tmp_path / "x.pth")
    assert loaded.config == SMALL
    clip = torch.rand(1, 2, 3, 8, 8)
    with torch.no_grad():
        assert torch.equal(loaded(clip), model(clip))


def test_names_in_the_style_of_basicsr_are_translated():
    tensors = {public_name(name): value for name, value in small().state_dict().items()}
    other = {
        name.replace("_resblocks", "_trunk")
        .replace("upsample1.upsample_conv", "upconv1")
        .replace("upsample2.upsample_conv", "upconv2"): value
        for name, value in tensors.items()
    }
    assert other.keys() != tensors.keys()
    assert translate(other).keys() == tensors.keys()
    assert detect(tensors) == SMALL
    assert detect({"image_cleaning.1.weight": torch.zeros(3, 16, 3, 3)}) is None
