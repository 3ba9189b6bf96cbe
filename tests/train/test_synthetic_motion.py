"""Pairs with known motion: warping by the flow gives the other frame."""

import numpy as np
import torch

from vsrkit.models.layers.flow import warp
from vsrkit.train.synthetic_motion import invert, motion_pairs

RNG = np.random.default_rng(0)
BLOCKS = RNG.integers(0, 256, (2, 16, 16, 3), np.uint8)
STILLS = [np.kron(blocks, np.ones((8, 8, 1), np.uint8)) for blocks in BLOCKS]


def test_warping_by_the_flow_gives_the_other_frame():
    pairs = motion_pairs(STILLS, 0, 0, batch=6, size=48, reach=4)
    inside = (..., slice(8, -8), slice(8, -8))
    for a, b, flow in ((pairs.a, pairs.b, pairs.a_to_b), (pairs.b, pairs.a, pairs.b_to_a)):
        unmoved = (b - a)[inside].abs().mean()
        assert (warp(b, flow, padding="border") - a)[inside].abs().mean() < 0.5 * unmoved


def test_pairs_are_a_pure_function_of_seed_and_step():
    first, again, other = (
        motion_pairs(STILLS, 0, step, batch=2, size=32, reach=8) for step in (3, 3, 4)
    )
    assert torch.equal(first.a, again.a)
    assert torch.equal(first.b_to_a, again.b_to_a)
    assert not torch.equal(first.a, other.a)


def test_a_flow_and_its_inverse_cancel():
    y, x = torch.meshgrid(torch.linspace(0, 3, 40), torch.linspace(0, 3, 40), indexing="ij")
    flow = torch.stack([torch.sin(y), torch.cos(x)])[None]
    back = invert(flow)
    rest = flow + warp(back, flow, padding="border")
    assert rest[..., 4:-4, 4:-4].abs().max() < 0.02  # bilinear interpolation of a curved field
