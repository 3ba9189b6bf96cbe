"""Warm starts from files of any style, and how weights are laid out for training."""

from copy import deepcopy

import pytest
import torch

from vsrkit.hardware.precision import Precision
from vsrkit.models.basicvsr import BasicVSR, BasicVSRConfig, public_name
from vsrkit.models.layers.flow import spynet_basicsr_name
from vsrkit.models.vsrt import VSRT, VSRTConfig
from vsrkit.models.zoo import save_model
from vsrkit.train.losses import charbonnier
from vsrkit.train.warm_start import lay_out_to_train, warm_start


def test_flow_networks_keep_pytorchs_layout_in_float32():
    model = VSRT(VSRTConfig(frames=3, depth=1, channels=8, tower_blocks=1, reconstruct_blocks=1))
    lay_out_to_train(model, Precision("float32", channels_last=True))
    assert all(p.is_contiguous() for p in model.flow.parameters())
    weight = model.layers[0].attention.out.weight
    assert weight.is_contiguous(memory_format=torch.channels_last)
    lay_out_to_train(model, Precision("bfloat16", channels_last=True))
    assert not all(p.is_contiguous() for p in model.flow.parameters())


def test_gradients_are_those_of_plain_training():
    """Flows that differ in the last bit can fall into another pixel: that is the hard part."""
    torch.manual_seed(0)
    plain = VSRT(
        VSRTConfig(frames=3, depth=1, channels=16, tower_blocks=2, reconstruct_blocks=2, size=32)
    )
    laid_out = deepcopy(plain)
    lay_out_to_train(laid_out, Precision("float32", channels_last=True))
    lr, hr = torch.rand(1, 3, 3, 32, 32), torch.rand(1, 3, 3, 128, 128)
    apart, size = 0.0, 0.0
    for model in (plain, laid_out):
        charbonnier(model(lr), hr).backward()
    for a, b in zip(plain.parameters(), laid_out.parameters(), strict=True):
        apart += float((a.grad - b.grad).double().square().sum())
        size += float(a.grad.double().square().sum())
    assert (apart / size) ** 0.5 < 1e-4  # measured: 6e-5 on the whole net, 6e-4 without


def test_a_public_file_warms_the_whole_model(tmp_path):
    trained, fresh = (BasicVSR(BasicVSRConfig(channels=8, blocks=1)) for _ in range(2))
    tensors = {public_name(name): value for name, value in trained.state_dict().items()}
    torch.save({"params": tensors}, tmp_path / "BasicVSR.pth")
    taken = warm_start(fresh, str(tmp_path / "BasicVSR.pth"))
    assert len(taken.filled) == len(tensors)
    assert not taken.misfits + taken.unused
    for (name, a), b in zip(trained.named_parameters(), fresh.parameters(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize("style", ["ours", "BasicSR, whole model", "BasicSR, flow alone"])
def test_a_flow_network_is_found_in_any_file(tmp_path, style):
    donor = BasicVSR(BasicVSRConfig(channels=8, blocks=1))
    path = tmp_path / "donor.pth"
    if style == "ours":
        path = tmp_path / "donor.safetensors"
        save_model(path, donor)
    elif style == "BasicSR, whole model":
        torch.save({public_name(k): v for k, v in donor.state_dict().items()}, path)
    else:
        flow = {spynet_basicsr_name(k): v for k, v in donor.spynet.state_dict().items()}
        torch.save({"params": flow}, path)
    config = VSRTConfig(frames=3, depth=1, channels=8, tower_blocks=1, reconstruct_blocks=1)
    model = VSRT(config)
    taken = warm_start(model, f"flow={path}")
    assert len(taken.filled) == len(donor.spynet.state_dict())
    for (name, a), b in zip(donor.spynet.named_parameters(), model.flow.parameters(), strict=True):
        assert torch.equal(a, b), name
