"""Run a model on frames: split into shots and pieces, run on tiles, put back in order."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count, groupby
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from vsrkit.hardware.device import (
    Precision,
    PrecisionName,
    inference_context,
    resolve_precision,
    set_memory_layout,
)
from vsrkit.hardware.executors import LocalPool, map_in_order
from vsrkit.hardware.memory import Rows, as_rows, keep_freed_memory
from vsrkit.inference.calibration import Calibration, find_calibration, with_int8
from vsrkit.inference.tiles import overlap_of, plan_grid, run_pasted, run_tiled
from vsrkit.models.layers.window_cache import WindowCache
from vsrkit.models.spec import (
    Carried,
    Padding,
    Piece,
    Spec,
    Window,
    pad_clip,
    pad_frames,
    padded_size,
    pieces,
)

States: TypeAlias = list[Any]  # recurrent states of a model, one for each tile


@dataclass(frozen=True)
class Engine:
    """A model that is ready to run: on a device, in a precision, on tiles if needed.

    With int8, `network` is the copy of the model that runs, and `calibration` has its ranges.
    Another model needs another engine: `replace` would keep the network.
    """

    model: nn.Module
    precision: Precision
    device: str = "cpu"
    tile: int | None = None  # side of the tiles; None runs whole frames
    stitch: Literal["blend", "paste"] = "blend"  # paste: hard edges, as in the authors' code
    scratch: Path | None = None  # folder for tiles until they are blended; None: memory
    # By tile, what overlapping windows share; None computes it for every window and saves memory.
    window_caches: defaultdict[int, WindowCache] | None = field(
        default_factory=lambda: defaultdict(WindowCache), repr=False, compare=False
    )
    calibration: Calibration | None = field(default=None, repr=False)
    network: nn.Module = field(default=None, repr=False, compare=False)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.network is None:
            network = self.model
            if self.precision.int8:
                network = with_int8(self.model, self.precision.int8, self.calibration)
            object.__setattr__(self, "network", network)

    @property
    def spec(self) -> Spec:
        """The facts that the model declares."""
        return self.model.spec  # type: ignore[return-value]

    def run(self, piece: Piece) -> Iterator[Tensor]:
        """The kept frames of a piece, (3, sH, sW) each, on the CPU."""
        return map(Rows.whole, self.run_by_rows(piece))

    def run_by_rows(self, piece: Piece) -> Iterator[Rows]:
        """The same frames by rows; each must be read before the next one is requested."""
        only_centre = isinstance(self.spec.context, Window) and self.spec.context.emits == "centre"
        run_model = self.network if only_centre else partial(self.network, keep=piece.keep)
        tiles = count()

        def run_cached(part: Tensor) -> Tensor:
            # An empty cache costs nothing, and sums have the same order with and without.
            caches = self.window_caches
            cache = WindowCache() if caches is None else caches[next(tiles)]
            return run_model(part, cache=cache)

        return self._fitted(run_cached if self.spec.uses_window_cache else run_model, piece)

    def carry(self, shot: Iterable[Tensor]) -> Iterator[Tensor]:
        """Upscale the frames of a shot one by one, passing the model's state on to the next."""
        states: States = []
        for piece in pieces(shot, self.spec.context):
            sr, states = self.step(piece, states)
            yield sr

    def step(self, piece: Piece, states: States) -> tuple[Tensor, States]:
        """The output for the one kept frame of a piece, and the states after it.

        states: after the frame before, one for each tile in the order of the tiles; unused where
            a shot begins.
        """
        context = self.spec.context
        assert isinstance(context, Carried)
        before, after = iter([] if piece.begins_shot else states), []

        def step_model(part: Tensor) -> Tensor:
            state = next(before, None)
            if state is None and context.needs_second_frame:
                state = self.network.start(part[:, -1])  # type: ignore[operator]
            following = part[:, 1:].unbind(1) if context.look_ahead else ()
            sr, state = self.network.step(part[:, 0], state, *following)  # type: ignore[operator]
            after.append(state)
            return sr[:, None]

        sr = next(self._fitted(step_model, piece))
        return sr.whole(), after

    def _fitted(self, run: Callable[[Tensor], Tensor], piece: Piece) -> Iterator[Rows]:
        """Pad the piece to a size that the model accepts, run it, and crop the output.

        The output is clamped to [0, 1], or to the range of the piece if that is wider: videos can
        hold highlights above white and colours outside of the gamut.
        """
        spec, clip = self.spec, as_rows(piece.clip)
        low, high = piece.limits or _limits(clip)
        height, width = clip.shape[-2:]
        size = padded_size(height, width, spec)
        tile = spec.tile or self.tile

        def answer(part: Tensor) -> Tensor:
            with inference_context(self.precision, self.device):
                return run(part)

        def padded(start: int, stop: int) -> Tensor:
            """Rows of the padded clip, (1, T, 3, stop - start, W)."""
            part = pad_clip(clip.read(start, min(stop, height)), spec.min_frames)
            return pad_frames(part, stop - start, size[1], spec)[None].to(self.device)

        def finish(frame: Rows) -> Rows:
            def read(start: int, stop: int) -> Tensor:
                rows = frame.read(start, stop)[..., : width * spec.scale].float()
                # In place if possible: a copy would take the memory of another frame.
                clamp = torch.clamp if rows.is_inference() else torch.clamp_
                return clamp(rows, min(0.0, low), max(1.0, high)).cpu()

            return Rows((3, height * spec.scale, width * spec.scale), read)

        if tile and self.stitch == "blend" and max(size) > tile:
            grid = plan_grid(*size, tile, overlap_of(tile))
            frames = run_tiled(answer, padded, grid, scale=spec.scale, scratch=self.scratch)
        elif tile and self.stitch == "paste" and min(size) >= tile:
            pasted = run_pasted(answer, padded(0, size[0]), size=tile, scale=spec.scale)
            frames = map(as_rows, pasted[0])
        else:
            frames = map(as_rows, answer(padded(0, size[0]))[0])
        yield from map(finish, frames)


def _limits(clip: Rows) -> tuple[float, float]:
    low, high = clip.whole().aminmax()
    return float(low), float(high)


def make_engine(
    model: nn.Module,
    *,
    precision: PrecisionName | Precision = "auto",
    device: str = "cpu",
    tile: int | None = None,
    calibration: Calibration | None = None,
) -> Engine:
    """Move a model to its device and set its precision and memory layout.

    model: any model of the zoo.
    precision: `auto` measures which of float32 and bfloat16 is fastest.
    device: as `resolve_device` returns it.
    tile: side of the tiles in pixels; None runs whole frames.
    calibration: for int8; None takes the one that is stored for these weights.
    """
    keep_freed_memory()
    model = model.eval().to(device)
    if not isinstance(precision, Precision):
        precision = resolve_precision(precision, model, device)
    set_memory_layout(model, precision)
    if precision.int8 and calibration is None:
        calibration = find_calibration(model)
    return Engine(
        model, precision, device, tile, calibration=calibration if precision.int8 else None
    )


def upscale_frames(
    frames: Iterable[Tensor],
    model: nn.Module | Engine,
    *,
    cuts: Collection[int] = (),
    padding: Padding = "reflection_circle",
    chunk: int = 1,
    workers: int = 1,
) -> Iterator[Tensor]:
    """Upscale frames (3, H, W) in [0, 1] in order; yields (3, sH, sW), one for each.

    frames: any iterable of float tensors of one size.
    model: a model of the zoo, or an engine with its own device, precision and tile.
    cuts: numbers of the frames that begin a new shot; no model looks across a cut.
    padding: what replaces frames before the first and after the last one of a shot.
    chunk: frames to collect before they are yielded or sent to a worker. More take more memory;
        the output is the same for any number.
    workers: processes that share the work; the output is the same for any number.
    """
    engine = model if isinstance(model, Engine) else make_engine(model)
    starts = set(cuts)
    marked = ((frame, number in starts) for number, frame in enumerate(_checked(frames)))
    yield from upscale_marked(marked, engine, padding=padding, chunk=chunk, workers=workers)


def _checked(frames: Iterable[Tensor]) -> Iterator[Tensor]:
    """Yield the frames; raises an error for one of a wrong shape or type."""
    size: tuple[int, ...] = ()
    for number, frame in enumerate(frames):
        form = tuple(frame.shape)
        size = size or form
        if len(form) != 3 or form[0] != 3 or form != size:
            raise ValueError(
                f"frame {number} is {form}, the first {size}; expected (3, H, W) for all"
            )
        if frame.dtype not in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            raise ValueError(
                f"frame {number} is of {frame.dtype}; expected tensors (3, H, W) of floats "
                "from 0 to 1"
            )
        yield frame


def upscale_marked(
    marked: Iterable[tuple[Tensor, bool]],
    engine: Engine,
    *,
    padding: Padding = "reflection_circle",
    chunk: int = 1,
    workers: int = 1,
) -> Iterator[Tensor]:
    """As `upscale_frames`, for pairs of a frame and whether it begins a new shot."""
    shots = split_shots(marked)
    if isinstance(engine.spec.context, Carried):
        for shot in shots:
            yield from engine.carry(shot)
        return
    work = (piece for shot in shots for piece in pieces(shot, engine.spec.context, padding))
    chunks = gather(work, chunk)
    if workers <= 1:
        for group in chunks:
            yield from (frame for piece in group for frame in engine.run(piece))
    else:
        with LocalPool(workers, _keep_engine, engine) as pool:
            for results in map_in_order(pool, _run_group, chunks):
                yield from results


def split_shots(marked: Iterable[tuple[Tensor, bool]]) -> Iterator[Iterator[Tensor]]:
    """Yield an iterator of frames for each shot; read each to its end before the next one."""

    def numbered() -> Iterator[tuple[int, Tensor]]:
        shot = 0
        for frame, begins in marked:
            shot += begins
            yield shot, frame

    for _, shot in groupby(numbered(), key=lambda pair: pair[0]):
        yield (frame for _, frame in shot)


def gather(work: Iterable[Piece], frames: int) -> Iterator[list[Piece]]:
    """Yield lists of pieces with at least `frames` kept frames each (the last may have fewer)."""
    held: list[Piece] = []
    kept = 0
    for piece in work:
        held.append(piece)
        kept += piece.keep.stop - piece.keep.start
        if kept >= frames:
            yield held
            held, kept = [], 0
    if held:
        yield held


_engine: Engine | None = None  # set once in each worker process


def _keep_engine(engine: Engine) -> None:
    global _engine
    _engine = engine


def _run_group(group: list[Piece]) -> list[Tensor]:
    assert _engine is not None
    return [frame for piece in group for frame in _engine.run(piece)]
