"""The training loop."""

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint

from vsrkit.data.clips import OnProgress
from vsrkit.data.random_degradation import degrader_named
from vsrkit.errors import StoppedError
from vsrkit.evaluate.metrics import mean_psnr_y
from vsrkit.hardware.device import Precision, resolve_precision, set_memory_layout
from vsrkit.hardware.memory import UNLIMITED, keep_freed_memory
from vsrkit.inference.engine import Engine, upscale_frames
from vsrkit.models.basicvsr import BasicVSR
from vsrkit.models.layers.blocks import TwoStageTail
from vsrkit.models.layers.flow import flow_networks
from vsrkit.models.layers.patch_attention import ConvAttention, LinearAttention
from vsrkit.models.layers.span_attention import SpanAttention
from vsrkit.models.spec import Spec, Window
from vsrkit.models.zoo import MODELS, build_model, load_model, save_model
from vsrkit.train.config import ConfigError, TrainConfig, to_dict
from vsrkit.train.distill.distillation import Distillation
from vsrkit.train.distill.narrow import narrow
from vsrkit.train.distill.refit import last_convolution, refit, refit_clips
from vsrkit.train.distill.teacher_outputs import load_teacher
from vsrkit.train.losses import PixelLoss, PsnrLoss
from vsrkit.train.optimizers import Ema, learning_rate, make_optimizers, set_learning_rate
from vsrkit.train.processes import (
    LostProcessError,
    Processes,
    StopRequest,
    join_processes,
    process_device,
    stop_by_signal,
)
from vsrkit.train.run_files import (
    STATE,
    RunLog,
    StepTimer,
    TrainingProgress,
    check_finite,
    check_weights,
    load_state,
    save_state,
    write_json,
)
from vsrkit.train.training_data import (
    Batch,
    Batches,
    TrainingSource,
    ValidationClip,
    make_batches,
    open_data,
    prefetch,
    scale_of,
)
from vsrkit.train.warm_start import warm_start

log = logging.getLogger("vsrkit")

NARROWING_CLIPS = 16  # clips on which the channels of a student are chosen


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
        with processes.main_process_first():
            sources, validation = open_data(config, on_progress)
        run = start_run(config, processes, sources, resume=resume)
        if processes.is_main:
            clips = sum(len(source.clips) for source in sources)
            data = f"{clips} training clips, {len(validation)} validation clips"
            log.info("%s in %s, %s", config.model, run.precision, data)
        batches = make_batches(run.config, sources, processes)
        with stop_by_signal() as stop:
            try:
                progress = run_steps(run, batches, validation, stop)
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
            refit_run(run, sources, validation)
        return progress


@dataclass(slots=True)
class Run:
    """A model in training, its optimizers and its files."""

    config: TrainConfig
    processes: Processes
    device: str
    precision: Precision
    model: nn.Module
    loss: nn.Module  # of the model: (lr, target) -> loss; averages gradients over processes
    ema: Ema
    optimizers: list[Optimizer]
    progress: TrainingProgress
    log: RunLog

    @property
    def directory(self) -> Path:
        """Folder of the run."""
        return Path(self.config.run_dir)


def start_run(
    config: TrainConfig, processes: Processes, sources: Sequence[TrainingSource], *, resume: bool
) -> Run:
    """Build the model, its loss, optimizers and log.

    Args:
        config: all settings of the run.
        processes: the processes of the run.
        sources: training clips, on which a student is narrowed from its teacher.
        resume: restore the model and the optimizers from the last state.
    """
    run_dir, device = Path(config.run_dir), process_device(config.device)
    state = run_dir / STATE
    if state.exists() and not resume:
        raise ConfigError(f"{run_dir} already contains a run; use --resume or another run_dir")
    keep_freed_memory(UNLIMITED)  # the next step allocates the same sizes again
    torch.manual_seed(config.seed)
    teacher = load_teacher(config.teacher) if config.learns_features else None
    model = initial_model(config, teacher, sources).to(device)
    config = fit_to_model(config, model.spec)  # type: ignore[arg-type]
    if config.refit:  # fail now, not after the last step
        degrader_named(config.refit)
        last_convolution(model)
    precision = resolve_precision(config.precision, model, device)
    set_training_layout(model, precision)
    ema = Ema(model, config.ema_decay)
    optimizers = make_optimizers(
        model, name=config.optimizer, betas=config.betas, flow_scale=config.flow_learning_rate_scale
    )
    progress = load_state(state, model, ema.model, optimizers) if resume else TrainingProgress()
    if config.activation_checkpointing:
        recompute_activations(model)
    if processes.is_main:
        write_json(run_dir / "config.json", to_dict(config))
    log_dir = run_dir if processes.is_main else None
    run_log = RunLog(log_dir, tensorboard=config.tensorboard, after=progress.step)
    loss = processes.average_gradients(with_loss(model, config, teacher, precision, device))
    return Run(
        config, processes, device, precision, model, loss, ema, optimizers, progress, run_log
    )


def run_steps(
    run: Run, batches: Batches, validation: Sequence[ValidationClip], stop: StopRequest
) -> TrainingProgress:
    """Run the remaining steps; log, validate and save at their intervals."""
    config, progress = run.config, run.progress
    timer = StepTimer()
    losses: list[Tensor] = []
    todo = range(progress.step, config.steps)
    made = prefetch(batches.step, todo, workers=config.workers)
    for step, parts in zip(todo, made, strict=True):
        timer.start("work")
        rate = learning_rate(config, step)
        set_learning_rate(run.optimizers, rate, flow_frozen=step < config.flow_frozen_steps)
        torch.manual_seed(config.seed + step)  # a resumed run draws the same random numbers
        losses.append(compute_gradients(run, parts))
        if config.clip_gradients:
            clip_grad_norm_(run.model.parameters(), config.clip_gradients)
        for optimizer in run.optimizers:
            optimizer.step()
        timer.start("rest")
        run.ema.update(run.model, step)
        progress.step = done = step + 1
        last = done == config.steps or bool(stop.reason)

        if done % config.log_every == 0 or last:
            mean = check_finite(losses, done, run.directory)
            losses.clear()
            seconds, outside = timer.lap()
            run.log.scalars(done, loss=mean, learning_rate=rate, seconds=seconds, outside=outside)
        if validation and (done % config.validate_every == 0 or done == config.steps):
            timer.start("validation")
            validate(run, validation)
            timer.start("rest")
        if done % config.save_every == 0 or last:
            check_finite(losses, done, run.directory)
            check_weights(run.model, done, run.directory)
            save_run(run)
        if stop.reason:
            raise StoppedError(
                f"stopped by {stop.reason} after step {done}; continue with --resume"
            )
        timer.start("data")
    if run.processes.is_main:
        best = f", best {progress.best:.3f} dB at step {progress.best_step}"
        best = best if progress.best_step else ""
        log.info("%d steps done%s; weights in %s", progress.step, best, run.directory)
    return progress


def compute_gradients(run: Run, parts: Sequence[Batch]) -> Tensor:
    """Compute the gradients of the mean loss over the batches of a step; returns the loss.

    With several processes the gradients are averaged over all of them, the loss is not.
    """
    run.model.zero_grad(set_to_none=True)
    total = torch.zeros((), device=run.device)
    for number, (lr, target) in enumerate(parts, start=1):
        lr, target = lr.to(run.device), target.to(run.device)
        last = number == len(parts)
        with _without_averaging(run.loss, enabled=not last):
            with torch.autocast(lr.device.type, torch.bfloat16, run.precision.dtype == "bfloat16"):
                loss = run.loss(lr, target)
            (loss / len(parts)).backward()
        total += loss.detach() / len(parts)
    return total


def _without_averaging(model: nn.Module, *, enabled: bool) -> AbstractContextManager[None]:
    """Add up gradients in this process only; they are averaged over processes once per step."""
    if enabled and isinstance(model, DistributedDataParallel):
        return model.no_sync()
    return nullcontext()


def validate(run: Run, clips: Sequence[ValidationClip]) -> None:
    """Score the averaged model in the main process; save it if it is the best so far."""
    if not run.processes.is_main:
        return
    progress, done = run.progress, run.progress.step
    psnr_y, frame = score(run.ema.model, clips, run.precision, run.device)
    run.log.scalars(done, psnr_y=psnr_y)
    run.log.image(done, clips[0].name, frame)
    if psnr_y > progress.best:
        progress.best, progress.best_step = psnr_y, done
        save_model(run.directory / "best.safetensors", run.ema.model, step=done, psnr_y=psnr_y)


def refit_run(
    run: Run, sources: Sequence[TrainingSource], validation: Sequence[ValidationClip]
) -> None:
    """Refit the last convolution of the averaged model and write `refitted.safetensors`."""
    if not run.processes.is_main:
        return
    model, degradation = run.ema.model, degrader_named(run.config.refit, scale_of(run.config.model))
    clips = [clip for source in sources for clip in source.clips]
    refit(model, refit_clips(clips, degradation), run.precision, run.device)
    target = run.directory / "refitted.safetensors"
    save_model(target, model, step=run.progress.step)
    result = ""
    if validation:
        result = f", {score(model, validation, run.precision, run.device)[0]:.3f} dB"
    log.info("last convolution fitted to %d clips%s: %s", len(clips), result, target)


def save_run(run: Run) -> None:
    """Write the state and the averaged model, in the main process."""
    if run.processes.is_main:
        state = run.directory / STATE
        save_state(state, run.model, run.ema.model, run.optimizers, run.progress)
        save_model(run.directory / "last.safetensors", run.ema.model, step=run.progress.step)


def initial_model(
    config: TrainConfig, teacher: BasicVSR | None, sources: Sequence[TrainingSource]
) -> nn.Module:
    """The model with the weights of a file, of a teacher or new ones, then of the warm starts."""
    if config.model not in MODELS:
        model = load_model(config.model)
    elif teacher is not None:
        first = replace(config, batch_size=NARROWING_CLIPS, accumulate=1)
        lr, _ = make_batches(first, sources).step(0)[0]
        model = narrow(teacher, build_model(config.model).config, lr)
    else:
        model = build_model(config.model)
    for source in config.warm_start:
        warm_start(model, source)
    return model.train()


def with_loss(
    model: nn.Module,
    config: TrainConfig,
    teacher: BasicVSR | None,
    precision: Precision,
    device: str,
) -> nn.Module:
    """The loss of the model as a module: (lr, target) -> loss."""
    if teacher is not None:
        set_memory_layout(teacher.to(device), precision)
        cache = Path(config.run_dir) / "teacher_outputs" if config.distinct_clips else None
        return Distillation(model, teacher, weight=config.teacher_weight, cache=cache)
    if config.loss == "psnr":
        return PsnrLoss(model, steadiness=config.steadiness)
    return PixelLoss(model, config.loss_reduction)


def fit_to_model(config: TrainConfig, spec: Spec) -> TrainConfig:
    """The config with `frames` and `crop` changed to values that the model accepts."""
    frames, crop = max(config.frames, spec.min_frames), max(config.crop, spec.minimum)
    if isinstance(spec.context, Window) and spec.context.size > 1:
        frames = spec.context.size
    crop = spec.tile or -(-crop // spec.multiple) * spec.multiple
    if (frames, crop) != (config.frames, config.crop):
        log.info("frames and crop changed for the model: %d frames of %dx%d", frames, crop, crop)
    return replace(config, frames=frames, crop=crop)


def set_training_layout(model: nn.Module, precision: Precision) -> None:
    """Store weights in the memory layout of `precision`; float32 flow networks in PyTorch's layout.

    The gradient of a warp is discontinuous where the flow crosses a pixel border, so that a
    different rounding order changes it. In PyTorch's layout the gradients equal those of plain
    training; the flow network takes only about a hundredth of the time.
    """
    set_memory_layout(model, precision)
    if precision.dtype == "float32":
        for part in flow_networks(model):
            set_memory_layout(part, Precision("float32", channels_last=False))


def recompute_activations(model: nn.Module) -> None:
    """Keep only the inputs of layer sequences, attention and tails for the backward pass.

    Inner activations are computed again there: equal results in a third more time.
    """
    for module in model.modules():
        if isinstance(module, nn.Sequential):  # of nested ones, the innermost
            is_unit = not any(isinstance(p, nn.Sequential) for p in list(module.modules())[1:])
        else:
            units = (SpanAttention, ConvAttention, LinearAttention, TwoStageTail)
            is_unit = isinstance(module, units)
        if is_unit:
            module.forward = partial(checkpoint, module.forward, use_reentrant=False)


def score(
    model: nn.Module, clips: Sequence[ValidationClip], precision: Precision, device: str
) -> tuple[float, Tensor]:
    """Mean PSNR on Y in dB over the clips, and the middle frame (3, sH, sW) of the first one.

    The two frames at either end of a clip are not scored, if it has more than four.
    """
    engine = Engine(model, precision, device, tile=None)
    scores, shown = [], torch.zeros(0)
    for number, clip in enumerate(clips):
        ends = 2 if len(clip.hr) > 4 else 0
        frames = list(upscale_frames(clip.lr, engine))
        sr = torch.stack(frames[ends : len(frames) - ends])
        scores.append(mean_psnr_y(sr, clip.hr[ends : len(frames) - ends]))
        if number == 0:
            shown = sr[len(sr) // 2]
    return sum(scores) / len(scores), shown
