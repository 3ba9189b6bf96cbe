"""Scoring a model on the validation clips, which the processes of a run share."""

import logging
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from vsrkit.data.degrade import degrader_named
from vsrkit.evaluate.metrics import mean_psnr_y
from vsrkit.evaluate.perceptual import load_lpips
from vsrkit.hardware.device import Precision
from vsrkit.inference.engine import Engine, upscale_frames
from vsrkit.models.zoo import save_model
from vsrkit.train.distill.refit import refit, refit_clips, remove_grid
from vsrkit.train.processes import ALONE, Processes
from vsrkit.train.run_setup import Run
from vsrkit.train.training_data import TrainingSource, ValidationClip, scale_of

log = logging.getLogger("vsrkit")

ValidationMetric: TypeAlias = Literal["psnr_y", "lpips"]


def validate(run: Run, clips: Sequence[ValidationClip]) -> None:
    """Score the averaged model; the main process saves it if it is the best so far.

    clips: the share of this process.
    """
    progress, done = run.progress, run.progress.step
    run.timer.start("validation")
    metric = run.config.validation_metric
    value, frame = score(
        run.ema.model, clips, run.precision, run.device, run.processes, metric=metric
    )
    seconds = run.timer.start("rest")
    run.log.scalars(
        done,
        **{metric: value},
        validation_seconds=seconds,
        validation_share=run.timer.share("validation"),
    )
    if (quality := signed(value, metric)) > progress.best:
        progress.best, progress.best_step = quality, done
    if run.processes.is_main:
        run.log.image(done, clips[0].name, frame)
        if progress.best_step == done:
            path = run.directory / "best.safetensors"
            about: dict[str, Any] = {"step": done, metric: value}
            save_model(path, run.ema.model, **about)


def signed(value: float, metric: ValidationMetric) -> float:
    """A score with the sign with which higher is better; the same function reverses it."""
    return -value if metric == "lpips" else value


def titled(value: float, metric: ValidationMetric) -> str:
    """A score with its unit, for messages."""
    return f"LPIPS {value:.4f}" if metric == "lpips" else f"{value:.3f} dB"


def score(
    model: nn.Module,
    clips: Sequence[ValidationClip],
    precision: Precision,
    device: str,
    processes: Processes = ALONE,
    *,
    metric: ValidationMetric = "psnr_y",
) -> tuple[float, Tensor]:
    """Mean score over the clips of all processes, and a frame (3, sH, sW).

    The frame is the middle one of the first clip of this process. The two frames at either end of
    a clip are not scored, if it has more than four.

    Args:
        model: on `device`.
        clips: the share of this process.
        precision: number type of the model.
        device: device of this process.
        processes: which share the clips; each gets the same result as one process alone.
        metric: psnr_y, PSNR on Y in dB, or lpips, of which every fourth frame is scored.
    """
    engine = Engine(model, precision, device, tile=None)
    scores, shown = [], torch.zeros(0)
    for number, clip in enumerate(clips):
        ends = 2 if len(clip.hr_pixels) > 4 else 0
        frames = list(upscale_frames(clip.lr, engine))
        kept = slice(ends, len(frames) - ends)
        hr = clip.hr_pixels[kept].float() / 255
        measure = mean_lpips if metric == "lpips" else mean_psnr_y
        scores.append(measure(frames[kept], hr))
        if number == 0:
            shown = frames[len(frames) // 2]
    scores = processes.join_shares(scores)
    return sum(scores) / len(scores), shown


@torch.inference_mode()
def mean_lpips(sr: Sequence[Tensor], hr: Sequence[Tensor] | Tensor) -> float:
    """Mean LPIPS of every fourth pair of frames (3, H, W), RGB in [0, 1]."""
    pairs = list(zip(sr, hr, strict=True))[::4]
    found = [load_lpips()(a.float().clamp(0, 1)[None].cpu(), b[None]) for a, b in pairs]
    return float(torch.cat(found).mean())


def refit_run(
    run: Run, sources: Sequence[TrainingSource], validation: Sequence[ValidationClip], clips: int
) -> None:
    """Refit the last convolution of the averaged model and write `refitted.safetensors`.

    Args:
        run: a finished run.
        sources: its training clips.
        validation: the share of this process of its validation clips.
        clips: number of validation clips of all processes.
    """
    model = run.ema.model
    training = [clip for source in sources for clip in source.clips]

    def fit() -> dict[str, Tensor]:
        degradation = degrader_named(run.config.refit, scale_of(run.config.model))
        fit_last = refit if run.config.refit_goal == "hr" else remove_grid
        fit_last(model, refit_clips(training, degradation), run.precision, run.device)
        return {name: value.cpu() for name, value in model.state_dict().items()}

    model.load_state_dict(run.processes.from_main(fit))
    target, result = run.directory / "refitted.safetensors", ""
    if clips:
        metric = run.config.validation_metric
        value, _ = score(model, validation, run.precision, run.device, run.processes, metric=metric)
        result = f", {titled(value, metric)}"
    if run.processes.is_main:
        save_model(target, model, step=run.progress.step)
        log.info("last convolution fitted to %d clips%s: %s", len(training), result, target)
