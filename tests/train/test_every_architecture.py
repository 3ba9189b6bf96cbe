"""Every architecture of the zoo can be trained with the same recipe."""

import json
from pathlib import Path

import pytest
import torch
from tests.models.test_contract import SMALL
from tests.train.conftest import moving_picture, write_video

from vsrkit.models.zoo import ARCHITECTURES, save_model
from vsrkit.train.loop import train


@pytest.fixture(scope="module")
def large_videos(tmp_path_factory):
    """Videos with room for crops of 32 LR pixels, which vsrt-stream needs."""
    folder = tmp_path_factory.mktemp("large")
    for number, name in enumerate(("boat", "hill")):
        write_video(folder / f"{name}.mkv", moving_picture(8, 128, seed=number))
    return folder


@pytest.mark.parametrize("name", [name for name in SMALL if name != "bicubic"])
def test_the_loss_falls(config, large_videos, tmp_path, name):
    torch.manual_seed(0)
    start = tmp_path / "start.safetensors"
    save_model(start, ARCHITECTURES[name].build(SMALL[name]))
    data = str(large_videos)
    c = config(model=str(start), data=data, steps=4, log_every=2, batch_size=1)
    train(c)
    lines = (Path(c.run_dir) / "log.jsonl").read_text().splitlines()
    losses = [row["loss"] for row in map(json.loads, lines) if "loss" in row]
    assert len(losses) == 2
    assert losses[-1] < losses[0]
