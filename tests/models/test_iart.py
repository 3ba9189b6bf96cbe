"""IART: exact to the authors' code, at any size, loadable from their files."""

import pytest
import torch
from tests.golden.zoo.recipe import about, check_gradients, filled, golden, names_digest, sampled
from tests.models.layers.test_swin import with_position_index

from vsrkit.models.iart import IART, TAPS, IARTConfig, ImplicitWarp, position_code, public_name
from vsrkit.models.zoo import load_model
from vsrkit.models.zoo.listing import CountOnly

SMALL = IARTConfig(channels=24, depths=(2, 2), window_heads=(2, 2), tail_channels=16)
CONSTANTS = {"implicit_warp.position_bias": (1, 4), "implicit_warp.window_idx_offset": (4, 2)}


def small() -> IART:
    model = filled("iart_small", IART(SMALL), public_name)
    assert isinstance(model, IART)
    return model


def public_shapes(model):
    shapes = {public_name(n): tuple(v.shape) for n, v in model.state_dict().items()}
    channels = model.config.channels
    constants = {**CONSTANTS, "implicit_warp.position_bias": (1, 4, channels)}
    return with_position_index(shapes, 8, 3) | constants


def test_resampling_equals_the_authors_code():
    case = golden("psrt_iart_ops")
    layer = ImplicitWarp(12, 3)
    prefix = "state.implicit_warp."
    layer.load_state_dict(
        {n.removeprefix(prefix): v for n, v in case.items() if n.startswith(prefix)}
    )
    given = (case[f"implicit_warp.{name}"] for name in ("y", "flow", "x"))
    # Some flows lead far outside of the frame. Angles of position codes reach 300: 1e-6 was seen.
    torch.testing.assert_close(layer(*given), case["implicit_warp.output"], rtol=0, atol=1e-5)
    code = position_code(torch.tensor(TAPS), 1, 12)
    assert torch.equal(code, case["implicit_warp.position_bias"][0])


def test_a_flow_that_is_not_a_number_does_no_harm():
    flow = torch.zeros(1, 2, 4, 5)
    flow[0, 0, 1], flow[0, 1, 2] = torch.nan, 1e30
    features = torch.rand(1, 12, 4, 5)
    assert ImplicitWarp(12, 3)(features, flow, features).isfinite().all()


def test_output_and_gradients_equal_the_authors_code():
    case, model = golden("iart_small"), small()
    sr = model(case["input"])
    # float32 sums in another order: about 2e-6 was seen
    torch.testing.assert_close(sampled(sr), case["output"], rtol=0, atol=2e-5)
    gradients = about()["gradients"]["iart_small"]["params"]
    # Softmax does not depend on a constant that is added to all keys: only noise is listed.
    gradients.pop("implicit_warp.k.bias", None)
    check_gradients("iart_small", model, sr, public_name)


def test_gradients_reach_the_flow_also_after_inference():
    layer, features = ImplicitWarp(20, 5), torch.rand(1, 20, 4, 5)
    flow = torch.full((1, 2, 4, 5), 0.3, requires_grad=True)
    with torch.inference_mode():
        layer(features, flow, features)
    layer(features, flow, features).square().sum().backward()
    assert flow.grad.any()


@pytest.mark.parametrize("size", [(1, 1), (3, 12)])
def test_any_size(size):
    with torch.no_grad():
        sr = small()(torch.rand(1, 3, 3, *size))
    assert sr.shape == (1, 3, 3, 4 * size[0], 4 * size[1])
    assert sr.isfinite().all()


def test_full_size_has_the_published_parameters_and_names():
    with torch.device("meta"), CountOnly():
        model = IART(IARTConfig())
    expected = about()["networks"]["iart"]
    assert sum(p.numel() for p in model.parameters()) == expected["parameters"] == 13_410_503
    assert sum(p.numel() for p in model.implicit_warp.parameters()) == 43_560
    assert names_digest(public_shapes(model)) == expected["names"]


def test_an_authors_file_is_recognised(tmp_path):
    model = small()
    tensors = {public_name(n): v for n, v in model.state_dict().items()}
    for name, shape in public_shapes(model).items():
        tensors.setdefault(name, torch.zeros(shape))
    torch.save({"params": tensors}, tmp_path / "IART.pth")
    loaded = load_model(tmp_path / "IART.pth")
    assert isinstance(loaded, IART)
    assert loaded.config == SMALL
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)


def test_channels_must_be_divisible():
    with pytest.raises(ValueError, match="multiple of 4, got 6"):
        IARTConfig(channels=6)
