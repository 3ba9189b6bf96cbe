"""RCAN: exact to BasicSR, loadable from the authors' files."""

import torch
from tests.golden.zoo.recipe import about, check_gradients, facts, filled, golden, sampled

from vsrkit.models.rcan import RCAN, RCANConfig, detect, translate
from vsrkit.models.zoo import load_model

SMALL = RCANConfig(channels=32, groups=2, blocks=3, squeeze=8)


def test_equals_basicsr_with_gradients():
    case, model = golden("rcan_small"), filled("rcan_small", RCAN(SMALL))
    sr = model(case["input"][:, None])[:, 0]
    torch.testing.assert_close(sampled(sr), case["output"], rtol=0, atol=1e-5)
    check_gradients("rcan_small", model, sr)


def test_frames_are_independent():
    model, clip = RCAN(SMALL).eval(), torch.rand(1, 3, 3, 8, 9)
    with torch.no_grad():
        torch.testing.assert_close(model(clip, keep=slice(1, 2))[0], model(clip[0, 1:2, None])[0])


def test_full_size_has_the_published_parameters_and_names():
    assert about()["networks"]["rcan"]["parameters"] == 15_592_355
    assert facts(lambda: RCAN(RCANConfig())) == about()["networks"]["rcan"]


def test_names_of_the_authors_are_translated():
    names = dict.fromkeys(about()["rcan_authors_names"], torch.zeros(1))
    assert "add_mean.weight" in names
    with torch.device("meta"):
        ours = set(RCAN(RCANConfig(groups=1)).state_dict())
    assert set(translate(names)) == ours


def test_loads_the_authors_file(tmp_path):
    """The index of a group's last convolution is the number of its blocks, of the body's groups."""
    model = RCAN(SMALL).eval()
    renamed = {
        "conv_first": "head.0",
        "conv_after_body": "body.2",
        "upsample": "tail.0",
        "conv_last": "tail.1",
    }
    tensors = {"sub_mean.bias": torch.zeros(3)}
    for name, value in model.state_dict().items():
        part, rest = name.split(".", 1)
        if part == "body":
            rest = rest.replace(".residual_group.", ".body.").replace(".rcab.", ".body.")
            rest = rest.replace("attention.1.", "conv_du.0.").replace("attention.3.", "conv_du.2.")
            rest = rest.replace(".conv.", ".body.3.")
        tensors[f"{renamed.get(part, part)}.{rest}"] = value
    torch.save(tensors, tmp_path / "RCAN_BIX4.pt")
    loaded, clip = load_model(tmp_path / "RCAN_BIX4.pt"), torch.rand(1, 1, 3, 6, 6)
    assert loaded.config == SMALL
    with torch.no_grad():
        assert torch.equal(loaded(clip), model(clip))


def test_other_networks_with_a_body_are_not_detected():
    assert (
        detect(translate({"body.0.weight": torch.zeros(1), "tail.1.weight": torch.zeros(1)}))
        is None
    )
