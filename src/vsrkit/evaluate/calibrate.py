"""Calibrate a model for int8 on clips, and measure on other ones what int8 costs in quality."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor, nn

from vsrkit.data.clips import OnProgress, find_clips
from vsrkit.data.degrade import degradation_named, degrade, mod_crop
from vsrkit.errors import DataError
from vsrkit.evaluate.metrics import mean_psnr_y
from vsrkit.hardware.device import Int8Name, Precision
from vsrkit.inference.calibration import Calibration
from vsrkit.inference.engine import Engine, make_engine, upscale_frames
from vsrkit.inference.int8 import calibrate
from vsrkit.models.layers.resample import middle
from vsrkit.models.spec import Spec
from vsrkit.video.read import open_source

HELD_OUT = 4  # every fourth clip measures the loss, the others the ranges
RANGE_FRAMES, RANGE_SIDE = 3, 320  # of each clip; pixels of the middle of HR
# A few frames of 256x256 pixels are not enough: the loss of a clip then changes by 0.01 dB with
# errors of the same size in other places.
LOSS_FRAMES, LOSS_SIDE = 12, 384


def calibrate_on_clips(
    model: nn.Module,
    folder: Path,
    *,
    degradations: Sequence[str] = ("bi",),
    held_out: Collection[str] = (),
    on_progress: OnProgress = lambda name, done, total: None,
) -> Calibration:
    """Measure the ranges of a model on some of the clips, the loss of int8 on the others.

    Args:
        model: with trained weights.
        folder: a folder of HR clips.
        degradations: how LR is made of HR, by name, each for all clips; the loss is the mean.
        held_out: names of the clips that measure the loss; every fourth one if there are none.
        on_progress: called with the name of a clip, the clips done and their total number.
    """
    clips = find_clips(folder)
    if len(clips) < 2:
        raise DataError(f"{folder} holds one clip; ranges and loss need at least two")
    if missing := set(held_out) - {clip.stem for clip in clips}:
        raise DataError(f"{folder} has no clip called {min(missing)}")
    measured = [clip for clip in clips if clip.stem in held_out]
    measured = measured or clips[HELD_OUT - 1 :: HELD_OUT] or clips[-1:]
    others = [clip for clip in clips if clip not in measured]
    if not others:
        raise DataError(f"all clips of {folder} are held out; the ranges need at least one")
    spec: Spec = model.spec  # type: ignore[assignment]
    scale = spec.scale
    kinds = [degradation_named(name, scale) for name in degradations]
    total = len(clips) * len(kinds)
    work = iter(range(total))

    def pairs(paths: Sequence[Path], frames: int, side: int) -> list[tuple[Tensor, Tensor]]:
        found = []
        for path in paths:
            hr = _middle(path, frames, side, scale)
            for kind in kinds:
                on_progress(path.stem, next(work), total)
                found.append((degrade(hr, kind), hr))
        return found

    about = f"{len(others)} clips ({', '.join(degradations)})"
    ranges = (lr for lr, _ in pairs(others, RANGE_FRAMES, RANGE_SIDE))
    calibration = calibrate(model, ranges, about=about)
    return replace(
        calibration, loss=_losses(model, calibration, pairs(measured, LOSS_FRAMES, LOSS_SIDE))
    )


def _middle(path: Path, frames: int, side: int, scale: int) -> Tensor:
    """The middle of the first frames of a clip, (T, 3, H, W)."""
    read = list(islice(open_source(path).frames(), frames))
    if not read:
        raise DataError(f"{path} has no frames")
    return mod_crop(torch.stack([middle(frame, side, side) for frame in read]), scale)


def _losses(
    model: nn.Module, calibration: Calibration, pairs: Sequence[tuple[Tensor, Tensor]]
) -> dict[Int8Name, float]:
    """Mean loss of PSNR in dB of each kind of int8, with float32 for the rest of the model."""

    def scores(int8: Int8Name | None) -> list[float]:
        precision = Precision("float32", channels_last=True, int8=int8)
        engine: Engine = make_engine(model, precision=precision, calibration=calibration)
        return [mean_psnr_y(upscale_frames(lr, engine), hr) for lr, hr in pairs]

    reference = scores(None)
    kinds: tuple[Int8Name, ...] = get_args(Int8Name)
    return {
        kind: sum(a - b for a, b in zip(reference, scores(kind), strict=True)) / len(pairs)
        for kind in kinds
    }
