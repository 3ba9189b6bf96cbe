"""Look into a running model, or switch a part of it off, without touching its code."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor, nn

from vsrkit.models.spec import Window


@dataclass(frozen=True, slots=True)
class Call:
    """What a module was given and what it answered."""

    given: tuple[Any, ...]
    answer: Any


Calls: TypeAlias = dict[str, list[Call]]  # by the module's name, in the order of time


@contextmanager
def watching(modules: Mapping[str, nn.Module]) -> Iterator[Calls]:
    """Note every call of these modules; tensors are copied, because some layers work in place."""
    calls: Calls = {name: [] for name in modules}

    def note(name: str) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
        return lambda _, given, answer: calls[name].append(Call(_copy(given), _copy(answer)))

    handles = [module.register_forward_hook(note(name)) for name, module in modules.items()]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


Answer: TypeAlias = Callable[[tuple[Any, ...], Any], Any]  # (given, answer) -> another answer


@contextmanager
def answering(modules: list[nn.Module], answer: Answer) -> Iterator[None]:
    """Let these modules answer something else."""
    handles = [
        module.register_forward_hook(lambda _, given, usual: answer(given, usual))
        for module in modules
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def upscale_one(model: nn.Module, clip: Tensor, frame: int) -> Tensor:
    """One frame of a clip (1, T, 3, H, W) by a model: (3, sH, sW) in [0, 1]."""
    context = model.spec.context  # type: ignore[union-attr]
    if isinstance(context, Window) and context.emits == "centre":
        sr = model(clip)
    else:
        sr = model(clip, keep=slice(frame, frame + 1))
    return sr[0, 0].clamp(0, 1)


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    return tuple(_copy(part) for part in value) if isinstance(value, tuple) else value
