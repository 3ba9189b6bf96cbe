"""Frames as channels of a smaller grid: `stack` x `stack` pixels at each of its places."""

import torch
import torch.nn.functional as F
from torch import Tensor

from vsrkit.models.layers.blocks import memory_format_of, upsample_bilinear
from vsrkit.models.layers.flow import warp


def stack_pixels(frame: Tensor, stack: int) -> Tensor:
    """(B, 3, sH, sW) -> (B, 3 * s^2, H, W): `stack` x `stack` pixels in channels."""
    return frame if stack == 1 else F.pixel_unshuffle(frame, stack)


def reduce_to_grid(frame: Tensor, stack: int) -> Tensor:
    """(B, 3, sH, sW) -> (B, 3, H, W): the mean of `stack` x `stack` pixels."""
    return frame if stack == 1 else F.avg_pool2d(frame, stack)


def enlarge_flow(flow: Tensor, stack: int) -> Tensor:
    """A flow on the grid (B, 2, H, W), in its pixels -> on the frame (B, 2, sH, sW), in its."""
    return flow if stack == 1 else stack * upsample_bilinear(flow, stack)


def warp_stacked(features: Tensor, flow: Tensor, stack: int) -> Tensor:
    """Warp features of the grid whose channels are maps of `stack` x `stack` pixels.

    A motion by one pixel of the frame is half a pixel of the grid: interpolated there, the detail
    would be lost. So the features are unfolded to the size of the frame, warped, and folded again.

    features: (B, C, H, W)
    flow: (B, 2, H, W), in pixels of the grid
    """
    if stack == 1:
        return warp(features, flow)
    unfolded = warp(F.pixel_shuffle(features, stack), enlarge_flow(flow, stack))
    folded = F.pixel_unshuffle(unfolded, stack)
    return folded.contiguous(memory_format=memory_format_of(features))


def stacked_weight(weight: Tensor, stack: int) -> Tensor:
    """Weights (N, 3 + C, 3, 3) of a convolution of one pixel per grid pixel -> of stacked ones.

    Each of the stacked pixels gets an equal share, so that the result is that of their mean.
    """
    colours, features = weight[:, :3], weight[:, 3:]
    return torch.cat([colours.repeat_interleave(stack**2, 1) / stack**2, features], 1)
