"""What `vsrkit inspect` does: watch a model on a few frames, draw it, explain it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from vsrkit.errors import VsrkitError
from vsrkit.hardware.device import resolve_device
from vsrkit.models.spec import Spec
from vsrkit.models.zoo import MODELS, load_model, local_weights
from vsrkit.research.inspect.explain import sections
from vsrkit.research.inspect.findings import look, numbers
from vsrkit.research.inspect.page import write_page
from vsrkit.research.inspect.sample import take_sample

SMALLEST_SIDE = 32
USUAL_SIDE, SIDE_OF_LARGE = 128, 64  # a large network would take many minutes on more
LARGE = 10_000_000  # parameters


def inspect_clip(
    source: Path,
    model: str,
    output: Path,
    *,
    frame: int | None = None,
    pixel: str | None = None,
    side: int | None = None,
    device: str = "cpu",
    on_progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> list[Path]:
    """Watch a model on a clip; write pictures, numbers.json and index.html into `output`.

    frame, pixel (`X,Y`) and side are those of `take_sample`; a large network is given a smaller
    square if none is named. Returns what was written.
    """
    device = resolve_device(device)
    if side is not None and side < SMALLEST_SIDE:
        raise VsrkitError(f"a side of {side} pixels shows too little; {SMALLEST_SIDE} is the least")
    place = None if pixel is None else parse_pixel(pixel)
    loaded, trained = _load(model)
    spec: Spec = loaded.spec  # type: ignore[assignment]
    size = sum(parameter.numel() for parameter in loaded.parameters())
    side = side or (SIDE_OF_LARGE if size > LARGE else USUAL_SIDE)
    sample = take_sample(source, spec, frame=frame, pixel=place, side=side)
    sample = replace(sample, clip=sample.clip.to(device))
    seen = look(loaded.to(device), sample, on_progress)
    name, number = Path(model).stem, sample.numbers[sample.centre]
    made = write_page(
        output,
        f"What {name} sees in frame {number} of {source.name}",
        sections(seen, name=name, source=source, trained=trained),
    )
    facts = {"model": name, "clip": str(source), "trained": trained, **numbers(seen)}
    made.append(output / "numbers.json")
    made[-1].write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return made


def parse_pixel(text: str) -> tuple[int, int]:
    """`X,Y` -> (x, y)."""
    try:
        x, y = (int(number) for number in text.split(","))
    except ValueError:
        raise VsrkitError(f"a pixel is X,Y in whole numbers, not {text!r}") from None
    return x, y


def _load(name: str) -> tuple[nn.Module, bool]:
    """A model, and whether its weights were trained; fresh ones are the same every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = load_model(name).eval()
    fresh = name in MODELS and local_weights(name) is None
    return model, not fresh or not any(True for _ in model.parameters())
