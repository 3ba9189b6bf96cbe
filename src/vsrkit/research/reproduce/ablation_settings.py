"""What decides an ablation, as the command gives it and as the plan keeps it."""

import logging
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from vsrkit.errors import VsrkitError
from vsrkit.hardware.precision import PrecisionName
from vsrkit.research.reproduce.variants import SMALL_VSRT, Family
from vsrkit.train.config import SETTINGS, Texts, Validated

log = logging.getLogger("vsrkit")

PATCH = SMALL_VSRT.patch
LEAST_FRAMES = 3  # the variant with the most of those that see a few frames only
SECONDS = {"s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True, kw_only=True, config=SETTINGS)
class Settings(Validated):
    """What decides an ablation; a folder holds one."""

    data: str
    model: Family = "vsrt"
    variants: Texts = ()  # names; empty: all
    seeds: int = 1
    budget_seconds: float = 1800.0  # for everything: all variants, all seeds, their validation
    steps: int = 0  # of each run; 0: as many as the budget holds
    batch_size: int = 2
    crop: int = 32
    frames: int = 0  # of a clip that one of ours learns from; 0: the usual; vsrt has its window
    learning_rate: float = 1e-3
    degradation: str = "bi"
    held_out: float = 0.2  # share of the clips, whole series, or of the end of a single clip
    validation: Texts = ()  # names of clips, instead of a share of them
    warm_start: Texts = ()  # weight files, as in a recipe
    precision: PrecisionName = "float32"  # `auto` could choose differently for each variant
    device: str = "cpu"
    workers: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.held_out < 1:
            raise VsrkitError(f"held_out is a share between 0 and 1, got {self.held_out}")
        if self.frames and (self.model == "vsrt" or self.frames < LEAST_FRAMES):
            raise VsrkitError(
                f"frames are for models of our own, {LEAST_FRAMES} or more (vsrt learns from "
                f"windows of five); got {self.frames} for {self.model}"
            )
        if self.model == "vsrt" and self.crop % PATCH:
            raise VsrkitError(
                f"vsrt attends to patches of {PATCH}: crop was {self.crop}, no multiple"
            )


def settings_from(*, data: Path | None, budget: str, **values: Any) -> Settings:
    """Settings from the words of a command line; without data, the bundled clip."""
    if data is None:
        data = Path(str(files("vsrkit").joinpath("assets", "city.mp4")))
        log.warning(
            "no --data: training on the bundled clip of a second, for show; "
            "its numbers say nothing about the variants"
        )
    content = {"data": str(data), "budget_seconds": seconds_of(budget), **values}
    return Settings(**content)


def seconds_of(text: str) -> float:
    """90s, 30m or 2h as seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip().lower())
    if not found:
        raise VsrkitError(f"expected a time like 90s, 30m or 2h, got {text!r}")
    return float(found[1]) * SECONDS[found[2]]
