"""Calibrate a model for int8, and compare int8 with float on the frames of a job."""

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from vsrkit.errors import VsrkitError
from vsrkit.hardware.device import Precision
from vsrkit.inference.calibration import Calibration
from vsrkit.inference.engine import Engine, upscale_frames
from vsrkit.models.layers.int8 import observed, quantisable
from vsrkit.models.weights import model_digest

# Root mean square of the difference to float, for values from 0 to 1, up to which int8 counts as
# right. Models that work have about 0.005, wrong integers 0.1 and more.
RIGHT = 0.025
ROUNDS = 3  # of which the best counts


def calibrate(
    model: nn.Module, clips: Iterable[Tensor], *, about: str, margin: float = 1.0
) -> Calibration:
    """Measure the ranges of a model in float32.

    model: on the CPU.
    clips: (T, 3, H, W) each, of one shot.
    about: what the clips are, in words.
    margin: factor on all ranges, for clips that differ from what the model will be used on.

    Raises VsrkitError if the model has no parts that could run in int8.
    """
    if not quantisable(model):
        raise VsrkitError(f"{type(model).__name__} has no parts that run in int8; use float32")
    copy, parts = observed(model)
    engine = Engine(copy, Precision("float32", channels_last=True), window_caches=None)
    for clip in clips:
        for _ in upscale_frames(clip, engine):
            pass
    ranges = {name: part.ranges.widened(margin) for name, part in parts.items()}
    return Calibration(weights=model_digest(model), ranges=ranges, clips=about)


@dataclass(frozen=True, slots=True)
class Comparison:
    """How an engine in int8 compares with the same one in floats."""

    speedup: float  # of the time that passes
    difference: float  # root mean square, for values from 0 to 1

    @property
    def is_right(self) -> bool:
        """Whether the difference is one of rounding."""
        return self.difference <= RIGHT


def compare_with_floats(engine: Engine, clip: Tensor) -> Comparison:
    """Run an int8 engine and the same one in floats on a clip (T, 3, H, W)."""
    floats = replace(
        engine, precision=engine.precision.floats, calibration=None, network=engine.model
    )
    results: dict[str, Tensor] = {}
    seconds = {"int8": math.inf, "floats": math.inf}
    for _ in range(ROUNDS):  # in turn, so that a slow phase of the machine affects both
        for name, which in (("int8", engine), ("floats", floats)):
            begin = time.perf_counter()
            results[name] = torch.stack(list(upscale_frames(clip, which)))
            seconds[name] = min(seconds[name], time.perf_counter() - begin)
    difference = (results["int8"] - results["floats"]).square().mean().sqrt()
    return Comparison(seconds["floats"] / seconds["int8"], float(difference.nan_to_num(1.0)))
