"""The training loop."""

import logging
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from vsrkit.data.clips import OnProgress
from vsrkit.errors import StoppedError
from vsrkit.hardware.device import autocast
from vsrkit.models.weights import write_checkpoint
from vsrkit.models.zoo import save_model
from vsrkit.train.config import TrainConfig
from vsrkit.train.divergence import GRADIENT, RecentLosses, check_weights
from vsrkit.train.losses import Terms
from vsrkit.train.optimizers import learning_rate, set_learning_rate
from vsrkit.train.processes import (
    LostProcessError,
    Processes,
    StopRequest,
    join_processes,
    stop_by_signal,
)
from vsrkit.train.run_files import DISCRIMINATOR, TrainingProgress
from vsrkit.train.run_setup import Plan, Run, plan_run, start_run
from vsrkit.train.training_data import (
    Batch,
    Batches,
    ValidationClip,
    make_batches,
    open_data,
    prefetch,
)
from vsrkit.train.validation import refit_run, signed, titled, validate
from vsrkit.train.warm_start import weight_file

log = logging.getLogger("vsrkit")


def train(
    config: TrainConfig, *, resume: bool = False, on_progress: OnProgress | None = None
) -> TrainingProgress:
    """Train a model; the files in `config.run_dir` are described in `run_files`.

    Args:
        config: all settings of the run.
        resume: continue from the last checkpoint in `config.run_dir`.
        on_progress: called while clips are decoded, with the name of the clip, the clips done and
            their number.
    """
    with join_processes(config.device) as processes:
        return _train(config, processes, resume=resume, on_progress=on_progress)


def _train(
    config: TrainConfig, processes: Processes, *, resume: bool, on_progress: OnProgress | None
) -> TrainingProgress:
    """Train with these processes; nothing that refers to them is left afterwards."""
    plan = plan_run(config, processes, resume=resume)
    if processes.is_main:
        log_plan(plan, config)
    with processes.main_process_first():
        for source in () if resume else config.warm_start:
            weight_file(source)  # downloads it, if it is missing
        sources, validation = open_data(plan.config, on_progress, processes)
    run = start_run(plan, processes, sources, resume=resume)
    held_out = sum(processes.gather(len(validation)))
    if processes.is_main:
        clips = sum(len(source.clips) for source in sources)
        log.info("%d training clips, %d validation clips", clips, held_out)
    batches = make_batches(run.config, sources, processes)
    with stop_by_signal() as stop:
        try:
            progress = run_steps(run, batches, validation if held_out else None, stop)
        except RuntimeError as error:
            if processes.count == 1:
                raise
            save_run(run)  # the failed step has not changed the weights
            reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
            raise LostProcessError(
                f"another process was lost at step {run.progress.step} ({reason}); "
                "the state is saved: continue with --resume"
            ) from error
        finally:
            run.log.close()
    if config.refit:
        refit_run(run, sources, validation, held_out)
    return progress


def log_plan(plan: Plan, config: TrainConfig) -> None:
    """Log where and how the run trains, and what was changed for the model."""
    log.info("%s", plan)
    used = plan.config
    if (used.frames, used.crop) != (config.frames, config.crop):
        size = f"{used.frames} frames of {used.crop}x{used.crop}"
        log.info("frames and crop changed for the model: %s", size)


def run_steps(
    run: Run, batches: Batches, validation: Sequence[ValidationClip] | None, stop: StopRequest
) -> TrainingProgress:
    """Run the remaining steps; log, validate and save at their intervals.

    Args:
        run: a started run.
        batches: of this process.
        validation: the share of this process of the validation clips; None: there are none.
        stop: set by a signal.
    """
    config, progress, timer = run.config, run.progress, run.timer
    recent = RecentLosses(check_gradients=not run.scaler.is_enabled())
    todo = range(progress.step, config.steps)
    made = prefetch(batches.step, todo, workers=config.workers)
    for step, parts in zip(todo, made, strict=True):
        timer.start("work")
        rate = learning_rate(config, step)
        set_learning_rate(run.optimizers, rate, flow_frozen=step < config.flow_frozen_steps)
        terms = compute_gradients(run, parts)
        recent.add(step + 1, terms, update_weights(run))
        timer.start("rest")
        for average, network in run.averages:
            average.update(network, step)
        progress.step = done = step + 1
        stop.number = run.processes.largest(stop.number)  # all stop after the same step
        last = done == config.steps or bool(stop.number)

        if done % config.log_every == 0 or last:
            means = recent.check(run.processes, batches.describe, run.directory)
            seconds, outside = timer.lap()
            run.log.scalars(
                done, **named(means), learning_rate=rate, seconds=seconds, outside=outside
            )
        if validation is not None and (done % config.validate_every == 0 or done == config.steps):
            validate(run, validation)
        if done % config.save_every == 0 or last:
            recent.check(run.processes, batches.describe, run.directory)
            for _, network in run.averages:
                check_weights(network, done, run.directory)
            save_run(run)
        if stop.number:
            run.processes.fail(
                StoppedError(f"stopped by {stop.reason} after step {done}; continue with --resume")
            )
        timer.start("data")
    if run.processes.is_main:
        metric = config.validation_metric
        best = f", best {titled(signed(progress.best, metric), metric)} at step "
        best = f"{best}{progress.best_step}" if progress.best_step else ""
        log.info("%d steps done%s; weights in %s", progress.step, best, run.directory)
    return progress


def named(means: dict[str, float]) -> dict[str, float]:
    """The values of a line of the log: the loss, its terms and the gradient norm."""
    terms = {f"loss_{name}": value for name, value in means.items() if name != GRADIENT}
    return {"loss": sum(terms.values()), **terms, "gradient_norm": means[GRADIENT]}


def compute_gradients(run: Run, parts: Sequence[Batch]) -> list[Terms]:
    """Compute the gradients of the loss of a step; returns the terms of each of its batches.

    The gradients are those of one large batch: of the mean over the batches, or of their sum if
    the loss is a sum. With several processes they are averaged over all of them.
    """
    run.loss.zero_grad(set_to_none=True)
    if run.adversarial:
        run.adversarial.start_step(run.progress.step)
    share = 1 if run.config.sums_clips else 1 / len(parts)
    found = []
    for number, (lr, target) in enumerate(parts, start=1):
        lr, target = lr.to(run.device), target.to(run.device)
        # A resumed run draws the same random numbers, and so do all batches and processes.
        torch.manual_seed(run.config.seed + run.progress.step)
        with _without_averaging(run.loss, enabled=number < len(parts)):
            with autocast(run.precision, run.device):
                terms: Terms = run.loss(lr, target)
            loss = torch.stack(list(terms.values())).sum()
            run.scaler.scale(loss * share).backward()
        found.append({name: value.detach() for name, value in terms.items()})
    return found


def update_weights(run: Run) -> Tensor:
    """Clip the gradients and run the optimizers; returns the norm before clipping."""
    for optimizer in run.optimizers:
        run.scaler.unscale_(optimizer)
    norm = clip_grad_norm_(run.model.parameters(), run.config.clip_gradients or math.inf)
    for optimizer in run.optimizers:
        run.scaler.step(optimizer)
    run.scaler.update()
    return norm


def _without_averaging(model: nn.Module, *, enabled: bool) -> AbstractContextManager[None]:
    """Add up gradients in this process only; they are averaged over processes once per step."""
    if enabled and isinstance(model, DistributedDataParallel):
        return model.no_sync()
    return nullcontext()


def save_run(run: Run) -> None:
    """Write the state and the averaged model, in the main process."""
    run.save()
    if run.processes.is_main:
        save_model(run.directory / "last.safetensors", run.ema.model, step=run.progress.step)
        if average := run.models.get("discriminator_ema"):
            write_checkpoint(run.directory / DISCRIMINATOR, average, {})
