"""The batch size: from the clips of a step, the processes and the memory."""

import pytest
import torch
from torch import nn

from vsrkit.hardware.device import Precision
from vsrkit.models.vsrt_small import SmallConfig, VSRTSmall
from vsrkit.train import batch_size
from vsrkit.train.batch_size import clip_bytes, kept_bytes, largest_batch, share_batch
from vsrkit.train.config import TrainConfig
from vsrkit.train.processes import Processes
from vsrkit.train.recipe import from_saved, with_overrides
from vsrkit.train.run_setup import plan_run
from vsrkit.train.settings import ConfigError

PLAIN = Precision("float32", False)


def test_the_batch_is_the_largest_divisor_that_fits():
    assert largest_batch(12, clip=10, fixed=5, free=1000) == 12
    assert largest_batch(12, clip=10, fixed=5, free=65) == 6
    assert largest_batch(12, clip=10, fixed=5, free=64) == 4  # 5 does not divide 12
    assert largest_batch(7, clip=10, fixed=5, free=60) == 1
    assert largest_batch(12, clip=10, fixed=5, free=1) == 1


def test_kept_bytes_are_what_the_backward_pass_needs():
    layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    x = torch.rand(2, 8)
    kept = kept_bytes(layers, lambda: layers(x), torch.no_grad())
    assert kept == 0
    kept = kept_bytes(layers, lambda: layers(x), torch.enable_grad())
    assert kept == 4 * (2 * 8 + 2 * 16)  # the input and the output of ReLU, without weights


def test_a_clip_of_twice_the_frames_needs_twice_the_memory():
    model = VSRTSmall(SmallConfig(channels=16, tower_blocks=1, head_blocks=1, attention=False))
    config = TrainConfig(run_dir="r", frames=3, crop=16)
    short = clip_bytes(model, config, PLAIN, "cpu")
    long = clip_bytes(model, with_overrides(config, ["frames=6"]), PLAIN, "cpu")
    assert long == pytest.approx(2 * short, rel=0.2)  # the ends of a clip have one neighbour less
    recomputed = with_overrides(config, ["activation_checkpointing=true"])
    assert clip_bytes(model, recomputed, PLAIN, "cpu") < short
    # The discriminator keeps its features of the output and of HR.
    judged = with_overrides(config, ["losses.gan=0.1"])
    assert clip_bytes(model, judged, PLAIN, "cpu") > 1.5 * short


@pytest.mark.parametrize(
    ("memory", "count", "expected"), [(10**12, 1, (12, 1)), (0, 1, (1, 12)), (10**12, 4, (3, 1))]
)
def test_auto_depends_on_memory_and_processes(monkeypatch, memory, count, expected):
    monkeypatch.setattr(batch_size, "free_memory", lambda device: memory)
    model = nn.Conv2d(3, 3, 1)
    monkeypatch.setattr(batch_size, "clip_bytes", lambda *_: 10**6)
    config = TrainConfig(run_dir="r", batch_size="auto", total_batch_size=12)
    assert share_batch(config, Processes(0, count), model, PLAIN) == expected


def test_processes_of_a_machine_share_its_memory(monkeypatch):
    monkeypatch.setattr(batch_size, "free_memory", lambda device: 10**8)
    monkeypatch.setattr(batch_size, "clip_bytes", lambda *_: 10**7)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    config = TrainConfig(run_dir="r", batch_size="auto", total_batch_size=64)
    assert share_batch(config, Processes(0, 2), nn.Conv2d(3, 3, 1), PLAIN) == (4, 8)
    # A CUDA device belongs to one process.
    on_card = Processes(0, 2, "cuda:1")
    assert share_batch(config, on_card, nn.Conv2d(3, 3, 1), PLAIN) == (8, 4)


def test_accumulate_follows_from_the_total():
    config = TrainConfig(run_dir="r", batch_size=2, total_batch_size=32)
    assert share_batch(config, Processes(0, 4), nn.Identity(), PLAIN) == (2, 4)
    with pytest.raises(ConfigError, match=r"10 clips for each process, .* batch_size = 4"):
        share_batch(
            TrainConfig(run_dir="r", batch_size=4, total_batch_size=30),
            Processes(0, 3),
            nn.Identity(),
            PLAIN,
        )
    with pytest.raises(ConfigError, match="cannot be shared by 3 processes"):
        share_batch(config, Processes(0, 3), nn.Identity(), PLAIN)


def test_auto_needs_a_total():
    with pytest.raises(ConfigError, match='"auto" needs total_batch_size'):
        TrainConfig(run_dir="r", batch_size="auto")
    with pytest.raises(ConfigError, match="accumulate follows from total_batch_size"):
        TrainConfig(run_dir="r", total_batch_size=8, accumulate=2)
    with pytest.raises(ConfigError, match="batch_size must be"):
        TrainConfig(run_dir="r", batch_size="many")
    text = with_overrides(TrainConfig(run_dir="r"), ["batch_size=auto", "total_batch_size=8"])
    assert text == TrainConfig(run_dir="r", batch_size="auto", total_batch_size=8)


def test_a_run_resolves_the_batch_and_saves_what_was_set(config):
    c = config(batch_size="auto", total_batch_size=6)
    plan = plan_run(c, Processes(), resume=False)
    assert plan.config.batch_size * plan.config.accumulate == 6
    assert plan.written == from_saved({**vars(c), "data": c.data})
    assert "total batch 6" in str(plan)
