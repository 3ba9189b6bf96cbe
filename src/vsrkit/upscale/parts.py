"""A job cut into parts, each of which is made, kept and thrown away as a whole."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from vsrkit.inference.windows import PiecePlan, plan_pieces
from vsrkit.models.spec import Context

PART_FRAMES = 48  # at least so many in a part but the last: what a crash can cost


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive frames of the output, and the pieces that they are made from."""

    number: int
    start: int
    stop: int
    pieces: tuple[PiecePlan, ...]


def plan_parts(
    shots: Iterable[range], context: Context, *, stride: int = 1, frames: int = PART_FRAMES
) -> Iterator[Part]:
    """Parts of at least `frames` frames. They depend on the video and the model alone.

    A part holds whole pieces of the model, of one or more shots, so no frame is made twice.
    """
    held: list[PiecePlan] = []
    number = start = stop = 0
    for shot in shots:
        for piece in plan_pieces(shot.start, shot.stop, context, stride=stride):
            held.append(piece)
            stop = piece.kept[-1] + 1
            if stop - start >= frames:
                yield Part(number, start, stop, tuple(held))
                held, number, start = [], number + 1, stop
    if held:
        yield Part(number, start, stop, tuple(held))
