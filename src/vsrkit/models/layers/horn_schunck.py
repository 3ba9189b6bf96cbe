"""Optical flow without weights: Horn and Schunck (1981), coarse to fine, with warping."""

import torch
import torch.nn.functional as F
from torch import Tensor

from vsrkit.models.layers.flow import warp

SMOOTHNESS = 0.1  # how much a change of the flow costs, against a change of brightness (0 ... 1)
COARSEST = 16  # pixels of the shorter side at which the pyramid ends
WARPS = 3  # per level
ITERATIONS = 20  # per warp


@torch.no_grad()
def horn_schunck(reference: Tensor, neighbour: Tensor) -> Tensor:
    """Where each pixel of `reference` is in `neighbour`: (B, 3, H, W) twice -> (B, 2, H, W).

    Brightness is constant along the flow, and the flow is smooth: both are meant, squared, and
    weighed by `SMOOTHNESS`. No gradient passes.
    """
    grey = torch.tensor([0.299, 0.587, 0.114], device=reference.device).view(1, 3, 1, 1)
    pyramid = [tuple(_blur((x.float() * grey).sum(1, True)) for x in (reference, neighbour))]
    while min(pyramid[-1][0].shape[-2:]) >= 2 * COARSEST:
        pyramid.append(tuple(F.avg_pool2d(_blur(x), 2, ceil_mode=True) for x in pyramid[-1]))
    coarsest = pyramid[-1][0]
    flow = torch.cat([torch.zeros_like(coarsest)] * 2, 1)
    for here, there in reversed(pyramid):
        if flow.shape[-2:] != here.shape[-2:]:
            flow = 2 * F.interpolate(flow, here.shape[-2:], mode="bilinear", align_corners=False)
        for _ in range(WARPS):
            flow = _refine(here, there, flow)
    return flow.to(reference.dtype)


def _refine(here: Tensor, there: Tensor, flow: Tensor) -> Tensor:
    """Linearise brightness around `flow` and relax towards the best smooth flow."""
    warped = warp(there, flow, padding="border")
    slope = _gradient((here + warped) / 2)  # (B, 2, H, W), along x and along y
    rest = warped - here - (slope * flow).sum(1, True)
    cost = SMOOTHNESS**2 + (slope**2).sum(1, True)
    for _ in range(ITERATIONS):
        mean = _neighbour_mean(flow)
        flow = mean - slope * ((slope * mean).sum(1, True) + rest) / cost
    return flow


def _gradient(x: Tensor) -> Tensor:
    padded = F.pad(x, (1, 1, 1, 1), mode="replicate")
    along_x = (padded[..., 1:-1, 2:] - padded[..., 1:-1, :-2]) / 2
    along_y = (padded[..., 2:, 1:-1] - padded[..., :-2, 1:-1]) / 2
    return torch.cat([along_x, along_y], 1)


def _neighbour_mean(flow: Tensor) -> Tensor:
    """Mean of the eight pixels around each, the diagonal ones at half weight."""
    kernel = torch.tensor([[1.0, 2.0, 1.0], [2.0, 0.0, 2.0], [1.0, 2.0, 1.0]]) / 12
    return _filter(flow, kernel)


def _blur(x: Tensor) -> Tensor:
    kernel = torch.tensor([[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]) / 16
    return _filter(x, kernel)


def _filter(x: Tensor, kernel: Tensor) -> Tensor:
    channels = x.shape[1]
    weight = kernel.to(x).expand(channels, 1, 3, 3)
    return F.conv2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), weight, groups=channels)
