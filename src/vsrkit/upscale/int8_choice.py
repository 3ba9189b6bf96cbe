"""Decide whether a job runs in int8: calibrated, faster where that is asked for, and checked."""

import logging
from dataclasses import replace
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor, nn

from vsrkit.errors import VsrkitError
from vsrkit.hardware.device import Precision, measured_once
from vsrkit.hardware.int8 import int8_fault
from vsrkit.inference.calibration import Calibration, find_calibration
from vsrkit.inference.engine import make_engine
from vsrkit.inference.int8 import Comparison, calibrate, compare_with_floats
from vsrkit.inference.shots import mark_cuts
from vsrkit.models.layers.resample import middle
from vsrkit.upscale.options import ResolvedOptions
from vsrkit.video.read import Source

log = logging.getLogger("vsrkit")

SHOT_FRAMES = 6  # of the first shot, of which ranges are measured if none are stored
SHOT_SIDE = 192  # pixels of their middle
SHOT_MARGIN = 1.25  # other shots can have larger values
CHECKED_FRAMES = 2
CHECKED_SIDE = 128
# Times as fast as floats, from which `auto` takes int8. Beside bfloat16 int8-exact gains 1.05 to
# 1.10, so little that two runs of one job could choose differently.
WORTHWHILE = 1.25

Choice = tuple[Precision, Calibration | None]


def prepare_int8(
    source: Source,
    model: nn.Module,
    precision: Precision,
    *,
    device: str,
    earlier: ResolvedOptions | None = None,
) -> Choice:
    """The ranges for a job in int8; its floats if int8 does not work here.

    source: its first frames are used for ranges that are not stored, and for the check.
    precision: with int8.
    device: as `resolve_device` returns it.
    earlier: options of an unfinished run of the same job, whose ranges are kept.
    """
    if device != "cpu":
        raise VsrkitError(
            f"--precision {precision.int8} runs on the CPU only; add --device cpu, or choose "
            "another precision"
        )
    if fault := int8_fault():
        log.warning("%s: computes in %s", fault, precision.dtype)
        return precision.floats, None
    calibration = earlier.calibration if earlier else None
    calibration = calibration or find_calibration(model) or _calibrate(source, model)
    if (found := _compare(source, model, precision, calibration)) and not found.is_right:
        log.warning(
            "int8 differs from %s by %.2f in the first frames, more than rounding does: "
            "computes in %s",
            *(precision.dtype, found.difference, precision.dtype),
        )
        return precision.floats, None
    return precision, calibration


def choose_fastest(
    source: Source, model: nn.Module, floats: Precision, calibration: Calibration
) -> Choice:
    """int8 if its loss is known to be negligible and it is faster on the first frames.

    floats: the fastest floats of the model.
    """
    kinds = calibration.negligible
    if not kinds or int8_fault():
        return floats, None
    beside = floats if floats.channels_last else replace(floats, channels_last=True)
    gains: dict[Precision, float] = {}
    for kind in kinds:
        precision = replace(beside, int8=kind)
        if (comparison := _compare(source, model, precision, calibration)) and comparison.is_right:
            key = f"{precision} to {floats} of {calibration.weights}"
            gains[precision] = measured_once(key, lambda c=comparison: c.speedup)  # type: ignore[misc]
    best = max(gains, key=lambda precision: gains[precision], default=floats)
    if best.int8 is None or gains[best] < WORTHWHILE:
        return floats, None
    log.warning(
        "computes in %s: %.2f times as fast as %s, at a loss of %.3f dB; "
        "--precision %s avoids that",
        *(best, gains[best], floats.dtype, calibration.loss[best.int8], floats.dtype),
    )
    return best, calibration


def _compare(
    source: Source, model: nn.Module, precision: Precision, calibration: Calibration
) -> Comparison | None:
    """int8 and floats on the first frames; None if these can be read only once."""
    if _is_pipe(source):
        return None
    clip = _first_frames(source, CHECKED_FRAMES, CHECKED_SIDE)
    if not len(clip):
        return None
    engine = make_engine(model, precision=precision, calibration=calibration)
    return compare_with_floats(engine, clip)


def _calibrate(source: Source, model: nn.Module) -> Calibration:
    if _is_pipe(source):
        raise VsrkitError(
            "int8 has no calibration for this model, and a pipe can be read only once; make one "
            "by `vsrkit weights calibrate`, or choose another precision"
        )
    clip = _first_frames(source, SHOT_FRAMES, SHOT_SIDE)
    about = f"the first {len(clip)} frames of the input"
    log.warning("int8 has no stored calibration for this model: ranges are those of %s", about)
    return calibrate(model, [clip], about=about, margin=SHOT_MARGIN)


def _is_pipe(source: Source) -> bool:
    return not source.images and source.path == Path("-")


def _first_frames(source: Source, count: int, side: int) -> Tensor:
    """The middle of the first frames of the first shot, (T, 3, H, W)."""
    frames: list[Tensor] = []
    for frame, begins_shot in mark_cuts(islice(source.frames(), count)):
        if begins_shot and frames:
            break
        frames.append(middle(frame, side, side).clone())
    return torch.stack(frames) if frames else torch.empty(0)
