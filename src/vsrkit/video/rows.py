"""Clips and frames that are read a few rows at a time, to save memory."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Rows:
    """A clip or frame whose rows are computed or loaded on demand.

    shape: (..., H, W).
    read: takes the first row and the row after the last, returns (..., rows, W).
    """

    shape: tuple[int, ...]
    read: Callable[[int, int], Tensor]

    def whole(self) -> Tensor:
        """All rows."""
        return self.read(0, self.shape[-2])


def as_rows(x: Tensor | Rows) -> Rows:
    """A tensor (..., H, W) as Rows."""
    if isinstance(x, Rows):
        return x
    return Rows(tuple(x.shape), lambda start, stop: x[..., start:stop, :])


def as_tensor(x: Tensor | Rows) -> Tensor:
    """All rows as one tensor (..., H, W)."""
    return x.whole() if isinstance(x, Rows) else x
