"""TOFlow: exact to BasicSR on frames enlarged by bicubic interpolation."""

import pytest
import torch
from safetensors.torch import save_file
from tests.golden.zoo.recipe import about, check_gradients, facts, filled, golden, sampled

from vsrkit.models.layers.resample import imresize
from vsrkit.models.toflow import TOFlow, TOFlowConfig, detect, public_name, translate
from vsrkit.models.zoo import load_model

IN_ORDER = TOFlowConfig(centre_first=False)


def test_equals_basicsr():
    case = golden("toflow_ref3")
    model = filled("toflow_ref3", TOFlow(IN_ORDER), public_name)
    with torch.no_grad():
        refined = model.refine(case["input"])
    torch.testing.assert_close(sampled(refined), case["output"], rtol=0, atol=1e-5)


def test_gradients_equal_basicsr_with_the_centre_first():
    model = filled("toflow_ref3", TOFlow(TOFlowConfig()), public_name)
    refined = model.refine(golden("toflow_ref3")["input"])
    loss = ((refined - 0.5) ** 2 + 1e-12).sqrt().sum().item()
    assert loss == pytest.approx(about()["gradients"]["toflow"]["loss_sum"], rel=1e-6)
    check_gradients("toflow", model, refined, public_name)


def test_enlarges_by_bicubic_first():
    model, clip = TOFlow(IN_ORDER).eval(), torch.rand(1, 7, 3, 4, 8)
    with torch.no_grad():
        assert torch.equal(model(clip)[:, 0], model.refine(imresize(clip, 4)))


def test_the_authors_order_puts_the_centre_first():
    ordered, first = TOFlow(IN_ORDER).eval(), TOFlow(TOFlowConfig()).eval()
    first.load_state_dict(ordered.state_dict())
    weight = ordered.conv_1.weight.data.unflatten(1, (7, 3))
    first.conv_1.weight.data = weight[:, [3, 0, 1, 2, 4, 5, 6]].flatten(1, 2)
    clip = torch.rand(1, 7, 3, 4, 4)
    with torch.no_grad():
        torch.testing.assert_close(ordered(clip), first(clip), rtol=0, atol=1e-5)


def test_full_size_has_the_published_parameters_and_names():
    assert about()["networks"]["toflow"]["parameters"] == 1_405_899
    assert facts(lambda: TOFlow(TOFlowConfig()), public_name) == about()["networks"]["toflow"]


def test_names_of_mmediting_are_translated():
    names = about()["mmedit_names"]["toflow"]
    found = list(translate(dict.fromkeys(names, torch.zeros(1))))
    assert found[: len(names)] == list(names.values())


def test_a_file_without_mean_and_std_gets_them(tmp_path):
    """mmagic normalises in its data pipeline."""
    model = TOFlow(TOFlowConfig())
    tensors = {public_name(n): v for n, v in model.state_dict().items() if n not in ("mean", "std")}
    save_file(tensors, tmp_path / "tof.safetensors")
    loaded = load_model(tmp_path / "tof.safetensors")
    assert torch.equal(loaded.mean, model.mean)
    assert detect({"conv_1.weight": torch.zeros(1)}) is None
