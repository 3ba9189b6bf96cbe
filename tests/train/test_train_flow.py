"""The losses of flow training, and a short run."""

import numpy as np
import torch
from safetensors.torch import load_file
from tests.train.test_synthetic_motion import STILLS

from vsrkit.models.layers.flow import LightFlow
from vsrkit.train.config import FlowConfig
from vsrkit.train.synthetic_motion import motion_pairs
from vsrkit.train.train_flow import end_point_error, flow_loss, photometric_loss, train_flow
from vsrkit.video.images import write_image


def test_the_true_flow_has_no_loss():
    pairs = motion_pairs(STILLS, 0, 1, batch=2, size=32, reach=3)

    class TrueFlow(torch.nn.Module):
        def forward(self, a, b):
            return pairs.a_to_b, pairs.b_to_a

        def coarse_to_fine(self, a, b):
            return [torch.cat([pairs.a_to_b, pairs.b_to_a], 1)]

    assert end_point_error(TrueFlow(), pairs) < 2e-3  # the constant under the root
    assert flow_loss(TrueFlow(), pairs) < 2e-3
    fresh = LightFlow(channels=16, levels=2)
    assert flow_loss(fresh, pairs) > 0.05
    assert photometric_loss(fresh, pairs.a, pairs.b).isfinite()


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
