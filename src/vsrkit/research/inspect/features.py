"""Recorded inputs and outputs of modules, and the features of the chosen frame in them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor, nn
from torch.nn import functional as F

from vsrkit.models.anatomy import Anatomy, Tap
from vsrkit.research.inspect.clip_sample import Sample


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a module: its positional arguments and its output."""

    args: tuple[Any, ...]
    output: Any


Calls: TypeAlias = dict[str, list[Call]]  # by the name given to the module, in order


@contextmanager
def record_calls(modules: Mapping[str, nn.Module]) -> Iterator[Calls]:
    """Record all calls of these modules; tensors are copied, because some layers work in place."""
    calls: Calls = {name: [] for name in modules}

    def hook(name: str) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
        return lambda _, args, output: calls[name].append(Call(_copy(args), _copy(output)))

    handles = [module.register_forward_hook(hook(name)) for name, module in modules.items()]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    return tuple(_copy(part) for part in value) if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class Block:
    """A stage of a model with the features (C, H, W) before it, if known, and after it."""

    title: str
    description: str
    before: Tensor | None
    after: Tensor


def feature_modules(model: nn.Module, anatomy: Anatomy) -> dict[str, nn.Module]:
    """The modules that must be recorded for `feature_blocks`, by name."""
    if anatomy.stages:
        taps = [tap for stage in anatomy.stages for tap in (stage.before, stage.after) if tap]
        return {tap.module: model.get_submodule(tap.module) for tap in taps}
    return {name: part for name, part in model.named_children() if list(part.parameters())}


def feature_blocks(anatomy: Anatomy, calls: Calls, sample: Sample) -> list[Block]:
    """The stages of a model; for a model that lists none, its outermost modules."""
    if anatomy.stages:
        return [
            Block(
                stage.title,
                stage.description,
                None if stage.before is None else _tapped(stage.before, calls, sample),
                _tapped(stage.after, calls, sample),
            )
            for stage in anatomy.stages
        ]
    return [block for name in calls for block in _module_block(name, calls[name], sample)]


def _tapped(tap: Tap, calls: Calls, sample: Sample) -> Tensor:
    """The features at a tap, for the chosen frame: (C, H, W)."""
    tensors = [c.args[0] if tap.side == "input" else c.output for c in calls[tap.module]]
    if tap.frames > 1:  # (frames, C, H, W) of each call -> one frame of each
        tensors = [frame for group in tensors for frame in group.split(1)]
    features = _of_frame(tensors[::-1] if tap.backward else tensors, sample)[tap.skip :]
    return features if tap.slope is None else F.leaky_relu(features, tap.slope)


def _of_frame(tensors: list[Tensor], sample: Sample) -> Tensor:
    """The chosen frame of (B, T, C, H, W), of (T, C, H, W), or of one (1, C, H, W) per frame."""
    count = sample.clip.shape[1]
    last = tensors[-1]
    if len(tensors) >= count and last.dim() == 4:  # more: the model repeats the last frame
        return tensors[sample.centre][0].cpu()
    frames = last[0] if last.dim() == 5 else last
    return frames[sample.centre if len(frames) == count else 0].cpu()


def _module_block(name: str, calls: list[Call], sample: Sample) -> list[Block]:
    """A module of a model without stages as a block, if its outputs are features."""
    outputs = [call.output for call in calls]
    if not outputs or not all(isinstance(x, Tensor) and x.dim() in (4, 5) for x in outputs):
        return []
    if min(outputs[-1].shape[-2:]) < 2:
        return []
    inputs = [call.args[0] for call in calls if call.args]
    comparable = len(inputs) == len(outputs) and all(
        isinstance(x, Tensor) and x.shape == y.shape for x, y in zip(inputs, outputs, strict=True)
    )
    before = _of_frame(inputs, sample) if comparable else None
    return [Block(name, "", before, _of_frame(outputs, sample))]
