"""What the pipeline must know to run a model: its facts, and how to give it frames it accepts.

`Window`, `Carried` and `Segments` say which frames a model sees at once; `plan_piece` turns that
into the numbers of frames, for files and for streams. Sizes are padded by `pad_frames`.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor

from vsrkit.errors import VsrkitError
from vsrkit.hardware.memory import Rows
from vsrkit.models.anatomy import Anatomy


@dataclass(frozen=True, slots=True)
class Window:
    """A fixed number of frames around a centre; a single-image model is `Window(1, "all")`.

    size: number of frames
    emits: "centre", or "all" for every frame of the window, of which the pipeline uses the centre
    """

    size: int
    emits: Literal["centre", "all"] = "centre"

    def __post_init__(self) -> None:
        if self.size < 1 or (self.size % 2 == 0 and self.emits == "centre"):
            raise ValueError(f"a window needs a centre: its size must be odd, got {self.size}")


@dataclass(frozen=True, slots=True)
class Carried:
    """A state passed from frame to frame, forward in time, reset at every cut.

    needs_second_frame: the state before a shot's first frame is made from its second: the model
        has `start(second) -> state`, called with the first frame if the shot has only one
    look_ahead: 1 if every step also takes the next frame, `step(frame, state, after)`, which is
        the same frame again at the end of a shot
    """

    needs_second_frame: bool = False
    look_ahead: Literal[0, 1] = 0


@dataclass(frozen=True, slots=True)
class Segments:
    """Pieces of `length` frames at multiples of `length` from the start of the shot.

    `warmup` frames on either side (fewer at the ends of the shot) are run with each piece and
    dropped. Positions depend on the model alone, so that the output does not depend on how a job is
    divided.
    """

    length: int
    warmup: int

    def __post_init__(self) -> None:
        if self.length < 1 or self.warmup < 0:
            raise ValueError(f"segments need length >= 1 and warmup >= 0, got {self}")


Context: TypeAlias = Window | Carried | Segments


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The facts a model declares."""

    scale: int
    context: Context
    tile: int | None = None  # height and width of the only crop it accepts; None for any size
    minimum: int = 1  # smallest height and width; smaller frames are padded
    multiple: int = 1  # height and width must be divisible by this; others are padded
    extends_by: Literal["edge", "mirror"] = "edge"  # what is right of and below padded frames
    min_frames: int = 1  # shortest clip it can run; shorter shots are padded by their last frame
    features_per_frame: int = 1  # feature maps that it holds for each frame of a call
    light: bool = False  # about as fast as decoding and encoding, which should run at the same time
    uses_window_cache: bool = False  # takes `cache`, a `WindowCache` of per-frame results


@runtime_checkable
class VideoModel(Protocol):
    """An `nn.Module` with a `spec`, an `anatomy` and a frozen config dataclass.

    Call: (B, T, 3, H, W) float RGB in [0, 1] -> (B, T', 3, sH, sW), not clamped. T' is 1 for
    `Window(emits="centre")`, else T. Models that emit every frame take `keep`, a slice of the
    frames to return, and skip what only the others need: `model(clip, keep=k)` equals
    `model(clip)[:, k]`. `Carried` models also have `step(frame, state) -> (sr, state)` with
    frames (B, 3, H, W) and `state=None` at the start of a shot. Models with `uses_window_cache`
    take `cache`, a `WindowCache`, and compute features and flows of overlapping windows once.
    """

    spec: Spec
    config: Any

    @property
    def anatomy(self) -> Anatomy: ...

    def __call__(self, clip: Tensor, keep: slice | None = None) -> Tensor: ...


# What replaces frames before the first and after the last frame of a shot.
Padding: TypeAlias = Literal["replicate", "reflection", "reflection_circle", "circle"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Frames that a model runs on at once, and which of its outputs are kept."""

    clip: Tensor | Rows  # (T, 3, H, W)
    keep: slice  # along T
    begins_shot: bool = False
    limits: tuple[float, float] | None = None  # smallest and largest value, if known


@dataclass(frozen=True, slots=True)
class PiecePlan:
    """A piece by the numbers of its frames."""

    frames: tuple[int, ...]  # padding repeats numbers
    keep: slice
    begins_shot: bool

    @property
    def kept(self) -> tuple[int, ...]:
        """The frames whose outputs are kept."""
        return self.frames[self.keep]


def plan_piece(
    first: int,
    length: int,
    context: Context,
    *,
    padding: Padding = "reflection_circle",
    stride: int = 1,
) -> PiecePlan:
    """The piece of a shot of `length` frames whose first kept frame is `first`.

    context: what the model needs. A model with a carried state gets one frame at a time; the first
        one of a shot comes with the second, and with `look_ahead` every one with the next.
    padding: what replaces frames outside of the shot in a window.
    stride: frames to keep of a window, for models that return all of them. More frames are faster
        and have less context on one side.
    """
    begins = first == 0
    match context:
        case Window(size=size):
            kept = _kept_frames(context, stride)
            centre = min(first + kept // 2, length - 1)
            skip = size // 2 - (centre - first)
            keep = slice(skip, skip + min(kept, length - first))
            return PiecePlan(tuple(window_indices(centre, length, size, padding)), keep, begins)
        case Segments(length=kept, warmup=warmup):
            low, high = max(0, first - warmup), min(length, first + kept + warmup)
            keep = slice(first - low, min(first + kept, length) - low)
            return PiecePlan(tuple(range(low, high)), keep, begins)
        case Carried():
            following = (min(first + 1, length - 1),) if begins or context.look_ahead else ()
            frames = (first, *following)
            return PiecePlan(frames, slice(0, 1), begins)


def plan_pieces(start: int, stop: int, context: Context, *, stride: int = 1) -> Iterator[PiecePlan]:
    """The pieces of the shot from frame `start` up to `stop` of a video, numbered as in the video.

    context, stride: as in `plan_piece`. The kept frames of all pieces together are the shot.
    """
    for first in range(0, stop - start, _kept_frames(context, stride)):
        plan = plan_piece(first, stop - start, context, stride=stride)
        numbers = tuple(start + number for number in plan.frames)
        yield PiecePlan(numbers, plan.keep, plan.begins_shot)


def pieces(
    shot: Iterable[Tensor], context: Context, padding: Padding = "reflection_circle"
) -> Iterator[Piece]:
    """The pieces of a stream of frames (3, H, W), by the same plan; the length may be unknown.

    Holds as many frames as one piece needs (twice a window), however long the shot is.
    """
    frames = iter(shot)
    held: deque[Tensor] = deque()
    first = oldest = read = 0
    while True:
        # A plan does not depend on the end of the shot once so many frames are known.
        new = list(islice(frames, first + frames_ahead(context, first) - read))
        held.extend(new)
        read += len(new)
        del new
        if first >= read:
            return
        plan = plan_piece(first, read, context, padding=padding)
        clip = torch.stack([held[number - oldest] for number in plan.frames])
        yield Piece(clip, plan.keep, plan.begins_shot)
        del clip
        first += len(plan.kept)
        while oldest < first - _frames_behind(context):
            held.popleft()
            oldest += 1


def _kept_frames(context: Context, stride: int) -> int:
    """Frames from the first one of a piece to that of the next."""
    match context:
        case Window(size=size, emits="all"):
            return min(stride, size)
        case Segments(length=length):
            return length
    return 1


def frames_ahead(context: Context, first: int) -> int:
    """Frames from `first` on that decide its piece in a longer shot."""
    match context:
        case Window(size=size):
            return size
        case Segments(length=length, warmup=warmup):
            return length + warmup
        case Carried(look_ahead=look_ahead):
            return 2 if first == 0 else 1 + look_ahead


def _frames_behind(context: Context) -> int:
    """Frames before the first kept one that its piece may hold, padding included."""
    match context:
        case Window(size=size):
            return size - 1
        case Segments(warmup=warmup):
            return warmup
        case Carried():
            return 0


def window_indices(
    centre: int, length: int, size: int, padding: Padding = "reflection_circle"
) -> list[int]:
    """Frame numbers of the window around `centre` in a shot of `length` frames.

    In a shot shorter than the window, edge frames are repeated where the padding would still leave
    the shot.
    """
    half, last = size // 2, length - 1
    indices = [
        _padded(i, centre, last, half, size, padding)
        for i in range(centre - half, centre - half + size)
    ]
    return [min(max(i, 0), last) for i in indices]


def _padded(i: int, centre: int, last: int, half: int, size: int, padding: Padding) -> int:
    """The frame that stands for frame `i`, which may be outside of the shot."""
    before, after = i < 0, i > last
    if not before and not after:
        return i
    match padding:
        case "replicate":
            return 0 if before else last
        case "reflection":
            return -i if before else 2 * last - i
        case "reflection_circle":  # take the missing ones from the other side of the window
            reach = size - 1 - half  # after the centre: one less than before it in an even window
            return centre + reach - i if before else (centre - half) - (i - last)
        case "circle":
            return size + i if before else i - size


def check_size(clip: Tensor, spec: Spec) -> None:
    """Raise an error unless frames (..., H, W) have a size that the model accepts."""
    height, width = clip.shape[-2:]
    if min(height, width) < spec.minimum:
        raise VsrkitError(
            f"frames must be at least {spec.minimum}x{spec.minimum}, got {height}x{width}; "
            "upscale_frames pads smaller ones"
        )
    if height % spec.multiple or width % spec.multiple:
        raise VsrkitError(
            f"height and width must be multiples of {spec.multiple}, got {height}x{width}; "
            "upscale_frames pads others"
        )


def padded_size(height: int, width: int, spec: Spec) -> tuple[int, int]:
    """The smallest size that the model accepts for frames of this size."""
    least, multiple = spec.tile or spec.minimum, spec.multiple
    height, width = (-(-max(side, least) // multiple) * multiple for side in (height, width))
    return height, width


def pad_clip(clip: Tensor, frames: int) -> Tensor:
    """Repeat the last frame of (T, 3, H, W) until there are at least `frames`."""
    missing = max(0, frames - clip.shape[0])
    return torch.cat([clip, clip[-1:].expand(missing, -1, -1, -1)]) if missing else clip


def pad_frames(frames: Tensor, height: int, width: int, spec: Spec) -> Tensor:
    """Pad the right and the bottom of (T, 3, H, W) in the way that the model declares."""
    if spec.extends_by == "mirror":
        return mirror_to(frames, height, width, repeat_edge=True)
    return pad_to(frames, height, width)


def pad_to(x: Tensor, height: int, width: int) -> Tensor:
    """Repeat the right and bottom edges of (N, C, H, W) until it has the given size."""
    h, w = x.shape[-2:]
    if (h, w) == (height, width):
        return x
    return F.pad(x, (0, width - w, 0, height - h), mode="replicate")


def mirror_to(x: Tensor, height: int, width: int, *, repeat_edge: bool) -> Tensor:
    """Mirror the right and the bottom of (..., H, W) until it has the given size; any size works.

    repeat_edge: whether the edge itself is mirrored (a b c | c b) or not (a b c | b a)
    """
    for dim, size in ((-2, height), (-1, width)):
        length = x.shape[dim]
        if size > length:
            end = 2 * length - (1 if repeat_edge else 2)
            places = torch.arange(size, device=x.device) % max(1, end + repeat_edge)
            x = x.index_select(dim, torch.minimum(places, end - places))
    return x
