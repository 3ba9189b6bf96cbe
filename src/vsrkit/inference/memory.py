"""How much memory a job takes, and the tile and chunk that keep it below a limit.

All by arithmetic: from the model's widest features, the frames it holds at once and the size of a
frame. What the figures rest on was measured (notes/decisions/0018-memory-estimate.md).
"""

from dataclasses import dataclass

from torch import nn

from vsrkit.errors import MemoryLimitError
from vsrkit.hardware.memory import format_size
from vsrkit.hardware.precision import largest_convolution
from vsrkit.models.spec import Carried, Context, Segments, Spec, Window

SHARE = 0.6  # of the free memory, where the user names no limit
TILES = (512, 384, 256, 192, 128, 96, 64)  # sides to try, the largest first
PROGRAM = 420 << 20  # bytes of a process that has torch and a model in it and does nothing
FLOAT = 4
FRAME = 3 * FLOAT  # bytes of one pixel of one frame
STEPS = 16  # feature maps that a model has at once besides one for each frame
DECODED = 3.0  # bytes of one pixel as decoded, up to 4:2:0 in ten bits
DECODING = 16  # pictures that a decoder holds
DECODING_LARGE = 10  # the same from 4K on, where the standards allow six, or eight and a few more
LARGE = 3840 * 2160
OPENED = 256  # rows of pictures that are on their way to RGB where no frame is whole
CONVERTED = 0.5  # bytes for each pixel of a frame while it becomes a picture, a few rows at a time
SLACK = 1.15  # what the allocator loses between blocks


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """How a job keeps within its memory; only `tile` has a part in the result."""

    tile: int | None  # side of the tiles in LR pixels; None runs whole frames
    chunk: int  # frames that wait between decoder, model and encoder; 0: they take turns
    low_memory: bool  # tiles wait on disk, and no frame is ever whole: it comes and goes in rows
    window_cache: bool  # what overlapping windows share is computed once and kept
    peak: int  # bytes, estimated, of one process


def plan_memory(
    model: nn.Module,
    *,
    height: int,
    width: int,
    limit: int,
    tile: int | None = None,
    chunk: int | None = None,
    after: int = 0,
    held: float = DECODED,
    by_rows: bool = True,
) -> MemoryPlan:
    """The fastest plan for frames of this size that stays below `limit` bytes in one process.

    tile: 0 for whole frames, a side to demand it, None to choose.
    after: bytes that are needed after the model, to finish and encode its frames.
    held: bytes of one pixel of a frame that waits to become part of a piece.
    by_rows: whether frames can be read and written a few rows at a time; those of a pipe cannot.
    """
    spec: Spec = model.spec  # type: ignore[assignment]
    if tile is None:
        whole = spec.tile if spec.tile else None
        sides: list[int | None] = [whole, *_smaller(spec, max(height, width))]
    else:
        sides = [tile or None]
    plans = [
        MemoryPlan(
            side,
            frames,
            low_memory,
            window_cache,
            after
            + window_cache * window_cache_bytes(model, height, width)
            + estimate(model, height, width, side, frames, low_memory, held=held, by_rows=by_rows),
        )
        for side in sides
        for window_cache in ((True, False) if spec.uses_window_cache else (False,))
        for low_memory in ((False, True) if side else (False,))
        for frames in ((0,) if low_memory else (16, 8, 2, 0) if chunk is None else (chunk,))
    ]
    fitting = [plan for plan in plans if plan.peak <= limit]
    if not fitting:
        least = min(plan.peak for plan in plans)
        raise MemoryLimitError(
            f"frames of {width}x{height} need at least {format_size(least)} of memory with this "
            f"model ({format_size(after)} of it after the model), {format_size(limit)} is the "
            "limit; raise --max-memory, or use a smaller --tile, another model or a leaner codec "
            "(--codec prores in mkv or mov)"
        )
    return fitting[0]


def estimate(
    model: nn.Module,
    height: int,
    width: int,
    tile: int | None,
    chunk: int,
    low_memory: bool,
    *,
    held: float = DECODED,
    by_rows: bool = True,
) -> int:
    """Peak bytes of a process that upscales frames of this size, up to the encoder."""
    spec: Spec = model.spec  # type: ignore[assignment]
    lr = height * width
    hr = lr * spec.scale**2
    seen, kept = frames_at_once(spec.context)
    part = lr if tile is None else min(tile, height) * min(tile, width)
    features = part * FLOAT * width_of(model) * (seen + STEPS)
    # Tiles overlap by a quarter at most, so that together they have at most 16/9 of the pixels.
    tiles = part * spec.scale**2 if low_memory else hr if tile is None else hr * 16 // 9
    made = kept * FRAME * tiles
    by_rows = by_rows and low_memory and not isinstance(spec.context, Carried)
    if by_rows and tile:  # a row of tiles, twice where it is padded, and one of them
        clips = FRAME * seen * (2 * min(tile, height) * width + part)
    else:  # a clip is in use; others wait to be used or to be put among those that wait
        padded = any(side % spec.multiple for side in (height, width))
        clips = FRAME * seen * lr * ((3 if chunk else 1) + padded)
    opened = FRAME * width * OPENED if by_rows else 2 * FRAME * lr
    decoding = DECODING if lr < LARGE else DECODING_LARGE
    read = clips + opened + lr * held * (seen + decoding)
    finished = 0 if by_rows else chunk + 3 if chunk else 1
    waiting = hr * (FRAME * finished + CONVERTED)
    weights = 2 * FLOAT * sum(p.numel() for p in model.parameters())  # and packed, see `fused`
    return PROGRAM + round(SLACK * (features + made + read + waiting + weights))


def window_cache_bytes(model: nn.Module, height: int, width: int) -> int:
    """Bytes of what overlapping windows share: features of every frame, of all tiles."""
    spec: Spec = model.spec  # type: ignore[assignment]
    seen, _ = frames_at_once(spec.context)
    pixels = height * width * 16 // 9  # as tiles overlap
    pyramid = 4 / 3  # features may come in halves and quarters of the size, too
    return round(SLACK * pixels * seen * FLOAT * (width_of(model) * pyramid + 3))


def frames_at_once(context: Context) -> tuple[int, int]:
    """Frames that a model sees in one run, and how many of them it gives back."""
    match context:
        case Window(size=size):
            return size, 1
        case Segments(length=length, warmup=warmup):
            return length + 2 * warmup, length
        case Carried():
            return 2, 1


def width_of(model: nn.Module) -> int:
    """Channels of the model's features."""
    commonest = largest_convolution(model)
    return max(commonest.inputs, commonest.outputs) if commonest else 16


def _smaller(spec: Spec, side: int) -> list[int | None]:
    """Tiles that are smaller than the frame and large enough for the model."""
    if spec.tile:
        return []
    least = max(64, spec.minimum)
    return [t for t in TILES if least <= t < side and t % spec.multiple == 0]


def halved(tile: int | None, height: int, width: int, spec: Spec) -> int | None:
    """The tile to try after an allocation failed; None if there is none smaller."""
    if spec.tile:
        return None
    now = tile or max(height, width)
    smaller = [t for t in TILES if max(64, spec.minimum) <= t < now and t % spec.multiple == 0]
    return next((t for t in smaller if t <= now // 2), smaller[-1] if smaller else None)
