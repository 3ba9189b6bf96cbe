"""Every architecture of the zoo can be trained with the same recipe."""

import json
from pathlib import Path

import pytest
import torch
from tests.models.test_contract import SMALL

from vsrkit.models.zoo import ARCHITECTURES, save_model
from vsrkit.train.loop import train


@pytest.mark.parametrize("name", [name for name in SMALL if name != "bicubic"])
def test_the_loss_falls(config, tmp_path, name):
    torch.manual_seed(0)
    start = tmp_path / "start.safetensors"
    save_model(start, ARCHITECTURES[name].build(SMALL[name]))
    c = config(model=str(start), steps=6, log_every=2, batch_size=1)
    train(c)
    lines = (Path(c.run_dir) / "log.jsonl").read_text().splitlines()
    losses = [row["loss"] for row in map(json.loads, lines) if "loss" in row]
    assert len(losses) == 3
    assert losses[-1] < losses[0]
