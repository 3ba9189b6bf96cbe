"""Clips and frames that are read a few rows at a time, where all of them take too much memory."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Rows:
    """A clip or a frame that is made, or fetched, when some of its rows are wanted."""

    shape: tuple[int, ...]  # (..., H, W)
    read: Callable[[int, int], Tensor]  # rows from, to -> (..., to - from, W)

    def whole(self) -> Tensor:
        """All of it after all."""
        return self.read(0, self.shape[-2])


def rows_of(x: Tensor | Rows) -> Rows:
    """The same way to read what is there already, (..., H, W)."""
    if isinstance(x, Rows):
        return x
    return Rows(tuple(x.shape), lambda start, stop: x[..., start:stop, :])


def whole_of(x: Tensor | Rows) -> Tensor:
    """The pixels, (..., H, W)."""
    return x.whole() if isinstance(x, Rows) else x
