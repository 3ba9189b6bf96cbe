"""The optical flow of a model between two frames, and how well warping by it aligns them."""

from dataclasses import dataclass

from torch import Tensor

from vsrkit.evaluate.metrics import psnr
from vsrkit.models.anatomy import Flow
from vsrkit.models.layers.flow import warp
from vsrkit.research.inspect.clip_sample import Sample


@dataclass(frozen=True, slots=True)
class Motion:
    """Flow from one frame to another, both given by their index in the clip."""

    frame: int
    neighbour: int
    flow: Tensor  # (2, H, W) in pixels
    warped: Tensor  # (3, H, W): the neighbour, warped onto the frame
    error: Tensor  # (3, H, W): absolute difference of the frame and the warped neighbour
    psnr: float  # of the warped neighbour, where it covers the frame
    psnr_still: float  # of the neighbour without warping, at the same pixels


def motions(flow: Flow | None, sample: Sample) -> list[Motion]:
    """The flows that the result for the chosen frame uses; none if the model has no flow."""
    if flow is None:
        return []
    found = []
    for frame, neighbour in flow.pairs(sample.centre, sample.clip.shape[1]):
        pair = (sample.clip[:, frame], sample.clip[:, neighbour])
        found.append(_motion(frame, neighbour, *pair, flow.between(*pair)))
    return found


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
