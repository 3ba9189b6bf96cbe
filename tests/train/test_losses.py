from pathlib import Path

import numpy as np
import pytest
import torch

from vsrkit.train.losses import charbonnier, unrest

GOLDEN = np.load(Path(__file__).parent.parent / "golden" / "charbonnier.npz")


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_charbonnier_equals_the_release(reduction):
    a, b = (torch.from_numpy(GOLDEN[name]) for name in "ab")
    # float32 sums of this many numbers, added up in another order
    assert float(charbonnier(a, b, reduction=reduction)) == pytest.approx(
        float(GOLDEN[reduction]), rel=1e-6
    )


@pytest.fixture
def panned():
    """(1, 4, 3, 64, 64): a picture that moves 4 pixels, one of the small frames', to the left."""
    torch.manual_seed(0)
    picture = torch.nn.functional.interpolate(torch.rand(1, 3, 12, 12), size=(64, 96))[0]
    return torch.stack([picture[..., 4 * t : 4 * t + 64] for t in range(4)])[None]


def to_prev(pixels):
    flow = torch.zeros(1, 3, 2, 16, 16)
    flow[:, :, 0] = pixels
    return flow


def test_what_moves_with_the_picture_is_at_rest(panned):
    # 1e-10: positions are rounded to float32
    assert unrest(panned, panned, to_prev(1.0)) < 1e-10
    # Along another motion HR itself changes: taken for covered, and not counted.
    strange = panned.flip(1)
    assert unrest(strange, panned, to_prev(1.0)) > unrest(strange, panned, to_prev(-5.0))


def test_what_flickers_costs_its_square(panned):
    flickering = panned + 0.1 * torch.tensor([0.0, 1, 0, 1]).view(1, 4, 1, 1, 1)
    inside = 60 / 64  # the last columns of each frame came in from outside
    assert float(unrest(flickering, panned, to_prev(1.0))) == pytest.approx(0.01 * inside, rel=1e-4)
    assert unrest(panned + 0.1, panned, to_prev(1.0)) < 1e-10  # wrong, but steadily


def test_unrest_teaches_frames_and_not_the_flow(panned):
    sr, flow = torch.rand_like(panned).requires_grad_(), to_prev(1.0).requires_grad_()
    unrest(sr, panned, flow).backward()
    assert sr.grad.abs().sum() > 0
    assert flow.grad is None
