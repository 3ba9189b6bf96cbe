"""Attention between hypotheses prefers the flow and the frame that explain the current frame."""

import torch

from vsrkit.models.layers.flow import warp
from vsrkit.models.layers.hypothesis_attention import Aligned, attend_to_flows, attend_to_frames

H, W = 24, 28


def texture(seed: int = 0) -> torch.Tensor:
    """A smooth random frame (1, 3, H, W), so that a small shift changes it a little."""
    coarse = torch.rand(1, 3, H // 2, W // 2, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.interpolate(coarse, (H, W), mode="bilinear")


def constant(u: float, v: float) -> torch.Tensor:
    return torch.tensor([u, v]).view(1, 2, 1, 1).expand(1, 2, H, W).clone()


def test_a_wrong_flow_is_replaced_by_that_of_a_pixel_nearby():
    neighbour, true = texture(), constant(1.0, 0.0)
    frame = warp(neighbour, true, padding="border")
    wrong = true.clone()
    wrong[..., 10:12, 10:12] = -2.0
    found = attend_to_flows(frame, neighbour, wrong)
    inside = (..., slice(10, 12), slice(10, 12))
    assert (found - true)[inside].abs().max() < 0.05
    # Elsewhere patches that contain wrong pixels can only prefer the right flow.
    assert (found - true).abs().mean() < (wrong - true).abs().mean()


def test_a_constant_flow_stays_as_it_is():
    flow = constant(0.5, -1.5)
    found = attend_to_flows(texture(0), texture(1), flow)
    torch.testing.assert_close(found, flow, rtol=0, atol=1e-6)


def test_gradients_reach_the_flow():
    flow = constant(0.5, 0.5).requires_grad_()
    attend_to_flows(texture(0), texture(1), flow).sum().backward()
    # The weights of a mean add up to one in each of two rounds, except at repeated edges.
    torch.testing.assert_close(flow.grad.sum(), torch.tensor(2.0 * H * W))


def carried(frame: torch.Tensor, value: float, **more: object) -> Aligned:
    return Aligned(frame, torch.full((1, 8, H, W), value), constant(0, 0), **more)


def test_without_a_frame_before_the_last_its_features_are_warped():
    last = Aligned(texture(), torch.rand(1, 8, H, W), None)
    flow = constant(1.0, 1.0)
    assert torch.equal(attend_to_frames(texture(), flow, last), warp(last.features, flow))


def test_the_better_fitting_of_two_frames_has_the_larger_share():
    still = constant(0, 0)
    now, other = texture(0), texture(1)
    older = carried(now, 1.0)
    share = attend_to_frames(now, still, carried(other, 0.0, before=older))
    assert share.mean() > 0.99
    older = carried(other, 1.0)
    share = attend_to_frames(now, still, carried(now, 0.0, before=older))
    assert share.mean() < 0.01


def test_of_two_equal_frames_the_older_one_counts_only_without_motion():
    now = torch.full((1, 3, H, W), 0.5)
    last = carried(now, 0.0, before=carried(now, 1.0))
    share = attend_to_frames(now, constant(0, 0), last)
    torch.testing.assert_close(share, torch.full_like(share, 0.6))  # 1.5 : 1
    moving = attend_to_frames(now, constant(1.0, 0), last)[..., :-1]
    assert moving.max() < 0.01
