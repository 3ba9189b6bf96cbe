"""Models in the words of spandrel, for programs that build on both: `load_descriptor`."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from vsrkit.errors import VsrkitError
from vsrkit.models.spec import (
    Carried,
    Context,
    Spec,
    Window,
    pad_clip,
    pad_frames,
    padded_size,
    plan_pieces,
)
from vsrkit.models.zoo import ARCHITECTURES, load_model

Purpose: TypeAlias = Literal["SR", "Restoration"]

TITLES = {
    "bicubic": "Bicubic",
    "vsrt": "VSR-Transformer",
    "vsrt-small": "VSR-Transformer (small)",
    "vsrt-stream": "VSR-Transformer (stream)",
    "basicvsr": "BasicVSR",
    "basicvsrpp": "BasicVSR++",
    "realbasicvsr": "RealBasicVSR",
    "iconvsr": "IconVSR",
    "psrt": "PSRT",
    "iart": "IART",
    "rvrt": "RVRT",
    "edvr": "EDVR",
    "tdan": "TDAN",
    "rcan": "RCAN",
    "toflow": "TOFlow",
    "duf": "DUF",
    "rbpn": "RBPN",
    "frvsr": "FRVSR",
    "rrn": "RRN",
    "rsdn": "RSDN",
    "animesr": "AnimeSR",
    "vespcn": "VESPCN",
    "spmc": "SPMC",
}


class ArchitectureId(NamedTuple):
    """The paper of a model: `id` for programs, `name` for people."""

    id: str
    name: str


class ModelTiling(Enum):
    """Whether frames may be cut into overlapping tiles; the members are spandrel's."""

    SUPPORTED = 1
    DISCOURAGED = 2
    INTERNAL = 3


@dataclass(frozen=True, slots=True)
class SizeRequirements:
    """Heights and widths that `model` itself accepts; a descriptor pads and crops.

    minimum: of either side, in pixels
    multiple_of: both sides are divisible by it
    square: both sides are equal; then `minimum` is the only side that is accepted
    """

    minimum: int = 1
    multiple_of: int = 1
    square: bool = False

    def check(self, width: int, height: int) -> bool:
        """Whether frames of this size need no padding."""
        if self.square:
            return width == height == self.minimum
        return min(width, height) >= self.minimum and not (
            width % self.multiple_of or height % self.multiple_of
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoModelDescriptor:
    """A loaded model and what another program must know to run it.

    model: the network in evaluation mode; (B, T, 3, H, W) -> (B, T', 3, sH, sW), not clamped
    architecture: id and name of its paper
    purpose: "SR", or "Restoration" for a model of scale 1
    scale: of height and width
    input_channels, output_channels: RGB
    size_requirements: of the frames that `model` accepts
    tiling: whether frames may be cut into overlapping tiles
    supports_half, supports_bfloat16: whether clips in float16 and bfloat16 give results close to
        those of float32. The weights of `model` stay in float32, and so do its flows and
        positions: a descriptor runs it under `torch.autocast`. The contract tests compare every
        architecture.
    frames: that one call of `model` takes; None for any number
    context: how frames are passed to it: `Window`, `Segments` or `Carried` (docs/adding-a-model.md)
    """

    model: nn.Module
    architecture: ArchitectureId
    purpose: Purpose
    scale: int
    input_channels: int = 3
    output_channels: int = 3
    size_requirements: SizeRequirements
    tiling: ModelTiling = ModelTiling.SUPPORTED
    supports_half: bool = True
    supports_bfloat16: bool = True
    frames: int | None
    context: Context

    def to(self, device: torch.device | str) -> "VideoModelDescriptor":
        """Move the model to a device; returns the descriptor."""
        self.model.to(device)
        return self

    @property
    def device(self) -> torch.device:
        """Where the model is, and its input must be."""
        return next((p.device for p in self.model.parameters()), torch.device("cpu"))

    @torch.inference_mode()
    def __call__(self, clip: Tensor) -> Tensor:
        """Upscale a clip of one shot: (B, T, 3, H, W) -> (B, T, 3, sH, sW), in [0, 1].

        clip: RGB in [0, 1], on the device of the model, of any length, height and width (networks
            with `size_requirements.square` take at most that size). The model computes in its
            dtype, and so is the result.

        In float32, the output equals that of `vsrkit.upscale_frames`, which needs less memory for
        long clips.
        """
        self._check(clip)
        spec: Spec = self.model.spec  # type: ignore[assignment]
        t, _, h, w = clip.shape[1:]
        size = padded_size(h, w, spec)
        padded = torch.stack([pad_frames(each, *size, spec) for each in clip.float()])
        rough = clip.dtype in (torch.float16, torch.bfloat16)
        with torch.autocast(clip.device.type, clip.dtype if rough else None, enabled=rough):
            sr = torch.cat(list(self._run(padded, t, spec)), 1)
        return sr[..., : h * spec.scale, : w * spec.scale].clamp(0, 1).to(clip.dtype)

    def _run(self, clip: Tensor, length: int, spec: Spec) -> Iterator[Tensor]:
        """The output of one window, segment or clip after the other."""
        if isinstance(self.context, Carried):
            yield self.model(clip)
            return
        only_centre = isinstance(self.context, Window) and self.context.emits == "centre"
        for plan in plan_pieces(0, length, self.context):
            piece = clip[:, plan.frames]
            piece = torch.stack([pad_clip(each, spec.min_frames) for each in piece])
            yield self.model(piece) if only_centre else self.model(piece, keep=plan.keep)

    def _check(self, clip: Tensor) -> None:
        """Raise an error of one line for a clip that the model cannot take."""
        shape = tuple(clip.shape)
        if clip.dim() != 5 or shape[2] != self.input_channels or not clip.is_floating_point():
            raise VsrkitError(
                f"expected a clip (B, T, 3, H, W) of floats from 0 to 1, got {clip.dtype} {shape}"
            )
        if min(shape) < 1:
            raise VsrkitError(f"the clip {shape} is empty")
        if any(p.dtype != torch.float32 for p in self.model.parameters()):
            raise VsrkitError(
                "the weights of the model must stay in float32; instead of converting them, pass "
                "a clip in float16 or bfloat16"
            )
        side = self.size_requirements.minimum
        if self.size_requirements.square and max(shape[3:]) > side:
            raise VsrkitError(
                f"{self.architecture.name} takes {side}x{side} pixels, got "
                f"{shape[4]}x{shape[3]}; upscale_frames cuts such tiles"
            )


def load_descriptor(
    name_or_path: str | Path, frames: int | None = None, *, heads: int | None = None
) -> VideoModelDescriptor:
    """Load a model and describe it in the words of spandrel.

    name_or_path: as for `load_model`: a model's name, a vsrkit file, or a public checkpoint, which
        is recognised by its tensor names
    frames, heads: as for `load_model`, where a file does not store them
    """
    return describe_model(load_model(name_or_path, frames, heads=heads))


def describe_model(model: nn.Module) -> VideoModelDescriptor:
    """The descriptor of a model of the zoo."""
    spec: Spec = model.spec  # type: ignore[assignment]
    config: Any = model.config
    kind = next(name for name, a in ARCHITECTURES.items() if a.config is type(config))
    one_image = spec.context == Window(1, "all")
    is_window = isinstance(spec.context, Window) and not one_image
    return VideoModelDescriptor(
        model=model,
        architecture=ArchitectureId(kind, TITLES[kind]),
        purpose="SR" if spec.scale > 1 else "Restoration",
        scale=spec.scale,
        size_requirements=SizeRequirements(
            spec.tile or spec.minimum, spec.multiple, spec.tile is not None
        ),
        frames=spec.context.size if is_window else None,  # type: ignore[union-attr]
        context=spec.context,
    )
