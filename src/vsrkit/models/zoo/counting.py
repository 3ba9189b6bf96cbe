"""Count a model's arithmetic from shapes, without doing it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import flop_registry

from vsrkit.models.spec import Carried, Segments, Spec, Window

_RANDOM_FILLS = (torch.ops.aten.normal_, torch.ops.aten.uniform_)


class CountOnly(TorchDispatchMode):
    """Inside, convolutions and matrix products are counted and answer zeros; weights stay unfilled.

    Everything else runs, so that code which depends on values still works; on a small clip that
    is nearly free. (The meta device would do, but takes seconds for a net of many small steps.)
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flop = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.overloadpacket in _RANDOM_FILLS:
            return args[0]
        formula: Callable[..., int] | None = flop_registry.get(func.overloadpacket)
        if formula is None:
            return func(*args, **kwargs)
        shapes = tree_map(lambda x: x.to("meta") if isinstance(x, Tensor) else x, (args, kwargs))
        out = func(*shapes[0], **shapes[1])
        self.flop += formula(*args, **kwargs, out_val=out)
        return tree_map(lambda x: torch.zeros_like(x, device="cpu"), out)


def gflop_per_megapixel(build: Callable[[], nn.Module]) -> float:
    """Arithmetic (two per multiply-add) for one output frame of a million LR pixels.

    A window pays for all its frames while only the centre is kept, a segment for its warm-up.
    """
    with torch.no_grad(), CountOnly() as counter:
        model = build().eval()
        spec: Any = model.spec
        if not any(True for _ in model.parameters()):
            return 0.0  # interpolation, not a network
        side = spec.tile or max(32, spec.minimum)
        length, keep = _typical_clip(spec)
        clip = torch.zeros(1, length, 3, side, side)
        if isinstance(spec.context, Window) and spec.context.emits == "centre":
            model(clip)
        else:
            model(clip, keep=keep)
    megapixels = (keep.stop - keep.start) * side * side / 1e6
    return counter.flop / megapixels / 1e9


def _typical_clip(spec: Spec) -> tuple[int, slice]:
    """How many frames the pipeline hands over at once, and which of them are kept."""
    match spec.context:
        case Window(size=size):
            return size, slice(size // 2, size // 2 + 1)
        case Segments(length=length, warmup=warmup):
            return length + 2 * warmup, slice(warmup, warmup + length)
        case Carried():
            return 4, slice(0, 4)
