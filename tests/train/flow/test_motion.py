"""Known motion is known: warping by it gives the other frame."""

import numpy as np
import torch
from safetensors.torch import load_file

from vsrkit.models.layers.flow import LightFlow, warp
from vsrkit.train.config import FlowConfig
from vsrkit.train.flow.motion import invert, moving_pairs
from vsrkit.train.flow.train_flow import (
    end_point_error,
    flow_loss,
    photometric,
    train_flow,
)
from vsrkit.video.images import write_image

RNG = np.random.default_rng(0)
BLOCKS = RNG.integers(0, 256, (2, 16, 16, 3), np.uint8)
STILLS = [np.kron(blocks, np.ones((8, 8, 1), np.uint8)) for blocks in BLOCKS]


def test_the_flow_explains_the_pair():
    pairs = moving_pairs(STILLS, 0, 0, batch=6, size=48, reach=4)
    inside = (..., slice(8, -8), slice(8, -8))
    for a, b, flow in ((pairs.a, pairs.b, pairs.a_to_b), (pairs.b, pairs.a, pairs.b_to_a)):
        unmoved = (b - a)[inside].abs().mean()
        assert (warp(b, flow, padding="border") - a)[inside].abs().mean() < 0.5 * unmoved


def test_pairs_are_a_pure_function_of_seed_and_step():
    first, again, other = (
        moving_pairs(STILLS, 0, step, batch=2, size=32, reach=8) for step in (3, 3, 4)
    )
    assert torch.equal(first.a, again.a)
    assert torch.equal(first.b_to_a, again.b_to_a)
    assert not torch.equal(first.a, other.a)


def test_inverting_there_and_back_stays():
    y, x = torch.meshgrid(torch.linspace(0, 3, 40), torch.linspace(0, 3, 40), indexing="ij")
    flow = torch.stack([torch.sin(y), torch.cos(x)])[None]
    back = invert(flow)
    stayed = flow + warp(back, flow, padding="border")
    assert stayed[..., 4:-4, 4:-4].abs().max() < 0.02  # bilinear reading of a curved field


def test_the_right_flow_has_no_loss():
    pairs = moving_pairs(STILLS, 0, 1, batch=2, size=32, reach=3)

    class Knows(torch.nn.Module):
        def forward(self, a, b):
            return pairs.a_to_b, pairs.b_to_a

        def coarse_to_fine(self, a, b):
            return [torch.cat([pairs.a_to_b, pairs.b_to_a], 1)]

    assert end_point_error(Knows(), pairs) < 2e-3  # the floor under the root
    assert flow_loss(Knows(), pairs) < 2e-3
    fresh = LightFlow(channels=16, levels=2)
    assert flow_loss(fresh, pairs) > 0.05
    assert photometric(fresh, pairs.a, pairs.b).isfinite()


def test_a_short_run_writes_weights_and_resumes(tmp_path):
    stills = tmp_path / "stills"
    stills.mkdir()
    for number, still in enumerate(STILLS):
        frame = torch.from_numpy(np.kron(still, np.ones((2, 2, 1), np.uint8))).permute(2, 0, 1)
        write_image(stills / f"{number}.png", frame / 255)
    config = FlowConfig(
        run_dir=str(tmp_path / "run"), stills=str(stills), channels=16, levels=2, steps=2,
        batch_size=2, size=32, reach=3, validate_every=2, save_every=2, log_every=1, workers=0,
    )  # fmt: skip
    assert train_flow(config).step == 2
    LightFlow(16, 2).load_state_dict(load_file(tmp_path / "run" / "best.safetensors"))
