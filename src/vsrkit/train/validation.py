"""Scoring a model on the validation clips, which the processes of a run share."""

import logging
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vsrkit.data.random_degradation import degrader_named
from vsrkit.evaluate.metrics import mean_psnr_y
from vsrkit.hardware.device import Precision
from vsrkit.inference.engine import Engine, upscale_frames
from vsrkit.models.zoo import save_model
from vsrkit.train.distill.refit import refit, refit_clips
from vsrkit.train.processes import ALONE, Processes
from vsrkit.train.run_setup import Run
from vsrkit.train.training_data import TrainingSource, ValidationClip, scale_of

log = logging.getLogger("vsrkit")


def validate(run: Run, clips: Sequence[ValidationClip]) -> None:
    """Score the averaged model; the main process saves it if it is the best so far.

    clips: the share of this process.
    """
    progress, done = run.progress, run.progress.step
    run.timer.start("validation")
    psnr_y, frame = score(run.ema.model, clips, run.precision, run.device, run.processes)
    seconds = run.timer.start("rest")
    run.log.scalars(
        done,
        psnr_y=psnr_y,
        validation_seconds=seconds,
        validation_share=run.timer.share("validation"),
    )
    if psnr_y > progress.best:
        progress.best, progress.best_step = psnr_y, done
    if run.processes.is_main:
        run.log.image(done, clips[0].name, frame)
        if progress.best_step == done:
            path = run.directory / "best.safetensors"
            save_model(path, run.ema.model, step=done, psnr_y=psnr_y)


def score(
    model: nn.Module,
    clips: Sequence[ValidationClip],
    precision: Precision,
    device: str,
    processes: Processes = ALONE,
) -> tuple[float, Tensor]:
    """Mean PSNR on Y in dB over the clips of all processes, and a frame (3, sH, sW).

    The frame is the middle one of the first clip of this process. The two frames at either end of
    a clip are not scored, if it has more than four.

    Args:
        model: on `device`.
        clips: the share of this process.
        precision: number type of the model.
        device: device of this process.
        processes: which share the clips; each gets the same result as one process alone.
    """
    engine = Engine(model, precision, device, tile=None)
    scores, shown = [], torch.zeros(0)
    for number, clip in enumerate(clips):
        ends = 2 if len(clip.hr_pixels) > 4 else 0
        frames = list(upscale_frames(clip.lr, engine))
        kept = slice(ends, len(frames) - ends)
        hr = (frame.float() / 255 for frame in clip.hr_pixels[kept])
        scores.append(mean_psnr_y(frames[kept], hr))
        if number == 0:
            shown = frames[len(frames) // 2]
    scores = processes.join_shares(scores)
    return sum(scores) / len(scores), shown


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
        refit(model, refit_clips(training, degradation), run.precision, run.device)
        return {name: value.cpu() for name, value in model.state_dict().items()}

    model.load_state_dict(run.processes.from_main(fit))
    target, result = run.directory / "refitted.safetensors", ""
    if clips:
        psnr_y, _ = score(model, validation, run.precision, run.device, run.processes)
        result = f", {psnr_y:.3f} dB"
    if run.processes.is_main:
        save_model(target, model, step=run.progress.step)
        log.info("last convolution fitted to %d clips%s: %s", len(training), result, target)
