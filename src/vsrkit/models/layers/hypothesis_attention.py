"""Attention between hypotheses: which flow, and which earlier frame, fits the current frame best.

The paper's attention between patches of several frames, used where features are aligned. The query
of a pixel is the patch around it. Each hypothesis is a way to bring an earlier frame onto the
current one; its key is the patch that it brings here, its value the flow or the features. A key is
similar to the query if the patches differ little. There are no weights to learn.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vsrkit.models.layers.flow import box_mean, warp

PATCH = 5  # pixels along the side of a patch
AWAY = 3  # pixels from here to the neighbours whose flow is a hypothesis
ROUNDS = 2  # of attention between flows; the second one spreads good flows further
# Differences of patches, for values in [0, 1], that divide the weight of a hypothesis by e^0.5.
FLOW_TOLERANCE = 0.01
FRAME_TOLERANCE = 0.02
# Logarithm of the prior weight of the frame before the last one, relative to the last one: larger
# where the picture is still, and lower by STILLNESS for each pixel of motion, which blurs it more.
OLDER_FRAME = math.log(1.5)
STILLNESS = 6.0


class Aligned(NamedTuple):
    """What a chain carries from one frame to the next."""

    frame: Tensor  # (B, C', H, W), of which patches are compared
    features: Tensor  # (B, C, H, W)
    flow: Tensor | None  # (B, 2, H, W), to the frame before it; None if there is none
    before: "Aligned | None" = None


def attend_to_flows(frame: Tensor, neighbour: Tensor, flow: Tensor) -> Tensor:
    """Replace each pixel's flow by a mean of its own and its neighbours', weighted by how they fit.

    frame, neighbour: (B, C, H, W)
    flow: (B, 2, H, W), from `frame` to `neighbour`
    """
    for _ in range(ROUNDS):
        values = _nearby(flow)
        with torch.no_grad():
            count = len(values) // len(flow)
            keys = warp(neighbour.repeat(count, 1, 1, 1), values, padding="border")
            query = frame.repeat(count, 1, 1, 1)
            scores = -_difference(query, keys) / (2 * FLOW_TOLERANCE**2)
            weights = scores.unflatten(0, (count, -1)).softmax(0)
        flow = (weights * values.unflatten(0, (count, -1))).sum(0)
    return flow


def attend_to_frames(frame: Tensor, flow: Tensor, last: Aligned) -> Tensor:
    """The carried features of the last two frames on the current one, weighted by how they fit.

    frame: (B, C', H, W)
    flow: (B, 2, H, W), to the last frame
    last: the last frame and, if there is one, the frame before it
    """
    near = warp(last.features, flow)
    if last.before is None or last.flow is None:
        return near
    older_flow = flow + warp(last.flow, flow, padding="border")
    far = warp(last.before.features, older_flow)
    with torch.no_grad():
        scores = [
            -_difference(frame, warp(key, along, padding="border")) / (2 * FRAME_TOLERANCE**2)
            for key, along in ((last.frame, flow), (last.before.frame, older_flow))
        ]
        motion = older_flow.square().sum(1, keepdim=True).sqrt()
        share = torch.sigmoid(scores[1] - scores[0] + OLDER_FRAME - STILLNESS * motion)
    return torch.lerp(near, far, share.to(near.dtype))


def _nearby(flow: Tensor) -> Tensor:
    """The flows of each pixel and of the four `AWAY` from it: (B, 2, H, W) -> (5B, 2, H, W)."""
    h, w = flow.shape[-2:]
    padded = F.pad(flow, (AWAY,) * 4, mode="replicate")
    shifts = ((1, 1), (0, 1), (2, 1), (1, 0), (1, 2))
    return torch.cat([padded[..., y * AWAY :, x * AWAY :][..., :h, :w] for y, x in shifts])


def _difference(a: Tensor, b: Tensor) -> Tensor:
    """Mean squared difference of the patches around each pixel: (B, C, H, W) -> (B, 1, H, W)."""
    return box_mean((a - b).square().mean(1, keepdim=True), PATCH)
