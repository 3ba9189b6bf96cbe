"""What `vsrkit models` shows: size, frames, arithmetic, weights and licence of every entry."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

import torch
from rich.table import Table

from vsrkit.models.spec import Carried, Context, Segments, Window
from vsrkit.models.zoo import MODELS, build_model, local_weights
from vsrkit.models.zoo.counting import CountOnly, gflop_per_megapixel


def describe_all() -> list[dict[str, Any]]:
    """One plain dictionary per entry, in the table's order."""
    return [describe(name) for name in MODELS]


def describe(name: str) -> dict[str, Any]:
    """What is known of one entry."""
    entry = MODELS[name]
    facts = _stored_facts().get(name) or count_facts(name)
    at_hand = local_weights(name)
    return {
        "name": name,
        "summary": entry.summary,
        **facts,
        "weights": None if at_hand is None else str(at_hand),
        "needs_weights": facts["parameters"] > 0,
        "licence": entry.licence,
    }


def count_facts(name: str) -> dict[str, Any]:
    """What follows from the network itself; takes a second or two."""
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
    """What `benchmarks/arithmetic.py` counted: `vsrkit models` should not take half a minute."""
    return json.loads(files("vsrkit.models.zoo").joinpath("facts.json").read_text(encoding="utf-8"))


def _frames(context: Context) -> str:
    """How a model wants its frames, in a few words."""
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


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows as a table for people."""
    view = Table(
        box=None,
        pad_edge=False,
        header_style="bold",
        caption="GFLOP per MP: operations per output frame and megapixel of input",
    )
    view.add_column("model", no_wrap=True)
    view.add_column("parameters", justify="right", no_wrap=True)
    view.add_column("frames", no_wrap=True)
    view.add_column("GFLOP per MP", justify="right")
    view.add_column("weights installed")
    view.add_column("licence")
    for row in rows:
        weights = "yes" if row["weights"] else ("no" if row["needs_weights"] else "-")
        view.add_row(
            row["name"],
            f"{row['parameters']:,}",
            row["frames"],
            f"{row['gflop_per_megapixel']:,.0f}",
            weights,
            row["licence"],
        )
    return view
