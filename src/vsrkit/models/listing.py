"""What `vsrkit models` shows: size, frames, arithmetic, weights and licence of every entry."""

from typing import Any

import torch
from rich.table import Table
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vsrkit.models import MODELS, build_model, weights_at_hand
from vsrkit.models.spec import Carried, Segments, Window


def describe_all() -> list[dict[str, Any]]:
    """One plain dictionary per entry, in the table's order."""
    return [describe(name) for name in MODELS]


def describe(name: str) -> dict[str, Any]:
    """The facts of one entry; built without memory for its weights."""
    entry = MODELS[name]
    with torch.device("meta"):
        model = build_model(name).eval()
    parameters = sum(p.numel() for p in model.parameters())
    at_hand = weights_at_hand(name)
    return {
        "name": name,
        "summary": entry.summary,
        "parameters": parameters,
        "frames": frames(model),
        "gflop_per_megapixel": round(gflop_per_megapixel(model), 1),
        "weights": None if at_hand is None else str(at_hand),
        "needs_weights": parameters > 0,
        "licence": entry.licence,
    }


def frames(model: nn.Module) -> str:
    """How the model wants its frames, in a few words."""
    match model.spec.context:  # type: ignore[union-attr]
        case Window(size=1):
            return "1"
        case Window(size=size, emits="centre"):
            return f"{size}, centre"
        case Window(size=size):
            return f"{size}, all"
        case Segments(length=length, warmup=warmup):
            return f"segments of {length} + {warmup}"
        case Carried():
            return "carried"
    raise TypeError(f"{type(model).__name__} has no context")


def gflop_per_megapixel(model: nn.Module) -> float:
    """Arithmetic (two per multiply-add) for one output frame of a million LR pixels.

    Counted on shapes alone, on a small clip. A window pays for all its frames when only the
    centre is kept, a segment for its warm-up.
    """
    spec: Any = model.spec  # type: ignore[union-attr]
    side = spec.tile or 64
    match spec.context:
        case Window(size=size):
            length, keep = size, slice(size // 2, size // 2 + 1)
        case Segments(length=length_, warmup=warmup):
            length, keep = length_ + 2 * warmup, slice(warmup, warmup + length_)
        case _:
            length, keep = 4, slice(0, 4)
    clip = torch.zeros(1, length, 3, side, side, device="meta")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        if isinstance(spec.context, Window) and spec.context.emits == "all":
            model(clip, keep=keep)
        elif isinstance(spec.context, Segments):
            model(clip, keep=keep)
        else:
            model(clip)
    megapixels = (keep.stop - keep.start) * side * side / 1e6
    return counter.get_total_flops() / megapixels / 1e9


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows as a table for people."""
    view = Table(box=None, pad_edge=False, header_style="bold")
    view.add_column("model")
    view.add_column("parameters", justify="right")
    view.add_column("frames")
    view.add_column("GFLOP / LR megapixel", justify="right")
    view.add_column("weights")
    view.add_column("licence")
    view.add_column("what it is")
    for row in rows:
        weights = "at hand" if row["weights"] else ("not at hand" if row["needs_weights"] else "-")
        view.add_row(
            row["name"],
            f"{row['parameters']:,}",
            row["frames"],
            f"{row['gflop_per_megapixel']:,.0f}",
            weights,
            row["licence"],
            row["summary"],
        )
    return view
