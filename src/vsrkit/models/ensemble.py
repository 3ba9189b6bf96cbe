"""Self-ensemble: the mean of what a model says to flipped, transposed and reversed clips."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from vsrkit.errors import VsrkitError
from vsrkit.models.anatomy import Anatomy
from vsrkit.models.spec import Carried, Spec, Window

ALL_VIEWS = 16


@dataclass(frozen=True, slots=True)
class View:
    """One way to look at a clip."""

    mirror: bool  # left and right
    upend: bool  # top and bottom
    transpose: bool  # rows and columns
    reverse: bool  # time

    def of(self, frames: Tensor) -> Tensor:
        """The frames (..., H, W) as this view has them; time is left to the caller."""
        if self.mirror:
            frames = frames.flip(-1)
        if self.upend:
            frames = frames.flip(-2)
        return frames.transpose(-1, -2) if self.transpose else frames

    def back(self, frames: Tensor) -> Tensor:
        """The way back."""
        if self.transpose:
            frames = frames.transpose(-1, -2)
        if self.upend:
            frames = frames.flip(-2)
        return frames.flip(-1) if self.mirror else frames


def views(spec: Spec, count: int = ALL_VIEWS) -> list[View]:
    """The first `count` views that make sense for a model, as different as possible.

    Time is reversed only where a model sees both past and future: not for one frame, and not for
    a state that is carried forward.
    """
    if count not in (1, 2, 4, 8, 16):
        raise VsrkitError(f"an ensemble has 1, 2, 4, 8 or 16 views, got {count}")
    timeless = isinstance(spec.context, Carried) or spec.context == Window(1, "all")
    chosen = []
    for number in range(min(count, 8) if timeless else count):
        mirror, upend, transpose = (bool(number >> bit & 1) for bit in range(3))
        reverse = (number + number // 8) % 2 == 1 and not timeless
        chosen.append(View(mirror, upend, transpose, reverse))
    return chosen


class Ensemble(nn.Module):
    """A model, run once for each view and averaged; it fits wherever the model fits."""

    def __init__(self, model: nn.Module, count: int = ALL_VIEWS) -> None:
        super().__init__()
        self.model = model
        spec: Spec = model.spec  # type: ignore[assignment]
        self.spec = replace(spec, uses_window_cache=False)  # each view sees other frames
        self.config: Any = model.config
        self.views = views(self.spec, count)

    anatomy = Anatomy()  # inspect the model itself

    def forward(self, clip: Tensor, keep: slice | None = None) -> Tensor:
        """As the model: (B, T, 3, H, W) -> (B, T', 3, sH, sW). What is held is one view's."""
        total = self._run(self.views[0], clip, keep)
        for view in self.views[1:]:
            total = total + self._run(view, clip, keep)
        return total / len(self.views)

    def _run(self, view: View, clip: Tensor, keep: slice | None) -> Tensor:
        seen = view.of(clip.flip(1) if view.reverse else clip).contiguous()
        if keep is None:
            sr = self.model(seen)
        else:
            start, stop, _ = keep.indices(clip.shape[1])
            mirrored = slice(clip.shape[1] - stop, clip.shape[1] - start)
            sr = self.model(seen, keep=mirrored if view.reverse else keep)
        return view.back(sr.flip(1) if view.reverse else sr)

    def start(self, following: Tensor) -> list[Any]:
        """The state of every view before the first frame of a shot, given the second."""
        return [self.model.start(view.of(following)) for view in self.views]  # type: ignore[operator]

    def step(self, frame: Tensor, state: Sequence[Any] | None = None) -> tuple[Tensor, list[Any]]:
        """As the model, with one state for each view."""
        total, states = torch.zeros((), device=frame.device), []
        for view, before in zip(self.views, state or [None] * len(self.views), strict=True):
            seen = view.of(frame).contiguous()
            sr, after = self.model.step(seen, before)  # type: ignore[operator]
            total = total + view.back(sr)
            states.append(after)
        return total / len(self.views), states
