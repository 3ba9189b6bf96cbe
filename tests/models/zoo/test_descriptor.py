"""Descriptors: every model of the table, every public file, any size of clip."""

import copy

import pytest
import torch
from tests.models.test_contract import SMALL, WITHOUT_PUBLIC_FILES, small

import vsrkit
from vsrkit.errors import VsrkitError
from vsrkit.hardware.device import Precision
from vsrkit.inference.engine import Engine, upscale_frames
from vsrkit.models.spec import Segments, Window
from vsrkit.models.zoo import ARCHITECTURES, MODELS, build_model
from vsrkit.models.zoo.descriptor import (
    TITLES,
    ModelTiling,
    SizeRequirements,
    describe_model,
    load_descriptor,
)
from vsrkit.models.zoo.listing import CountOnly


def test_every_architecture_has_a_title():
    assert set(ARCHITECTURES) <= set(TITLES)


@pytest.mark.parametrize("name", MODELS)
def test_every_entry_of_the_table(name):
    with torch.device("meta"), CountOnly():  # fills no weights
        model = build_model(name)
    found = describe_model(model)
    assert found.model is model
    assert found.architecture == (MODELS[name].architecture, TITLES[MODELS[name].architecture])
    assert found.scale == model.spec.scale
    assert found.purpose == ("SR" if found.scale > 1 else "Restoration")
    assert (found.input_channels, found.output_channels) == (3, 3)
    assert found.tiling is ModelTiling.SUPPORTED
    assert (found.supports_half, found.supports_bfloat16) == (True, True)
    assert found.context == model.spec.context
    assert found.frames is None or found.frames == found.context.size > 1
    sizes = found.size_requirements
    assert sizes.minimum >= 1
    assert sizes.square == (model.spec.tile is not None)
    side = sizes.minimum * sizes.multiple_of
    assert sizes.check(side, side) or sizes.square


@pytest.mark.parametrize("name", SMALL)
def test_every_file_runs_at_any_size(name, tmp_path):
    model, architecture = small(name), ARCHITECTURES[name]
    if name in WITHOUT_PUBLIC_FILES:
        found = describe_model(model)
    else:
        tensors = {architecture.public_name(n): v for n, v in model.state_dict().items()}
        torch.save({"params": tensors}, tmp_path / "public.pth")
        found = load_descriptor(tmp_path / "public.pth")
    assert found.architecture.id == name
    height, width = (5, 6) if found.size_requirements.square else (7, 10)
    clip = torch.rand(2, 3, 3, height, width)
    sr = found(clip)
    assert sr.shape == (2, 3, 3, height * found.scale, width * found.scale)
    engine = Engine(model, Precision("float32", channels_last=False))
    frames = torch.stack(list(upscale_frames(clip[1], engine)))
    # Convolutions of another batch size may sum in another order.
    torch.testing.assert_close(sr[1], frames, rtol=0, atol=2e-5)


def test_size_requirements():
    assert SizeRequirements().check(1, 3)
    assert SizeRequirements(minimum=8, multiple_of=4).check(8, 12)
    assert not SizeRequirements(minimum=8, multiple_of=4).check(8, 10)
    assert not SizeRequirements(minimum=8, multiple_of=4).check(4, 12)
    assert SizeRequirements(minimum=64, square=True).check(64, 64)
    assert not SizeRequirements(minimum=64, square=True).check(128, 128)


def test_the_public_function_loads_names():
    found = vsrkit.load_descriptor("bicubic")
    assert (found.frames, found.context) == (None, Window(1, "all"))
    assert found.to("cpu") is found
    assert found.device == torch.device("cpu")
    assert describe_model(small("rvrt")).context == Segments(30, 10)
    assert vsrkit.load_descriptor("vsrt-reds", 3).frames == 3


def test_converted_weights_are_refused_in_one_line():
    model = copy.deepcopy(small("psrt")).half()
    with pytest.raises(VsrkitError, match="must stay in float32; instead of"):
        describe_model(model)(torch.rand(1, 2, 3, 8, 8))


@pytest.mark.parametrize(
    ("name", "clip", "message"),
    [
        ("vsrt", torch.rand(1, 3, 3, 8, 17), "takes 16x16 pixels, got 17x8"),
        ("psrt", torch.rand(3, 8, 8), r"got torch.float32 \(3, 8, 8\)"),
        ("psrt", torch.rand(1, 2, 4, 8, 8), r"expected a clip \(B, T, 3, H, W\)"),
        ("psrt", torch.zeros(1, 2, 3, 8, 8, dtype=torch.uint8), "got torch.uint8"),
        ("psrt", torch.rand(1, 0, 3, 8, 8), "is empty"),
    ],
)
def test_a_wrong_clip_is_refused_in_one_line(name, clip, message):
    with pytest.raises(VsrkitError, match=message) as error:
        describe_model(small(name))(clip)
    assert "\n" not in str(error.value)
