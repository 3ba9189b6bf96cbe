"""Choices of a job: those of the user checked, those of an earlier run kept."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

import torch
from torch import nn

from vsrkit.errors import VsrkitError
from vsrkit.hardware.precision import Precision, PrecisionName
from vsrkit.inference.engine import Engine
from vsrkit.models.spec import Carried, Spec, Window
from vsrkit.video.probe import VideoInfo

Quality: TypeAlias = Literal["best", "balanced", "fast"]
INSTEAD_OF = " instead of "


@dataclass(frozen=True, slots=True)
class Choices:
    """What an earlier run of the same job chose by itself and a later one keeps."""

    precision: Precision | None = None
    tile: int | None = None  # 0 for whole frames
    too_large: int | None = None  # the tile that memory did not suffice for
    codec: str | None = None

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> "Choices":
        """Read them from a manifest's settings."""
        if not settings:
            return cls()
        dtype, _, layout = settings.get("precision", "").partition(" ")
        known = dtype in ("float32", "bfloat16")
        tile, _, too_large = settings.get("tile", "0").partition(INSTEAD_OF)
        return cls(
            Precision(dtype, layout == "channels-last") if known else None,  # type: ignore[arg-type]
            int(tile),
            int(too_large) if too_large else None,
            settings.get("codec"),
        )

    def tile_for(self, demanded: int | None) -> int | None:
        """The tile to run with: what was demanded, unless that was too large before."""
        return self.tile if demanded in (None, self.too_large) else demanded

    def describe_tile(self, tile: int) -> str:
        """For a manifest."""
        instead = self.too_large is not None and tile == self.tile
        return f"{tile}{INSTEAD_OF}{self.too_large}" if instead else str(tile)


def with_smaller_tile(settings: Mapping[str, str], tile: int) -> dict[str, str]:
    """A manifest's settings after memory did not suffice for the tile that was demanded."""
    first = settings["tile"].partition(INSTEAD_OF)
    return {**settings, "tile": f"{tile}{INSTEAD_OF}{first[2] or first[0]}"}


def choose_precision(demanded: PrecisionName, chosen: Choices) -> PrecisionName | Precision:
    """What was demanded; `auto` does not change its mind between runs of a job."""
    if chosen.precision and demanded in ("auto", chosen.precision.dtype):
        return chosen.precision
    return demanded


def output_size(
    info: VideoInfo, model: nn.Module, *, scale: int | None, height: int | None
) -> tuple[int, int]:
    """(height, width) of the result."""
    spec: Spec = model.spec  # type: ignore[assignment]
    if scale is not None and height is not None:
        raise VsrkitError("give --scale or --height, not both")
    if height is not None:
        # Of a turned picture what is stored as its width is shown as its height.
        lying = bool(info.rotation % 180)
        lines, across = (info.width, info.height) if lying else (info.height, info.width)
        if not 16 <= height <= 16 * lines:
            raise VsrkitError(f"--height {height} is out of range for {lines} lines")
        width = max(2, 2 * round(across * height / lines / 2))
        return (width, height) if lying else (height, width)
    factor = spec.scale if scale is None else scale
    if scale is not None and not 1 <= scale <= spec.scale:
        raise VsrkitError(f"--scale {scale} is not possible: this model enlarges by {spec.scale}")
    return info.height * factor, info.width * factor


def stride_of(spec: Spec, quality: Quality) -> int:
    """Frames to keep of each window. Only models that give back whole windows have a choice."""
    if quality not in get_args(Quality):
        raise VsrkitError(f"--quality is {', '.join(get_args(Quality))}, not {quality!r}")
    if not isinstance(spec.context, Window) or spec.context.emits != "all":
        return 1
    size = spec.context.size
    return {"best": 1, "balanced": (size + 1) // 2, "fast": size}[quality]


def engines_for(engine: Engine, workers: int) -> list[Engine]:
    """One engine for each process; several GPUs are used in turn."""
    if isinstance(engine.spec.context, Carried) and workers > 1:
        raise VsrkitError(
            "this model hands a state from frame to frame; it runs in one process (--workers 1)"
        )
    if workers == 1:
        return [engine]
    count = torch.cuda.device_count() if engine.device == "cuda" else 0
    if count < 2:
        return [engine] * workers
    places = [f"cuda:{number % count}" for number in range(workers)]
    return [
        replace(engine, model=copy.deepcopy(engine.model).to(place), device=place)
        for place in places
    ]
