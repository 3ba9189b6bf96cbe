"""Estimate the memory of a job and choose the tile and chunk that keep it below a limit.

The estimate is arithmetic: the model's widest features, the frames it holds at once, the size of a
frame. Its constants were measured (notes/decisions/0018-memory-estimate.md).
"""

from dataclasses import dataclass

from torch import nn

from vsrkit.errors import MemoryLimitError
from vsrkit.hardware.device import largest_convolution
from vsrkit.hardware.memory import format_size
from vsrkit.models.spec import Carried, Context, Segments, Spec, Window

SHARE = 0.6  # default limit, as a fraction of the free memory
TILES = (512, 384, 256, 192, 128, 96, 64)  # sides to try, largest first
PROGRAM = 420 << 20  # bytes of an idle process with torch and a model loaded
FLOAT = 4
FRAME = 3 * FLOAT  # bytes of one pixel of one frame
STEPS = 16  # feature maps alive at once in addition to one per frame
DECODED = 3.0  # bytes per decoded pixel, up to 10-bit 4:2:0
DECODING = 16  # frames that a decoder holds
DECODING_LARGE = 10  # the same from 4K up, where codec levels allow six to eight reference frames
LARGE = 3840 * 2160
OPENED = 256  # rows being converted to RGB in low-memory mode
CONVERTED = 0.5  # bytes per pixel while a frame is converted to YUV, a few rows at a time
SLACK = 1.15  # allocator fragmentation


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Settings that keep a job within its memory limit; only `tile` affects the output."""

    tile: int | None  # side of the tiles in LR pixels; None runs whole frames
    chunk: int  # frames buffered between decoder, model and encoder; 0 runs them in turn
    low_memory: bool  # tile results go to disk, and frames are processed a few rows at a time
    window_cache: bool  # features that overlapping windows share are computed once and kept
    peak: int  # estimated peak of one process, bytes


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
    """Return the fastest plan for frames of this size that stays below `limit` bytes per process.

    model: the network, for its spec and its width.
    height, width: of the input frames, in pixels.
    limit: bytes that one process may use.
    tile: side of the tiles, 0 for whole frames, None to choose.
    chunk: frames buffered between the stages, None to choose.
    after: bytes needed after the model, to resize and encode its frames.
    held: bytes per pixel of a decoded frame that waits for the model.
    by_rows: whether frames can be read a few rows at a time; frames from a pipe cannot.
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
            f"{width}x{height} frames need at least {format_size(least)} of memory with this model "
            f"({format_size(after)} of it for resizing and encoding), but the limit is "
            f"{format_size(limit)}; raise --max-memory, or use a smaller --tile, another model or "
            "a codec that needs less memory (--codec prores in mkv or mov)"
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
    """Estimate the peak bytes of a process that upscales frames of this size, without encoder."""
    spec: Spec = model.spec  # type: ignore[assignment]
    lr = height * width
    hr = lr * spec.scale**2
    seen, kept = frames_at_once(spec.context)
    part = lr if tile is None else min(tile, height) * min(tile, width)
    features = part * FLOAT * width_of(model) * (seen * spec.features_per_frame + STEPS)
    # Tiles overlap by at most a quarter, so together they hold at most 16/9 of the pixels.
    tiles = part * spec.scale**2 if low_memory else hr if tile is None else hr * 16 // 9
    made = kept * FRAME * tiles
    by_rows = by_rows and low_memory and not isinstance(spec.context, Carried)
    if by_rows and tile:  # one row of tiles, a padded copy of it, and one tile
        clips = FRAME * seen * (2 * min(tile, height) * width + part)
    else:  # one clip in use; with buffering, two more wait before and after the queue
        padded = any(side % spec.multiple for side in (height, width))
        clips = FRAME * seen * lr * ((3 if chunk else 1) + padded)
    opened = FRAME * width * OPENED if by_rows else 2 * FRAME * lr
    decoding = DECODING if lr < LARGE else DECODING_LARGE
    read = clips + opened + lr * held * (seen + decoding)
    finished = 0 if by_rows else chunk + 3 if chunk else 1
    waiting = hr * (FRAME * finished + CONVERTED)
    # The second copy is packed for fused blocks.
    weights = 2 * FLOAT * sum(p.numel() for p in model.parameters())
    return PROGRAM + round(SLACK * (features + made + read + waiting + weights))


def window_cache_bytes(model: nn.Module, height: int, width: int) -> int:
    """Bytes of the features that overlapping windows share, for every frame and tile."""
    spec: Spec = model.spec  # type: ignore[assignment]
    seen, _ = frames_at_once(spec.context)
    pixels = height * width * 16 // 9  # with the overlap of the tiles
    pyramid = 4 / 3  # features may also exist at half and quarter size
    return round(SLACK * pixels * seen * FLOAT * (width_of(model) * pyramid + 3))


def frames_at_once(context: Context) -> tuple[int, int]:
    """Number of frames that a model takes in one call, and number of frames it returns."""
    match context:
        case Window(size=size):
            return size, 1
        case Segments(length=length, warmup=warmup):
            return length + 2 * warmup, length
        case Carried():
            return 2, 1


def width_of(model: nn.Module) -> int:
    """Number of channels of the model's features."""
    commonest = largest_convolution(model)
    return max(commonest.inputs, commonest.outputs) if commonest else 16


def _smaller(spec: Spec, side: int) -> list[int | None]:
    """Tile sizes smaller than the frame and large enough for the model."""
    if spec.tile:
        return []
    least = max(64, spec.minimum)
    return [t for t in TILES if least <= t < side and t % spec.multiple == 0]


def halved(tile: int | None, height: int, width: int, spec: Spec) -> int | None:
    """Return the tile to try after an allocation failed, None if no smaller one exists."""
    if spec.tile:
        return None
    now = tile or max(height, width)
    smaller = [t for t in TILES if max(64, spec.minimum) <= t < now and t % spec.multiple == 0]
    return next((t for t in smaller if t <= now // 2), smaller[-1] if smaller else None)
