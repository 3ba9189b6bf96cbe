"""Frames as channels of a smaller grid."""

import torch

from vsrkit.models.layers.resample import enlarge_flow, warp_stacked


def test_stacked_features_move_by_single_pixels_of_the_frame():
    frame = torch.rand(1, 4, 12, 16)  # maps at the size of the frame, moved to the left by one
    moved = torch.nn.functional.pad(frame[..., 1:], (0, 1))
    flow = torch.zeros(1, 2, 6, 8)
    flow[:, 0] = 0.5  # in pixels of the grid
    found = warp_stacked(torch.nn.functional.pixel_unshuffle(frame, 2), flow, 2)
    expected = torch.nn.functional.pixel_unshuffle(moved, 2)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_a_flow_on_the_grid_is_twice_as_long_on_the_frame():
    found = enlarge_flow(torch.full((1, 2, 3, 4), 1.5), 2)
    assert torch.equal(found, torch.full((1, 2, 6, 8), 3.0))
