"""Watch a model on a sample: everything that is shown, as values."""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn

from vsrkit.research.inspect.attention import Attention, attention_modules, attentions
from vsrkit.research.inspect.features import Block, blocks, feature_modules
from vsrkit.research.inspect.flows import Motion, estimates_flow, motions
from vsrkit.research.inspect.hooks import upscale_one, watching
from vsrkit.research.inspect.parts import Contribution, contributions
from vsrkit.research.inspect.sample import Sample


@dataclass(frozen=True, slots=True)
class Inspection:
    """What was seen of a model in one frame of a clip."""

    sample: Sample
    sr: Tensor  # (3, sH, sW)
    has_flow: bool
    motions: list[Motion]  # also none where the shot has no other frame
    attentions: list[Attention]
    blocks: list[Block]
    contributions: list[Contribution]


@torch.inference_mode()
def look(
    model: nn.Module,
    sample: Sample,
    on_progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Inspection:
    """Run the model once and note what happens inside, then once more without each of its parts.

    The sample lies on the model's device; what is returned lies on the CPU.
    """
    on_progress("looking inside", 0, 1)
    attending, changing = attention_modules(model), feature_modules(model)
    with watching(attending) as attention_calls, watching(changing) as feature_calls:
        model(sample.clip)
    sr = upscale_one(model, sample.clip, sample.centre)
    return Inspection(
        sample=sample,
        sr=sr.cpu(),
        has_flow=estimates_flow(model),
        motions=motions(model, sample),
        attentions=attentions(attending, attention_calls, sample),
        blocks=blocks(model, feature_calls, sample),
        contributions=contributions(model, sample, sr, on_progress),
    )


def numbers(inspection: Inspection) -> dict[str, Any]:
    """What can be said in numbers, for programs; a number that is infinite is written as "inf"."""
    sample = inspection.sample
    frames = sample.numbers
    x, y = (a + b for a, b in zip(sample.pixel, sample.corner, strict=True))
    return {
        "frame": frames[sample.centre],
        "frames": frames,
        "pixel": [x, y],
        "flow": [
            {
                "from": frames[motion.frame],
                "to": frames[motion.neighbour],
                "mean_speed": float(motion.flow.norm(dim=0).mean()),
                "psnr_warped": _finite(motion.psnr),
                "psnr_unwarped": _finite(motion.psnr_still),
            }
            for motion in inspection.motions
        ],
        "attention": [
            {
                "layer": seen.title,
                "frames": [frames[place] for place in seen.places],
                "shares": seen.shares,
                "patches": seen.patches,
                "of": seen.of,
            }
            for seen in inspection.attentions
        ],
        "parts": [
            {"without": part.title, "psnr": _finite(part.psnr), "rms": part.rms}
            for part in inspection.contributions
        ],
    }


def _finite(value: float) -> float | str:
    return value if isfinite(value) else str(value)
