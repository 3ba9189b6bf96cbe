"""The motion that a model sees between two frames, and how well it explains what changed."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.evaluate.metrics import psnr
from vsrkit.models.basicvsr import BasicVSR
from vsrkit.models.frvsr import FRVSR
from vsrkit.models.iconvsr import IconVSR
from vsrkit.models.layers.blocks import reflect_to_multiple
from vsrkit.models.layers.flow import warp
from vsrkit.models.layers.horn_schunck import horn_schunck
from vsrkit.models.layers.luma import rgb_to_ycbcr
from vsrkit.models.layers.resample import imresize
from vsrkit.models.rbpn import RBPN
from vsrkit.models.spmc import SPMC
from vsrkit.models.toflow import TOFlow
from vsrkit.models.vespcn import VESPCN
from vsrkit.models.vsrt import VSRT
from vsrkit.models.vsrt_small import VSRTSmall
from vsrkit.research.inspect.sample import Sample


@dataclass(frozen=True, slots=True)
class Motion:
    """Flow from one frame to another, both by their place in the clip."""

    frame: int
    neighbour: int
    flow: Tensor  # (2, H, W) in pixels
    warped: Tensor  # (3, H, W): the neighbour, brought onto the frame
    error: Tensor  # (3, H, W): how far it still is from it
    psnr: float  # of the warped neighbour, inside of the frame that it covers
    psnr_still: float  # of the neighbour as it is, at the same places


def motions(model: nn.Module, sample: Sample) -> list[Motion]:
    """The flows that the chosen frame's result is made with; none if the model has no flow."""
    if not estimates_flow(model):
        return []
    found = []
    for frame, neighbour in _pairs(model, sample):
        pair = (sample.clip[:, frame], sample.clip[:, neighbour])
        found.append(_motion(frame, neighbour, *pair, flow_between(model, *pair)))
    return found


def flow_between(model: nn.Module, a: Tensor, b: Tensor) -> Tensor:
    """Where each pixel of `a` is in `b`, says the model: (1, 3, H, W) twice -> (1, 2, H, W)."""
    match model:
        case VSRT() if model.flow is not None:
            return model.flow(a, b)
        case VSRTSmall():
            to_prev, _ = model.flows([b, a])
            assert to_prev[1] is not None
            return to_prev[1]
        case BasicVSR():
            return model.spynet(a, b)
        case IconVSR():
            return _cut(model.spynet(*(reflect_to_multiple(x, 4) for x in (a, b))), a)
        case FRVSR():
            return model.fnet(a, b)
        case VESPCN() | SPMC():
            luma = isinstance(model, SPMC) or model.config.luma
            seen = (rgb_to_ycbcr(x)[:, :1] if luma else x for x in (a, b))
            return _cut(model.motion(*(reflect_to_multiple(x, 4) for x in seen)), a)
        case TOFlow():  # it looks at frames that are enlarged before: shown at their first size
            large = model.spynet(*((imresize(x, 4) - model.mean) / model.std for x in (a, b)))
            return F.avg_pool2d(large, 4) / 4
        case RBPN():
            return horn_schunck(a, b)
    raise TypeError(f"{type(model).__name__} has no flow")


def estimates_flow(model: nn.Module) -> bool:
    """Whether a model has optical flow at all."""
    match model:
        case VSRT():
            return model.flow is not None
        case VSRTSmall():
            return model.config.flow != "none"
        case BasicVSR() | IconVSR() | FRVSR() | TOFlow() | RBPN() | VESPCN() | SPMC():
            return True
    return False


def _pairs(model: nn.Module, sample: Sample) -> list[tuple[int, int]]:
    """Which flows matter for the chosen frame: (from, to), by their place in the clip."""
    centre, count = sample.centre, sample.clip.shape[1]
    others = [place for place in range(count) if place != centre]
    match model:
        case FRVSR():
            near = [centre - 1]
        case TOFlow() | RBPN() | VESPCN():
            near = others
        case SPMC():  # each frame is thrown to where it moves on the grid of the centre
            return [(place, centre) for place in others]
        case _:
            near = [centre - 1, centre + 1]
    return [(centre, place) for place in near if place in others]


def _cut(flow: Tensor, frame: Tensor) -> Tensor:
    return flow[..., : frame.shape[-2], : frame.shape[-1]]


def _motion(frame: int, neighbour: int, a: Tensor, b: Tensor, flow: Tensor) -> Motion:
    warped = warp(b, flow)
    covered = (warp(a.new_ones(a[:, :1].shape), flow) > 0.999)[0].expand(3, -1, -1)
    return Motion(
        frame=frame,
        neighbour=neighbour,
        flow=flow[0].cpu(),
        warped=warped[0].cpu(),
        error=(a - warped).abs()[0].cpu(),
        psnr=_psnr(a[0][covered], warped[0][covered]),
        psnr_still=_psnr(a[0][covered], b[0][covered]),
    )


def _psnr(a: Tensor, b: Tensor) -> float:
    return psnr(255 * a.double(), 255 * b.double()) if a.numel() else float("nan")
