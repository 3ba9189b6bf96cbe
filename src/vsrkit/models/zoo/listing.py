"""What `vsrkit models` lists: size, frames, arithmetic, weights and licence of every entry."""

import json
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import flop_registry

from vsrkit.models.spec import Carried, Context, Segments, Spec, Window
from vsrkit.models.zoo import MODELS, build_model, local_weights

# The kernel of `scaled_dot_product_attention` on a CPU, which PyTorch's table does not list.
_FORMULAS: dict[Any, Any] = {
    **flop_registry,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: flop_registry[
        torch.ops.aten._scaled_dot_product_flash_attention
    ],
}
_RANDOM_FILLS = (torch.ops.aten.normal_, torch.ops.aten.uniform_)


def describe_all() -> list[dict[str, Any]]:
    """One dictionary per entry, in the order of the table."""
    return [describe(name) for name in MODELS]


def describe(name: str) -> dict[str, Any]:
    """The columns of one entry."""
    entry = MODELS[name]
    facts = _stored_facts().get(name) or count_facts(name)
    weights = local_weights(name)
    return {
        "name": name,
        "summary": entry.summary,
        **facts,
        "weights": None if weights is None else str(weights),
        "needs_weights": facts["parameters"] > 0,
        "licence": entry.licence,
    }


def count_facts(name: str) -> dict[str, Any]:
    """Parameters, scale, frames and arithmetic, counted; takes a second or two."""
    with torch.no_grad(), CountOnly():
        model: Any = build_model(name)
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "scale": model.spec.scale,
        "frames": _frames(model.spec.context),
        "gflop_per_megapixel": round(gflop_per_megapixel(lambda: build_model(name)), 1),
    }


@cache
def _stored_facts() -> dict[str, dict[str, Any]]:
    """`count_facts` of all entries, which takes half a minute; see `benchmarks/arithmetic.py`."""
    return json.loads(files("vsrkit.models.zoo").joinpath("facts.json").read_text(encoding="utf-8"))


def _frames(context: Context) -> str:
    """The frames of one call, as a short text."""
    match context:
        case Window(size=1):
            return "1"
        case Window(size=size, emits="centre"):
            return f"{size} -> 1"
        case Window(size=size):
            return f"{size} -> {size}"
        case Segments(length=length, warmup=warmup):
            return f"segments {length}+{warmup}"
        case Carried():
            return "carried"


class CountOnly(TorchDispatchMode):
    """Count convolutions and matrix products instead of computing them; they return zeros.

    Weights are not initialised. Everything else runs, so that code which depends on values works;
    on a small clip that costs little. (The meta device takes seconds for a network of many small
    operations.)
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
        formula: Callable[..., int] | None = _FORMULAS.get(func.overloadpacket)
        if formula is None:
            return func(*args, **kwargs)
        shapes = tree_map(lambda x: x.to("meta") if isinstance(x, Tensor) else x, (args, kwargs))
        out = func(*shapes[0], **shapes[1])
        self.flop += formula(*args, **kwargs, out_val=out)
        return tree_map(lambda x: torch.zeros_like(x, device="cpu"), out)


def gflop_per_megapixel(build: Callable[[], nn.Module]) -> float:
    """Arithmetic for one output frame of a million LR pixels, two operations per multiply-add.

    Includes all frames of a window, of which only the centre is used, and a segment's warm-up.
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
    """How many frames the model gets in one call, and which of them are used."""
    match spec.context:
        case Window(size=size):
            return size, slice(size // 2, size // 2 + 1)
        case Segments(length=length, warmup=warmup):
            return length + 2 * warmup, slice(warmup, warmup + length)
        case Carried():
            return 4, slice(0, 4)
