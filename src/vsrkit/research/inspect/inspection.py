"""Inspection of a model on one frame of a clip: the values that the page shows."""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn

from vsrkit.models.anatomy import Anatomy
from vsrkit.research.inspect.attention import Attention, attention_modules, attentions
from vsrkit.research.inspect.clip_sample import Sample
from vsrkit.research.inspect.features import Block, feature_blocks, feature_modules, record_calls
from vsrkit.research.inspect.flows import Motion, motions
from vsrkit.research.inspect.switches import Contribution, contributions, upscale_one


@dataclass(frozen=True, slots=True)
class Inspection:
    """The results of `inspect_model`."""

    sample: Sample
    sr: Tensor  # (3, sH, sW)
    has_flow: bool
    motions: list[Motion]  # empty too if the shot has no other frame
    attentions: list[Attention]
    blocks: list[Block]
    contributions: list[Contribution]


@torch.inference_mode()
def inspect_model(
    model: nn.Module,
    sample: Sample,
    on_progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Inspection:
    """Run a model once with its modules recorded, then once without each of its parts.

    model: a model of the zoo, in eval mode.
    sample: the clip, on the device of the model, with the chosen frame and pixel.
    on_progress: called with a description, the number of finished runs, and of all runs.

    Returns tensors on the CPU.
    """
    on_progress("recording", 0, 1)
    anatomy: Anatomy = model.anatomy  # type: ignore[assignment]
    attending, stages = attention_modules(model, anatomy), feature_modules(model, anatomy)
    with record_calls(attending) as attention_calls, record_calls(stages) as feature_calls:
        model(sample.clip)
    sr = upscale_one(model, sample.clip, sample.centre)
    return Inspection(
        sample=sample,
        sr=sr.cpu(),
        has_flow=anatomy.flow is not None,
        motions=motions(anatomy.flow, sample),
        attentions=attentions(anatomy, attending, attention_calls, sample),
        blocks=feature_blocks(anatomy, feature_calls, sample),
        contributions=contributions(model, anatomy, sample, sr, on_progress),
    )


def as_json(inspection: Inspection) -> dict[str, Any]:
    """The numbers of an inspection, for numbers.json; infinity is written as "inf"."""
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
                "layer": layer.title,
                "frames": [frames[place] for place in layer.places],
                "shares": layer.shares,
                "patches": layer.patches,
                "of": layer.of,
            }
            for layer in inspection.attentions
        ],
        "parts": [
            {"without": part.title, "psnr": _finite(part.psnr), "rms": part.rms}
            for part in inspection.contributions
        ],
    }


def _finite(value: float) -> float | str:
    return value if isfinite(value) else str(value)
