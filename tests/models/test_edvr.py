"""EDVR: exact to BasicSR, loadable from BasicSR's, mmediting's and the authors' files."""

from dataclasses import replace

import pytest
import torch
from tests.golden.zoo.recipe import about, check_gradients, facts, filled, golden, sampled

from vsrkit.errors import VsrkitError, WeightsError
from vsrkit.models.edvr import (
    EDVR,
    LARGE,
    LARGE_VIMEO,
    MEDIUM,
    EDVRConfig,
    detect,
    public_name,
    translate,
)
from vsrkit.models.zoo import load_model

SMALL = EDVRConfig(channels=16, groups=4, extract_blocks=2, reconstruct_blocks=2)
CASES = {
    "edvr_small": SMALL,
    "edvr_small_predeblur": replace(SMALL, frames=3, predeblur=True),
    "edvr_m_full": MEDIUM,
}
FULL = {
    "edvr_m": (MEDIUM, 3_300_131),
    "edvr_m_wotsa": (replace(MEDIUM, attention=False), 2_996_259),
    "edvr_l": (LARGE, 20_633_827),
    "edvr_l_vimeo": (LARGE_VIMEO, 20_699_363),
    "edvr_l_srblur": (replace(LARGE, predeblur=True), 23_306_851),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_basicsr(name):
    case, model = golden(name), filled(name, EDVR(CASES[name]), public_name)
    with torch.no_grad():
        sr = model(case["input"])
    torch.testing.assert_close(sampled(sr[:, 0]), case["output"], rtol=0, atol=1e-5)


def test_gradients_equal_basicsr():
    model = filled("edvr_small", EDVR(SMALL), public_name)
    check_gradients("edvr_small", model, model(golden("edvr_small")["input"]), public_name)


@pytest.mark.parametrize("name", FULL)
def test_full_size_has_the_published_parameters_and_names(name):
    config, parameters = FULL[name]
    assert about()["networks"][name]["parameters"] == parameters
    assert facts(lambda: EDVR(config), public_name) == about()["networks"][name]


@pytest.mark.parametrize("config", [*CASES.values(), replace(SMALL, attention=False)])
def test_configuration_is_detected_from_shapes(config):
    with torch.device("meta"):
        model = EDVR(config)
    assert detect({public_name(name): v for name, v in model.state_dict().items()}) == config


@pytest.mark.parametrize("name", ["edvr_m", "edvr_m_wotsa", "edvr_l"])
def test_names_of_mmediting_are_translated(name):
    names = about()["mmedit_names"][name]
    assert list(translate(dict.fromkeys(names, torch.zeros(1)))) == list(names.values())


def test_loads_the_authors_file_with_its_swapped_attention(tmp_path):
    """In the authors' files `tAtt_1` is for neighbours and `tAtt_2` for the centre."""
    config = replace(SMALL, channels=8, groups=2, frames=3, extract_blocks=1, reconstruct_blocks=1)
    model = EDVR(config).eval()
    tensors = {authors_name(public_name(k)): v for k, v in model.state_dict().items()}
    assert "tsa_fusion.tAtt_2.weight" in tensors
    assert "pcd_align.L1_dcnpack.conv_offset_mask.weight" in tensors
    torch.save(tensors, tmp_path / "EDVR.pth")
    loaded, clip = load_model(tmp_path / "EDVR.pth"), torch.rand(1, 3, 3, 8, 8)
    assert loaded.config == config
    with torch.no_grad():
        assert torch.equal(loaded(clip), model(clip))


def authors_name(name: str) -> str:
    """BasicSR's name in the style of the first release of EDVR."""
    part, *rest = name.split(".")
    end = ".".join(rest)
    if part.startswith(("conv_l2", "conv_l3")):
        return f"fea_L{part[6]}_conv{part[8]}.{end}"
    if part == "pcd_align":
        kind, *more = rest
        more = ["conv_offset_mask" if m == "conv_offset" else m for m in more]
        if kind in ("offset_conv1", "offset_conv2", "offset_conv3"):
            return ".".join(["pcd_align", f"L{more[0][1]}_{kind}", *more[1:]])
        if kind == "dcn_pack":
            return ".".join(["pcd_align", f"L{more[0][1]}_dcnpack", *more[1:]])
        if kind == "feat_conv":
            return ".".join(["pcd_align", f"L{more[0][1]}_fea_conv", *more[1:]])
        return ".".join(["pcd_align", kind, *more])
    if part == "fusion":
        kind, last = rest
        if kind.startswith("temporal_attn"):
            return f"tsa_fusion.tAtt_{'21'[int(kind[-1]) - 1]}.{last}"
        kind = kind.replace("feat_fusion", "fea_fusion").replace("spatial_attn_add", "sAtt_add_")
        kind = kind.replace("spatial_attn_l", "sAtt_L").replace("spatial_attn", "sAtt_")
        return f"tsa_fusion.{kind}.{last}"
    renamed = {"reconstruction": "recon_trunk", "conv_hr": "HRconv"}
    return f"{renamed.get(part, part)}.{end}"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("conv_hr.weight", None, "has no tensor 'conv_hr.weight'"),
        ("conv_last.bias", torch.zeros(4), r"'conv_last.bias' has shape \(4,\), expected \(3,\)"),
        ("conv_more.bias", torch.zeros(4), "contains 'conv_more.bias', which this model does not"),
        ("fusion.feat_fusion.weight", torch.zeros(8, 16, 1, 1), "edvr, but .*other shapes"),
        ("fusion.feat_fusion.weight", torch.zeros(8), "edvr, but .*other shapes"),
    ],
)
def test_the_error_names_the_first_tensor_that_does_not_fit(tmp_path, name, value, message):
    model = EDVR(replace(SMALL, channels=8, groups=2, extract_blocks=1, reconstruct_blocks=1))
    tensors = {public_name(k): v for k, v in model.state_dict().items()} | {name: value}
    torch.save({k: v for k, v in tensors.items() if v is not None}, tmp_path / "x.pth")
    with pytest.raises(WeightsError, match=message):
        load_model(tmp_path / "x.pth")


def test_deblurring_keeps_the_size():
    config = replace(
        SMALL, channels=4, groups=2, frames=3, predeblur=True, deblur_only=True, extract_blocks=1
    )
    model = EDVR(config)
    assert (model.spec.scale, model.spec.multiple) == (1, 16)
    assert model(torch.rand(1, 3, 3, 32, 16)).shape == (1, 1, 3, 32, 16)
    with pytest.raises(ValueError, match="predeblur"):
        EDVRConfig(deblur_only=True)


def test_another_number_of_frames_is_an_error():
    with pytest.raises(VsrkitError, match="takes 5 frames at once, got 4"):
        EDVR(SMALL)(torch.rand(1, 4, 3, 8, 8))
