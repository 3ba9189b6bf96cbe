"""Self-ensemble: the mean output for flipped, transposed and reversed versions of a clip."""

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
    """A flipped, transposed or reversed version of a clip."""

    mirror: bool  # swap left and right
    upend: bool  # swap top and bottom
    transpose: bool  # swap rows and columns
    reverse: bool  # reverse time

    def of(self, frames: Tensor) -> Tensor:
        """Transform frames (..., H, W) in space; the caller reverses time."""
        if self.mirror:
            frames = frames.flip(-1)
        if self.upend:
            frames = frames.flip(-2)
        return frames.transpose(-1, -2) if self.transpose else frames

    def back(self, frames: Tensor) -> Tensor:
        """The inverse of `of`."""
        if self.transpose:
            frames = frames.transpose(-1, -2)
        if self.upend:
            frames = frames.flip(-2)
        return frames.flip(-1) if self.mirror else frames


def views(spec: Spec, count: int = ALL_VIEWS) -> list[View]:
    """The first `count` views that are useful for a model, ordered to differ early.

    Time is not reversed for single-image models and models that carry a state forward.
    """
    if count not in (1, 2, 4, 8, 16):
        raise VsrkitError(f"an ensemble needs 1, 2, 4, 8 or 16 views, got {count}")
    timeless = isinstance(spec.context, Carried) or spec.context == Window(1, "all")
    chosen = []
    for number in range(min(count, 8) if timeless else count):
        mirror, upend, transpose = (bool(number >> bit & 1) for bit in range(3))
        reverse = (number + number // 8) % 2 == 1 and not timeless
        chosen.append(View(mirror, upend, transpose, reverse))
    return chosen


class Ensemble(nn.Module):
    """A model that runs another model once per view and averages; it has the same interface."""

    anatomy = Anatomy()  # inspect the model itself

    def __init__(self, model: nn.Module, count: int = ALL_VIEWS) -> None:
        super().__init__()
        self.model = model
        spec: Spec = model.spec  # type: ignore[assignment]
        self.spec = replace(spec, uses_window_cache=False)  # the views have different frames
        self.config: Any = model.config
        self.views = views(self.spec, count)

    def forward(self, clip: Tensor, keep: slice | None = None) -> Tensor:
        """As the model: (B, T, 3, H, W) -> (B, T', 3, sH, sW); holds one view in memory."""
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

    def start(self, second: Tensor) -> list[Any]:
        """The state of every view before the first frame of a shot, given the second."""
        return [self.model.start(view.of(second)) for view in self.views]  # type: ignore[operator]

    def step(
        self, frame: Tensor, state: Sequence[Any] | None = None, *after: Tensor
    ) -> tuple[Tensor, list[Any]]:
        """As the model, with one state for each view; `after` is the next frame, if it needs it."""
        total, states = torch.zeros((), device=frame.device), []
        for view, before in zip(self.views, state or [None] * len(self.views), strict=True):
            seen, *following = (view.of(each).contiguous() for each in (frame, *after))
            sr, state_after = self.model.step(seen, before, *following)  # type: ignore[operator]
            total = total + view.back(sr)
            states.append(state_after)
        return total / len(self.views), states
