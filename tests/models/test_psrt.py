"""PSRT-recurrent: exact to the authors' code, at any size, loadable from their files."""

import pytest
import torch
from tests.golden.zoo.recipe import about, check_gradients, filled, golden, names_digest, sampled
from tests.models.layers.test_swin import with_position_index

from vsrkit.errors import WeightsError
from vsrkit.models.layers.flow import warp
from vsrkit.models.psrt import PSRT, PSRTConfig, patch_flow, public_name
from vsrkit.models.zoo import load_model
from vsrkit.models.zoo.listing import CountOnly

SMALL = PSRTConfig(channels=24, depths=(2, 2), window_heads=(2, 3), tail_channels=16)


def small() -> PSRT:
    model = filled("psrt_small", PSRT(SMALL), public_name)
    assert isinstance(model, PSRT)
    return model


def test_patches_move_as_in_the_authors_code():
    case = golden("psrt_iart_ops")
    moved = patch_flow(case["patch_align.flow"])
    out = warp(case["patch_align.input"], moved, mode="nearest")
    assert torch.equal(out, case["patch_align.output"])


def test_output_and_gradients_equal_the_authors_code():
    case, model = golden("psrt_small"), small()
    sr = model(case["input"])
    # float32 sums in another order: about 2e-6 was seen
    torch.testing.assert_close(sampled(sr), case["output"], rtol=0, atol=2e-5)
    check_gradients("psrt_small", model, sr, public_name)


@pytest.mark.parametrize("size", [(1, 1), (3, 12), (9, 5)])
def test_any_size_and_length(size):
    model = small()
    for frames in (1, 2):
        clip = torch.rand(1, frames, 3, *size)
        with torch.no_grad():
            sr = model(clip)
        assert sr.shape == (1, frames, 3, 4 * size[0], 4 * size[1])
        assert sr.isfinite().all()


def test_only_the_last_branch_stops_early():
    model, runs = small(), []
    for name, branch in model.branches.items():
        branch.register_forward_hook(lambda *_, name=name: runs.append(name))
    with torch.no_grad():
        model(torch.rand(1, 4, 3, 8, 8), keep=slice(0, 2))
    assert runs == ["backward_1"] * 4 + ["forward_1"] * 4 + ["backward_2"] * 4 + ["forward_2"] * 2


def test_drop_path_is_only_active_in_training():
    model, clip = small(), torch.rand(1, 1, 3, 8, 8)
    with torch.no_grad():
        expected = model(clip)
        torch.manual_seed(0)
        outputs = [model.train()(clip) for _ in range(8)]
        assert any(not torch.equal(sr, expected) for sr in outputs)
        assert torch.equal(model.eval()(clip), expected)


def test_full_size_has_the_published_parameters_and_names():
    with torch.device("meta"), CountOnly():
        model = PSRT(PSRTConfig())
    shapes = {public_name(name): tuple(v.shape) for name, v in model.state_dict().items()}
    expected = about()["networks"]["psrt"]
    assert sum(p.numel() for p in model.parameters()) == expected["parameters"] == 13_366_943
    unused = sum(p.numel() for n, p in model.named_parameters() if ".unused." in n)
    assert unused == 567_136
    assert names_digest(with_position_index(shapes, 8, 3)) == expected["names"]


@pytest.mark.parametrize("wrap", [lambda tensors: {"params": tensors}, dict])
def test_an_authors_file_is_recognised(tmp_path, wrap):
    model = small()
    tensors = {public_name(n): v for n, v in model.state_dict().items()}
    for name in with_position_index({n: v.shape for n, v in tensors.items()}, 8, 3):
        tensors.setdefault(name, torch.zeros(192, 192, dtype=torch.int64))
    torch.save(wrap(tensors), tmp_path / "PSRT.pth")
    loaded = load_model(tmp_path / "PSRT.pth")
    assert isinstance(loaded, PSRT)
    assert loaded.config == SMALL
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)


def test_a_width_that_the_authors_code_treats_differently_is_refused(tmp_path):
    model = PSRT(PSRTConfig(channels=64, depths=(1,), window_heads=(1,)))
    tensors = {public_name(n): v for n, v in model.state_dict().items()}
    torch.save(tensors, tmp_path / "x.pth")
    with pytest.raises(WeightsError, match="64 channels are not supported"):
        load_model(tmp_path / "x.pth")
