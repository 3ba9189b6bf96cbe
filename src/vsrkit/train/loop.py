"""The training loop, and errors about losses and weights that are not finite.

Losses are checked only when they are logged or saved, because reading them waits for the device.
Since batches are a pure function of the step, the clips of any earlier step can still be named.
"""

import logging
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from vsrkit.data.clips import OnProgress
from vsrkit.errors import StoppedError, VsrkitError
from vsrkit.hardware.device import autocast
from vsrkit.models.weights import write_checkpoint
from vsrkit.models.zoo import save_model
from vsrkit.train.config import TrainConfig
from vsrkit.train.losses import Terms
from vsrkit.train.optimizers import learning_rate, set_learning_rate
from vsrkit.train.processes import (
    LostProcessError,
    Processes,
    StopRequest,
    join_processes,
    stop_by_signal,
)
from vsrkit.train.run_files import DISCRIMINATOR, STATE, TrainingProgress
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

GRADIENT = "gradient norm"


class DivergedError(VsrkitError):
    """The loss, a gradient or a weight became NaN or infinite."""


@dataclass(frozen=True, slots=True)
class NotFinite:
    """The first value of a process that is not finite."""

    step: int  # counted from 1
    part: int  # batch of the step, from 0; -1: all of them
    name: str  # of the term
    value: float


@dataclass(slots=True)
class RecentLosses:
    """The terms of every batch and the gradient norm of every step since the last check.

    check_gradients: whether a gradient that is not finite is an error; with a scaled loss such
        steps are skipped instead.
    """

    check_gradients: bool = True
    _rows: list[tuple[int, int, Terms]] = field(default_factory=list)  # step, part, terms

    def add(self, step: int, parts: Sequence[Terms], gradient_norm: Tensor) -> None:
        """Add a step, counted from 1: the terms of its batches, not yet averaged over them."""
        self._rows += [(step, part, terms) for part, terms in enumerate(parts)]
        self._rows.append((step, -1, {GRADIENT: gradient_norm}))

    def check(
        self, processes: Processes, clips: Callable[[int, int], str], run_dir: Path
    ) -> dict[str, float]:
        """The mean of each term and of the gradient norm over batches, steps and processes.

        Raises DivergedError in all processes if a value of one of them is not finite. Waits for
        the device and for the other processes.

        Args:
            processes: of the run.
            clips: names the clips of a step (from 0) and a batch of it (-1: all).
            run_dir: of the run.
        """
        bad, means = self._read()
        where = clips(bad.step - 1, bad.part) if bad else ""
        reports = processes.gather((bad, where, means))
        found = [(bad, where, rank) for rank, (bad, where, _) in enumerate(reports) if bad]
        if found:
            first, where, rank = min(found, key=lambda each: (each[0].step, each[2]))
            of = f" of process {rank}" if processes.count > 1 else ""
            kind = "the" if first.name == GRADIENT else "the loss term"
            problem = f"{kind} {first.name} became {first.value} in step {first.step}{of}"
            processes.fail(_diverged(f"{problem}, with the clips {where}", run_dir))
        return {
            name: sum(report[2][name] for report in reports) / processes.count for name in means
        }

    def _read(self) -> tuple[NotFinite | None, dict[str, float]]:
        """The first value that is not finite, and the means; starts with no values again."""
        rows, self._rows = self._rows, []
        names = [(step, part, name) for step, part, terms in rows for name in terms]
        stacked = [value.detach().float() for *_, terms in rows for value in terms.values()]
        numbers = torch.stack(stacked).tolist() if stacked else []
        values: dict[str, list[float]] = {}
        for (step, part, name), number in zip(names, numbers, strict=True):
            finite = math.isfinite(number)
            if not finite and (name != GRADIENT or self.check_gradients):
                return NotFinite(step, part, name, number), {}
            values.setdefault(name, [])
            if finite:
                values[name].append(number)
        return None, {name: sum(all_) / max(1, len(all_)) for name, all_ in values.items()}


def check_weights(model: nn.Module, step: int, run_dir: Path) -> None:
    """Raise DivergedError for weights that are not finite; the loss before them can be finite."""
    if not all(bool(weight.isfinite().all()) for weight in model.parameters()):
        raise _diverged(f"weights became NaN or infinite before step {step}", run_dir)


def _diverged(problem: str, run_dir: Path) -> DivergedError:
    if (run_dir / STATE).exists():
        then = f"the last finite state is in {run_dir}: continue with --resume and"
    else:
        then = "no earlier state was saved: start again with"
    return DivergedError(f"{problem}; {then} a lower learning_rate, or set clip_gradients")


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
