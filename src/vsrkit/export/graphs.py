"""The graphs that a model is exported as: one for a window of frames, or step functions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from vsrkit.errors import VsrkitError
from vsrkit.export.chain import Array, Call, Chain, Value, read, run_chain
from vsrkit.export.rewrites import exportable, exportable_functions
from vsrkit.export.steps import steps_of
from vsrkit.models.spec import Carried, Segments, Spec, Window, mirror_to, window_indices

# Height and width that graphs are traced at: no multiples of 16, so that padding is in the trace.
TRACED = (52, 76)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graphs:
    """What is exported of a model.

    functions: by name; a window is one function without a name
    chain: how the functions are called, for a window once for each frame
    frames: of the window; None for step functions
    multiple: heights and widths that step functions take; a window takes all from `minimum` on
    """

    functions: Mapping[str, nn.Module]
    chain: Chain
    spec: Spec
    frames: int | None
    multiple: int

    @property
    def minimum(self) -> int:
        """The smallest height and width."""
        return max(self.spec.minimum, 16)

    def examples(self, name: str) -> dict[str, Tensor]:
        """Inputs of a function of the size that it is traced at."""
        height, width = (-(-side // self.multiple) * self.multiple for side in TRACED)
        if self.frames:
            return {"input": torch.rand(1, 3 * self.frames, height, width)}
        call = next(call for call in self.chain.calls if call.step == name)
        return {
            key: torch.from_numpy(value.astype(np.float32))
            for key, value in self._inputs(call, height, width).items()
        }

    def _inputs(self, call: Call, height: int, width: int) -> dict[str, Array]:
        frames = [np.random.default_rng(t).random((1, 3, height, width)) for t in range(5)]
        return {key: read(self.chain, {}, value, 2, frames) for key, value in call.inputs.items()}

    def outputs(self, name: str) -> list[str]:
        """Names of a function's outputs."""
        if self.frames:
            return ["output"]
        return list(next(call for call in self.chain.calls if call.step == name).outputs)


def graphs_of(model: nn.Module, frames: int | None) -> Graphs:
    """The graphs of a model.

    model: of the zoo
    frames: of the window; None for the number that the model takes, or step functions if it is
        recurrent

    Raises VsrkitError for models that take one size only, and for wrong numbers of frames.
    """
    spec: Spec = model.spec  # type: ignore[assignment]
    name = type(model).__name__
    if spec.tile:
        raise VsrkitError(
            f"{name} takes tiles of {spec.tile}x{spec.tile} pixels only; an export is for any size"
        )
    frames = _checked_frames(name, spec, frames)
    prepared = exportable(model)
    if frames is None:
        steps = steps_of(prepared)
        return Graphs(
            functions=steps.functions,
            chain=steps.chain,
            spec=spec,
            frames=None,
            multiple=max(steps.multiple, spec.multiple),
        )
    return Graphs(
        functions={"": WindowOf(prepared, frames)},
        chain=Chain(
            calls=(Call(step="", inputs={"input": "window[t]"}, outputs={"output": "output[t]"}),),
            values={"window": Value(channels=3 * frames)},
        ),
        spec=spec,
        frames=frames,
        multiple=1,
    )


def _checked_frames(name: str, spec: Spec, frames: int | None) -> int | None:
    if isinstance(spec.context, Window):
        if frames not in (None, spec.context.size):
            raise VsrkitError(f"{name} takes a window of {spec.context.size}, not {frames} frames")
        return spec.context.size
    least = max(spec.min_frames, 2)
    if frames is not None and (frames < least or frames % 2 == 0):
        raise VsrkitError(
            f"a window of {name} is an odd number of {least} or more frames, not {frames}"
        )
    return frames


class WindowOf(nn.Module):
    """A model of any kind as a function of a window: its frames to the centre one."""

    def __init__(self, model: nn.Module, frames: int) -> None:
        super().__init__()
        self.model, self.frames = model, frames

    def forward(self, window: Tensor) -> Tensor:
        """(1, T * 3, H, W) -> (1, 3, sH, sW)."""
        spec: Spec = self.model.spec  # type: ignore[assignment]
        h, w = window.shape[-2:]
        window = _padded(window, spec)
        clip = torch.stack(list(window.split(3, 1)), 1)
        centre = self.frames // 2
        if isinstance(spec.context, Window) and spec.context.emits == "centre":
            sr = self.model(clip)
        elif isinstance(spec.context, Carried):
            # Later frames cannot help: the state goes forward only, with `look_ahead` one frame.
            until = centre + 1 + spec.context.look_ahead
            sr = self.model(clip[:, :until], keep=slice(centre, centre + 1))
        else:
            sr = self.model(clip, keep=slice(centre, centre + 1))
        return sr[:, 0, :, : h * spec.scale, : w * spec.scale]


def _padded(window: Tensor, spec: Spec) -> Tensor:
    """Pad the right and the bottom to the multiple that the model takes."""
    if spec.multiple == 1:
        return window
    h, w = window.shape[-2:]
    down, right = -h % spec.multiple, -w % spec.multiple
    if spec.extends_by == "mirror":
        return mirror_to(window, h + down, w + right, repeat_edge=True)
    return nn.functional.pad(window, (0, right, 0, down), mode="replicate")


def windows_of(frames: Sequence[Array], size: int) -> list[Array]:
    """The window (1, size * 3, H, W) around every frame (1, 3, H, W) of a shot."""
    return [
        np.concatenate([frames[n] for n in window_indices(t, len(frames), size, "replicate")], 1)
        for t in range(len(frames))
    ]


def calls_of(graphs: Graphs, frames: Sequence[Array]) -> Iterator[tuple[str, dict[str, Array]]]:
    """The inputs of every call of a chain or a window along a clip, for calibration."""
    if graphs.frames:
        yield from (("", {"input": window}) for window in windows_of(frames, graphs.frames))
        return
    recorded: list[tuple[str, dict[str, Array]]] = []

    def run(step: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        recorded.append((step, dict(inputs)))
        return run_function(graphs, step, inputs)

    run_chain(graphs.chain, run, frames)
    yield from recorded


def run_function(graphs: Graphs, name: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Run a function by PyTorch, as it is exported."""
    tensors = [torch.from_numpy(value) for value in inputs.values()]
    with exportable_functions(), torch.no_grad():
        results = graphs.functions[name](*tensors)
    results = results if isinstance(results, tuple) else (results,)
    return dict(zip(graphs.outputs(name), (r.numpy() for r in results), strict=True))


def expected(model: nn.Module, graphs: Graphs, frames: Sequence[Array]) -> list[Array]:
    """What the model itself returns for frames (1, 3, H, W), by its ordinary code.

    One result for each frame, or for a window one.
    """
    spec: Spec = model.spec  # type: ignore[assignment]
    clip = torch.from_numpy(np.stack(frames, 1))
    with torch.no_grad():
        if graphs.frames:
            window = torch.from_numpy(np.concatenate(frames, 1))
            return [WindowOf(model, graphs.frames)(window).numpy()]
        assert isinstance(spec.context, Segments | Carried)
        keep = slice(0, len(frames))  # as the pipeline calls it
        return [frame.numpy() for frame in model(clip, keep=keep).unbind(1)]
