"""Training: `train(config)` reads top to bottom as what happens."""

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from vsrkit.data.clips import OnProgress
from vsrkit.data.random_degradation import degrader_named
from vsrkit.errors import StoppedError
from vsrkit.hardware.memory import UNLIMITED, keep_freed_memory
from vsrkit.hardware.precision import Precision, resolve_precision, set_memory_layout
from vsrkit.models.spec import Spec, Window
from vsrkit.models.zoo import MODELS, build_model, load_model, save_model
from vsrkit.train.batches import Batch, Batches, Share, prefetched
from vsrkit.train.checkpoint import STATE, Progress, load_state, save_state, write_json
from vsrkit.train.clock import Clock
from vsrkit.train.config import ConfigError, TrainConfig, to_dict
from vsrkit.train.distill.distillation import Lesson, pupil_of, teacher_named
from vsrkit.train.distill.refit import last_convolution, pieces_of, refit
from vsrkit.train.diverged import check_finite, check_weights
from vsrkit.train.ema import Ema
from vsrkit.train.losses import PixelLoss, PsnrLoss
from vsrkit.train.optimizers import make_optimizers, set_learning_rate
from vsrkit.train.processes import (
    LostProcessError,
    Processes,
    Stop,
    joined_processes,
    own_device,
    stop_by_signal,
)
from vsrkit.train.recompute import recompute_activations
from vsrkit.train.report import Report
from vsrkit.train.schedules import learning_rate
from vsrkit.train.sources import batches_of, open_data
from vsrkit.train.validate import Held, score
from vsrkit.train.warm_start import lay_out_to_train, warm_start

log = logging.getLogger("vsrkit")

NARROWED_BY = 16  # clips that show which of a teacher's channels matter


def train(
    config: TrainConfig, *, resume: bool = False, on_progress: OnProgress | None = None
) -> Progress:
    """Train a model as `config` says; its files go to `config.run_dir` (see `checkpoint`)."""
    with joined_processes(config.device) as processes:
        with processes.first_goes_first():
            shares, held = open_data(config, on_progress)
        run = start_run(config, processes, shares, resume=resume)
        if processes.is_first:
            clips = f"{sum(len(share.clips) for share in shares)} clips, {len(held)} held out"
            log.info("%s in %s, %s", config.model, run.precision, clips)
        batches = batches_of(run.config, shares, processes)
        with stop_by_signal() as stop:  # until here there is nothing to finish or to save
            try:
                progress = run_steps(run, batches, held, stop)
            except RuntimeError as error:
                if processes.count == 1:
                    raise
                save_run(run)  # the step that failed had not begun to change the weights
                raise LostProcessError(
                    f"another process was lost at step {run.progress.step} "
                    f"({_first_line(error)}); the state is saved: go on with --resume"
                ) from error
            finally:
                run.report.close()
        if config.refit:
            refit_run(run, shares, held)
        return progress


@dataclass(slots=True)
class Run:
    """A model in training, and what belongs to it."""

    config: TrainConfig
    processes: Processes
    device: str
    precision: Precision
    model: nn.Module
    shared: nn.Module  # the same with its loss, and gradients averaged over all processes
    ema: Ema
    optimizers: list[Optimizer]
    progress: Progress
    report: Report

    @property
    def directory(self) -> Path:
        """Where its files go."""
        return Path(self.config.run_dir)


def start_run(
    config: TrainConfig, processes: Processes, shares: Sequence[Share], *, resume: bool
) -> Run:
    """Build everything, and put it back as it was if the run is to be resumed."""
    run_dir, device = Path(config.run_dir), own_device(config.device)
    state = run_dir / STATE
    if state.exists() and not resume:
        raise ConfigError(f"{run_dir} holds a run already; use --resume or another run_dir")
    keep_freed_memory(UNLIMITED)  # the next step needs as much again
    torch.manual_seed(config.seed)
    model = starting_model(config, shares).to(device)
    config = fitted(config, model.spec)  # type: ignore[arg-type]
    if config.refit:  # hours later would be too late to find out
        degrader_named(config.refit)
        last_convolution(model)
    precision = resolve_precision(config.precision, model, device)
    lay_out_to_train(model, precision)
    ema = Ema(model, config.ema_decay)
    optimizers = make_optimizers(
        model,
        name=config.optimizer,
        betas=config.betas,
        flow_scale=config.flow_learning_rate_scale,
    )
    progress = load_state(state, model, ema.model, optimizers) if resume else Progress()
    if config.activation_checkpointing:
        recompute_activations(model)
    if processes.is_first:
        write_json(run_dir / "config.json", to_dict(config))
    where = run_dir if processes.is_first else None
    report = Report(where, tensorboard=config.tensorboard, after=progress.step)
    shared = processes.shared(with_loss(model, config, precision, device))
    return Run(
        config, processes, device, precision, model, shared, ema, optimizers, progress, report
    )


def run_steps(run: Run, batches: Batches, held: Sequence[Held], stop: Stop) -> Progress:
    """The loop."""
    config, progress, report = run.config, run.progress, run.report
    clock = Clock()
    losses: list[Tensor] = []
    todo = range(progress.step, config.steps)
    made = prefetched(batches.step, todo, workers=config.workers)
    for step, parts in zip(todo, made, strict=True):
        clock.start("work")
        rate = learning_rate(config, step)
        set_learning_rate(run.optimizers, rate, flow_frozen=step < config.flow_frozen_steps)
        torch.manual_seed(config.seed + step)  # should a model draw numbers: the same on resume
        losses.append(compute_gradients(run, parts))
        if config.clip_gradients:
            clip_grad_norm_(run.model.parameters(), config.clip_gradients)
        for optimizer in run.optimizers:
            optimizer.step()
        clock.start("rest")
        run.ema.update(run.model, step)
        progress.step = done = step + 1
        last = done == config.steps or bool(stop.reason)

        if done % config.log_every == 0 or last:
            mean = check_finite(losses, done, run.directory)
            losses.clear()
            seconds, outside = clock.lap()
            report.scalars(done, loss=mean, learning_rate=rate, seconds=seconds, outside=outside)
        if held and (done % config.validate_every == 0 or done == config.steps):
            clock.start("validation")
            validate(run, held)
            clock.start("rest")
        if done % config.save_every == 0 or last:
            check_finite(losses, done, run.directory)
            check_weights(run.model, done, run.directory)
            save_run(run)
        if stop.reason:
            raise StoppedError(f"stopped by {stop.reason} after step {done}; go on with --resume")
        clock.start("data")
    if run.processes.is_first:
        log.info("%s", summary(progress, run.directory))
    return progress


def compute_gradients(run: Run, parts: Sequence[Batch]) -> Tensor:
    """Gradients of the mean loss over the parts of a step (and over all processes); the loss."""
    run.model.zero_grad(set_to_none=True)
    total = torch.zeros((), device=run.device)
    for number, (lr, goal) in enumerate(parts, start=1):
        lr, goal = lr.to(run.device), goal.to(run.device)
        last = number == len(parts)
        with _not_yet_averaged(run.shared, wait=not last):
            with torch.autocast(lr.device.type, torch.bfloat16, run.precision.dtype == "bfloat16"):
                loss = run.shared(lr, goal)
            (loss / len(parts)).backward()
        total += loss.detach() / len(parts)
    return total


def _not_yet_averaged(model: nn.Module, *, wait: bool) -> AbstractContextManager[None]:
    """Inside, gradients only add up here: processes need to talk once a step, not once a part."""
    if wait and isinstance(model, DistributedDataParallel):
        return model.no_sync()
    return nullcontext()


def validate(run: Run, pieces: Sequence[Held]) -> None:
    """Score the average, keep it if it is the best so far; the other processes wait."""
    if not run.processes.is_first:
        return
    progress, done = run.progress, run.progress.step
    psnr, frame = score(run.ema.model, pieces, run.precision, run.device)
    run.report.scalars(done, psnr_y=psnr)
    run.report.picture(done, pieces[0].name, frame)
    if psnr > progress.best:
        progress.best, progress.best_step = psnr, done
        save_model(run.directory / "best.safetensors", run.ema.model, step=done, psnr_y=psnr)


def refit_run(run: Run, shares: Sequence[Share], held: Sequence[Held]) -> None:
    """Fit the average's last convolution anew and write the model beside the others."""
    if not run.processes.is_first:
        return
    model, how = run.ema.model, degrader_named(run.config.refit)
    clips = [clip for share in shares for clip in share.clips]
    refit(model, pieces_of(clips, how), run.precision, run.device)
    target = run.directory / "refitted.safetensors"
    save_model(target, model, step=run.progress.step)
    found = f", {score(model, held, run.precision, run.device)[0]:.3f} dB" if held else ""
    log.info("last convolution fitted to %d clips%s: %s", len(clips), found, target)


def save_run(run: Run) -> None:
    """Write the state and the model, if this is the process that writes."""
    if run.processes.is_first:
        state = run.directory / STATE
        save_state(state, run.model, run.ema.model, run.optimizers, run.progress)
        save_model(run.directory / "last.safetensors", run.ema.model, step=run.progress.step)


def starting_model(config: TrainConfig, shares: Sequence[Share]) -> nn.Module:
    """The model with a file's weights, a teacher's or fresh ones, then those of the warm starts."""
    if config.model not in MODELS:
        model = load_model(config.model)
    elif config.learns_features:
        pairs = batches_of(replace(config, batch_size=NARROWED_BY, accumulate=1), shares)
        lr, _ = pairs.step(0)[0]
        model = pupil_of(teacher_named(config.teacher), build_model(config.model).config, lr)
    else:
        model = build_model(config.model)
    for source in config.warm_start:
        warm_start(model, source)
    return model.train()


def with_loss(
    model: nn.Module, config: TrainConfig, precision: Precision, device: str
) -> nn.Module:
    """The model and what it is to make less."""
    if config.learns_features:
        teacher = teacher_named(config.teacher).to(device)
        set_memory_layout(teacher, precision)
        notes = Path(config.run_dir) / "answers" if config.distinct_clips else None
        return Lesson(model, teacher, weight=config.teacher_weight, notes=notes)
    if config.loss == "psnr":
        return PsnrLoss(model, steadiness=config.steadiness)
    return PixelLoss(model, config.loss_reduction)


def fitted(config: TrainConfig, spec: Spec) -> TrainConfig:
    """The config with the clip's length and crop changed where the model takes no other."""
    frames, crop = max(config.frames, spec.min_frames), max(config.crop, spec.minimum)
    if isinstance(spec.context, Window) and spec.context.size > 1:
        frames = spec.context.size
    crop = spec.tile or -(-crop // spec.multiple) * spec.multiple
    if (frames, crop) != (config.frames, config.crop):
        log.info("the model takes %d frames of %dx%d; the recipe is fitted", frames, crop, crop)
    return replace(config, frames=frames, crop=crop)


def summary(progress: Progress, run_dir: Path) -> str:
    """The last line of a run."""
    best = (
        f", best {progress.best:.3f} dB at step {progress.best_step}" if progress.best_step else ""
    )
    return f"{progress.step} steps done{best}; weights in {run_dir}"


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0][:120] if str(error) else type(error).__name__
