"""RVRT: exact to the authors' code, padded as in their test, loadable from their files."""

import pytest
import torch
from tests.golden.zoo.recipe import about, filled, golden, names_digest, sampled
from tests.models.layers.test_swin import with_position_index

from vsrkit.errors import WeightsError
from vsrkit.hardware.device import Precision
from vsrkit.inference.engine import Engine, upscale_frames
from vsrkit.models.layers.deform import deform_attention
from vsrkit.models.rvrt import RVRT, RVRTConfig
from vsrkit.models.zoo import load_model
from vsrkit.models.zoo.listing import CountOnly
from vsrkit.models.zoo.rvrt_files import public_name

SMALL = RVRTConfig(channels=24, groups=(1, 1, 1), window_heads=(2, 3, 2), offset_groups=4, heads=6)
TINY = RVRTConfig(
    channels=12, groups=(1, 1, 1), depths=(1, 2, 1), window_heads=(2, 2, 2), offset_groups=2
)
FLOAT32 = Precision("float32", channels_last=False)


def small() -> RVRT:
    model = filled("rvrt_small", RVRT(SMALL), public_name)
    assert isinstance(model, RVRT)
    return model


@pytest.fixture(scope="module")
def tiny() -> RVRT:
    torch.manual_seed(0)
    return RVRT(TINY).eval()


def public_shapes(model):
    """As in the authors' files: convolutions have an axis for time."""
    shapes = {public_name(n): tuple(v.shape) for n, v in model.state_dict().items()}
    conv = {n: (*s[:2], 1, *s[2:]) for n, s in shapes.items() if len(s) == 4}
    conv = {n: s for n, s in conv.items() if not n.startswith("spynet.")}
    return with_position_index(shapes | conv, model.config.window, 2)


@pytest.mark.parametrize("chunk", [2**24, 3000])
def test_deformable_attention_equals_the_authors_operator(chunk):
    case = golden("rvrt_deform_attn")
    kv = case["kv"]
    sources = kv.flatten(0, 1), kv.flip(1).flatten(0, 1)
    offsets = case["offset"].chunk(2, 1)
    out = deform_attention(case["q"][:, 0], sources, offsets, 3, chunk=chunk)
    # float32 sums in another order: 1e-7 was seen
    torch.testing.assert_close(out, case["output"][:, 0], rtol=0, atol=1e-6)


def test_deformable_attention_in_parts_has_the_same_gradients():
    case = golden("rvrt_deform_attn")
    gradients = []
    for chunk in (2**24, 3000):
        kv, q = case["kv"].clone().requires_grad_(), case["q"][:, 0].clone().requires_grad_()
        offset = case["offset"].clone().requires_grad_()
        sources = kv.flatten(0, 1), kv.flip(1).flatten(0, 1)
        out = deform_attention(q, sources, offset.chunk(2, 1), 3, chunk=chunk)
        gradients.append(torch.autograd.grad(out.square().sum(), (q, kv, offset)))
    for whole, parts in zip(*gradients, strict=True):
        torch.testing.assert_close(parts, whole, rtol=0, atol=1e-5)


def test_output_equals_the_authors_code():
    case, model = golden("rvrt_small"), small()
    with torch.no_grad():
        sr = model(case["input"])
    # float32 sums in another order: about 4e-6 was seen
    torch.testing.assert_close(sampled(sr[..., ::2, ::2]), case["output_sub2"], rtol=0, atol=2e-5)


def test_an_odd_clip_repeats_its_last_frame(tiny):
    clip = torch.rand(2, 3, 3, 8, 16)
    even = torch.cat([clip, clip[:, -1:]], 1)
    with torch.no_grad():
        assert torch.equal(tiny(clip), tiny(even)[:, :3])
        assert tiny(clip[:, :1]).shape == (2, 1, 3, 32, 64)


def test_the_pipeline_mirrors_frames_with_their_edge(tiny):
    shot = torch.rand(2, 3, 5, 13)
    mirrored = torch.cat([shot, shot.flip(2)], 2)[:, :, :8]
    mirrored = torch.cat([mirrored, mirrored.flip(3)], 3)[..., :16]
    with torch.no_grad():
        expected = tiny(mirrored[None])[0, ..., :20, :52].clamp(0, 1)
    found = torch.stack(list(upscale_frames(shot, Engine(tiny, FLOAT32))))
    assert torch.equal(found, expected)


def test_other_sizes_run_without_padding(tiny):
    with torch.no_grad():
        assert tiny(torch.rand(1, 2, 3, 3, 11)).shape == (1, 2, 3, 12, 44)


def test_full_size_has_the_published_parameters_and_names():
    with torch.device("meta"), CountOnly():
        model = RVRT(RVRTConfig())
    expected = about()["networks"]["rvrt"]
    assert sum(p.numel() for p in model.parameters()) == expected["parameters"] == 10_782_295
    assert names_digest(public_shapes(model)) == expected["names"]


def test_an_authors_file_is_recognised(tmp_path):
    model = small()
    tensors = {public_name(n): v for n, v in model.state_dict().items()}
    for name, shape in public_shapes(model).items():
        tensors[name] = tensors[name].reshape(shape) if name in tensors else torch.zeros(shape)
    torch.save({"params": tensors}, tmp_path / "001_RVRT.pth")
    loaded = load_model(tmp_path / "001_RVRT.pth", heads=6)  # not in the file; 12 if not given
    assert isinstance(loaded, RVRT)
    assert loaded.config == SMALL
    assert load_model(tmp_path / "001_RVRT.pth").config.heads == 12
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)


def test_a_file_without_some_of_its_tensors_is_reported_by_name(tmp_path, tiny):
    tensors = {public_name(n): v for n, v in tiny.state_dict().items()}
    kept = {n: v for n, v in tensors.items() if not n.startswith("backbone.")}
    torch.save(kept, tmp_path / "part.pth")
    with pytest.raises(WeightsError, match=r"lacks some, .*'backbone\.backward_1\..*'\)$") as error:
        load_model(tmp_path / "part.pth")
    assert "\n" not in str(error.value)


def test_configurations_that_cannot_work():
    with pytest.raises(ValueError, match="heads must divide 288, twice the channels, got 5"):
        RVRTConfig(heads=5)
    with pytest.raises(ValueError, match="multiples of 2, got 5 and 1"):
        RVRTConfig(segment=5, warmup=1)
