"""References to engines: what other processes need to open the same one."""

import torch

from vsrkit.hardware.device import CANDIDATES
from vsrkit.inference.engine import Engine
from vsrkit.inference.reference import refer
from vsrkit.models.vespcn import VESPCN, VESPCNConfig
from vsrkit.models.zoo import load_model, save_model


def test_a_checkpoint_is_found_from_another_folder(tmp_path, monkeypatch):
    torch.manual_seed(0)
    save_model(tmp_path / "mine.safetensors", VESPCN(VESPCNConfig()))
    monkeypatch.chdir(tmp_path)
    model = load_model("mine.safetensors")
    reference = refer(Engine(model, CANDIDATES[0]), "mine.safetensors")
    assert reference.model is None
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    loaded = reference.load()
    assert loaded is not model
    assert loaded.state_dict().keys() == model.state_dict().keys()
