"""The loss of a model: terms that compare its frames with their target, added up.

`ModelLoss` runs the model once and hands its frames to every term. A term returns named scalars,
which are weighted already; the log has each of them, and an error about NaN names it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.errors import VsrkitError
from vsrkit.evaluate.metrics import Y_SHARES
from vsrkit.models.layers.flow import warp
from vsrkit.models.vsrt_small import Flows

LUMA = 0.7  # weight of the squared luma error; the three colours share the rest
FLOOR = 1e-4  # added to square errors before the logarithm; limits the weight of clips above 40 dB
OCCLUDED = 10 / 255  # a pixel whose HR changes more along the motion counts as occluded
COLOUR_SIDE = 16  # pixels
SILENT = 1e-6  # power of a frequency; less of it cannot be seen
STILL = 1e-6  # square of a change; the root of smaller ones has no steeper gradient
Reduction: TypeAlias = Literal["mean", "sum"]
Terms: TypeAlias = dict[str, Tensor]  # scalars by name


@dataclass(frozen=True, slots=True)
class Output:
    """What a model made of a batch of clips."""

    sr: Tensor  # (B, T, 3, sH, sW)
    target: Tensor  # (B, T, 3, sH, sW), the frames that `sr` has
    to_prev: Tensor | None  # flow of all frames but the first, (B, T - 1, 2, H, W)
    to_next: Tensor | None  # flow of all frames but the last, (B, T - 1, 2, H, W)


@runtime_checkable
class AlongFlow(Protocol):
    """A model that can be run with given flows."""

    def flows(self, frames: list[Tensor]) -> tuple[Flows, Flows]:
        """Flows to the previous and to the next frame, of frames (B, 3, H, W)."""

    def along(self, frames: list[Tensor], to_prev: Flows, to_next: Flows) -> list[Tensor]:
        """The results (B, 3, sH, sW) with these flows."""


class Term(nn.Module):
    """A part of the loss: Output -> named scalars, already weighted."""

    needs_flow = False

    def forward(self, output: Output) -> Terms:
        raise NotImplementedError


class ModelLoss(nn.Module):
    """The sum of some terms for the frames of a model: (lr, target) -> named terms.

    Args:
        model: the model; terms that need flow are only for the presets, whose flow is used.
        terms: of the loss.
        mirrored: whether the model gets every clip followed by its frames in reverse order.
    """

    def __init__(self, model: nn.Module, terms: Sequence[Term], *, mirrored: bool = False) -> None:
        super().__init__()
        self.mirrored = mirrored
        self.along_flow = any(term.needs_flow for term in terms)
        if self.along_flow and not isinstance(model, AlongFlow):
            raise VsrkitError(
                "steadiness and gan_frames = 3 need the flow of a preset such as vsrt-s; set them "
                "to 0 and 1 for other models"
            )
        self.model, self.terms = model, nn.ModuleList(terms)

    def forward(self, lr: Tensor, target: Tensor) -> Terms:
        """(B, T, 3, H, W) and (B, T, 3, sH, sW) -> all terms."""
        if self.mirrored:
            lr, target = mirror_in_time(lr), mirror_in_time(target)
        output = self._run(lr, target)
        return {name: value for term in self.terms for name, value in term(output).items()}

    def _run(self, lr: Tensor, target: Tensor) -> Output:
        if not self.along_flow or not isinstance(self.model, AlongFlow) or lr.shape[1] == 1:
            sr = self.model(lr)
            return Output(sr, matching_frames(target, sr), None, None)
        frames = list(lr.unbind(1))
        flows = self.model.flows(frames)
        sr = torch.stack(self.model.along(frames, *flows), 1)
        to_prev, to_next = (torch.stack([f for f in each if f is not None], 1) for each in flows)
        return Output(sr, target, to_prev, to_next)


def mirror_in_time(clip: Tensor) -> Tensor:
    """A clip followed by its frames in reverse order: (B, T, C, H, W) -> (B, 2T, C, H, W)."""
    return torch.cat([clip, clip.flip(1)], 1)


def matching_frames(hr: Tensor, sr: Tensor) -> Tensor:
    """The frames of `hr` that `sr` has: all of them, or the centre only."""
    if sr.shape[1] == hr.shape[1]:
        return hr
    centre = hr.shape[1] // 2
    return hr[:, centre : centre + 1]


class Charbonnier(Term):
    """The absolute error of all values, smoothed at zero."""

    def __init__(self, *, weight: float = 1.0, reduction: Reduction = "mean") -> None:
        super().__init__()
        self.weight, self.reduction = weight, reduction

    def forward(self, output: Output) -> Terms:
        error = charbonnier(output.sr, output.target, reduction=self.reduction)
        return {"charbonnier": self.weight * error}


def charbonnier(
    sr: Tensor, hr: Tensor, *, eps: float = 1e-12, reduction: Reduction = "mean"
) -> Tensor:
    """Mean or sum of sqrt(d^2 + eps) over all values: an absolute error that is smooth at zero."""
    error = torch.sqrt((sr.float() - hr).square() + eps)
    return error.mean() if reduction == "mean" else error.sum()


class Psnr(Term):
    """Mean over clips of the logarithm of the square error; luma has most of the weight.

    It is PSNR with the opposite sign: a clip with small errors weighs as much as one with large
    errors.

    Args:
        weight: of the term.
        steadiness: weight of the change along the motion, added to the square error.
    """

    def __init__(self, *, weight: float = 1.0, steadiness: float = 0.0) -> None:
        super().__init__()
        self.weight, self.steadiness = weight, steadiness
        self.needs_flow = steadiness > 0

    def forward(self, output: Output) -> Terms:
        error = square_error(output.sr, output.target)
        if self.steadiness and output.to_prev is not None:
            change = temporal_change(output.sr, output.target, output.to_prev)
            error = error + self.steadiness * change
        return {"psnr": self.weight * torch.log(error + FLOOR).mean()}


def square_error(sr: Tensor, target: Tensor) -> Tensor:
    """Mean square error of each clip, weighted by `weight_luma`: (B, T, 3, H, W) twice -> (B,)."""
    return weight_luma(sr.float() - target).square().sum(2).mean((1, 2, 3))


def weight_luma(rgb: Tensor) -> Tensor:
    """RGB (B, T, 3, H, W) and luma as a fourth channel, scaled so that its square weighs `LUMA`."""
    return torch.cat([rgb * ((1 - LUMA) / 3) ** 0.5, luma(rgb) * LUMA**0.5], 2)


def luma(rgb: Tensor) -> Tensor:
    """RGB (B, T, 3, H, W) -> (B, T, 1, H, W), in the same unit."""
    return (rgb * Y_SHARES.to(rgb).view(3, 1, 1)).sum(2, keepdim=True)


class Steadiness(Term):
    """The root mean square change of the output along the motion, mean over clips.

    A root, because the change of one clip is a hundred times that of another one, and shimmer is
    most visible where little else changes.
    """

    needs_flow = True

    def __init__(self, *, weight: float) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, output: Output) -> Terms:
        if output.to_prev is None:
            return {}
        change = temporal_change(output.sr, output.target, output.to_prev)
        return {"steadiness": self.weight * (change + STILL).sqrt().mean()}


def temporal_change(sr: Tensor, hr: Tensor, flow_to_prev: Tensor) -> Tensor:
    """Mean squared change of frames along the motion, without occluded pixels; of each clip: (B,).

    Args:
        sr: output frames (B, T, 3, sH, sW); flicker raises the result.
        hr: HR frames (B, T, 3, sH, sW), by which occluded pixels are found.
        flow_to_prev: (B, T - 1, 2, H, W) of all frames but the first, in its own pixels; H and W
            divide sH and sW.
    """
    flow = enlarged_flow(flow_to_prev.flatten(0, 1), sr.shape[-1])
    ones = torch.ones_like(hr[:, :, :1])
    before = torch.cat([sr.float(), hr, ones], 2)[:, :-1].flatten(0, 1)
    warped_sr, warped_hr, inside = warp(before, flow).split([3, 3, 1], 1)
    now_sr, now_hr = (x[:, 1:].flatten(0, 1) for x in (sr, hr))
    same = (now_hr - warped_hr).mean(1, keepdim=True).abs() < OCCLUDED
    change = (now_sr - warped_sr).square() * (same & (inside > 0.999))
    return change.unflatten(0, flow_to_prev.shape[:2]).mean((1, 2, 3, 4))


def enlarged_flow(flow: Tensor, width: int) -> Tensor:
    """Flow (N, 2, H, W) for frames of this width, without its gradient."""
    scale = width // flow.shape[-1]
    return scale * F.interpolate(flow.detach().float(), scale_factor=scale, mode="bilinear")


class Grid(Term):
    """The mean square of the mean errors of the subpixels, in units of 1/255, mean over clips.

    A subpixel is one of the scale x scale places in an LR pixel. If some of them are brighter on
    average, flat areas show a fine pattern, which features and discriminators hardly see.

    Args:
        weight: of the term.
        scale: side of an LR pixel in pixels of the output.
    """

    def __init__(self, *, weight: float, scale: int) -> None:
        super().__init__()
        self.weight, self.scale = weight, scale

    def forward(self, output: Output) -> Terms:
        error = 255 * (output.sr.float() - output.target)
        places = F.pixel_unshuffle(error, self.scale).unflatten(2, (3, -1)).mean((1, 4, 5))
        pattern = places - places.mean(-1, keepdim=True)  # (B, 3, scale^2)
        return {"grid": self.weight * pattern.square().mean()}


class Spectrum(Term):
    """The dB by which the output has more power than the target, mean over all frequencies.

    Along rows and columns, of each clip. Outlines, halos and patterns that come and go have more
    power than the target without a peak that `Grid` could find.
    """

    def __init__(self, *, weight: float) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, output: Output) -> Terms:
        excess = []
        for axis in (-1, -2):
            sr, hr = (line_power(luma(x.float()), axis) for x in (output.sr, output.target))
            excess.append(F.relu(10 * (sr.log10() - hr.log10())).mean())
        return {"spectrum": self.weight * torch.stack(excess).mean()}


def line_power(clips: Tensor, axis: int) -> Tensor:
    """The mean power of the lines along an axis at each frequency: (B, T, 1, H, W) -> (B, F)."""
    lines = clips.movedim(axis, -1).flatten(1, -2)
    window = torch.hann_window(lines.shape[-1], dtype=lines.dtype, device=lines.device)
    return torch.fft.rfft(lines * window).abs().square().mean(1) + SILENT


class Colour(Term):
    """The absolute difference of the mean colours of squares of `COLOUR_SIDE` pixels.

    Features and discriminators hardly change with small shifts of large areas.
    """

    def __init__(self, *, weight: float) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, output: Output) -> Terms:
        difference = (output.sr.float() - output.target).flatten(0, 1)
        return {"colour": self.weight * F.avg_pool2d(difference, COLOUR_SIDE).abs().mean()}
