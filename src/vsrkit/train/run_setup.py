"""What a run consists of: its settings on this machine, model, loss, optimizers and files."""

import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint

from vsrkit.data.degrade import degrader_named
from vsrkit.errors import VsrkitError
from vsrkit.hardware.device import (
    Precision,
    autocast,
    device_title,
    resolve_training_precision,
    set_memory_layout,
)
from vsrkit.hardware.memory import UNLIMITED, keep_freed_memory
from vsrkit.models.basicvsr import BasicVSR
from vsrkit.models.layers.blocks import TwoStageTail
from vsrkit.models.layers.flow import flow_networks
from vsrkit.models.layers.patch_attention import ConvAttention, LinearAttention
from vsrkit.models.layers.span_attention import SpanAttention
from vsrkit.models.spec import Spec, Window
from vsrkit.models.zoo import MODELS, build_model, load_model
from vsrkit.train.adversarial import Adversarial
from vsrkit.train.batch_size import share_batch
from vsrkit.train.compose_loss import adversarial_term, compose_loss, set_loss_layout
from vsrkit.train.config import TrainConfig, to_dict
from vsrkit.train.distill.narrow import narrow
from vsrkit.train.distill.refit import last_convolution
from vsrkit.train.distill.teacher_outputs import load_teacher
from vsrkit.train.optimizers import Ema, discriminator_optimizer, make_optimizers
from vsrkit.train.processes import Processes
from vsrkit.train.recipe import from_saved
from vsrkit.train.run_files import (
    STATE,
    RunLog,
    StepTimer,
    TrainingProgress,
    load_state,
    save_state,
    write_json,
)
from vsrkit.train.settings import ConfigError
from vsrkit.train.training_data import TrainingSource, make_batches
from vsrkit.train.warm_start import warm_start

log = logging.getLogger("vsrkit")

NARROWING_CLIPS = 16  # clips on which the channels of a student are chosen
# Settings that change what a validation score means.
SCORED = ("data", "degradation", "validation", "validation_share", "validation_overlaps",
          "validation_frames", "validation_crop", "validation_metric")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plan:
    """What is decided before a run starts, by the main process for all."""

    config: TrainConfig  # with the frames, crop and batches that are used
    written: TrainConfig  # for config.json, with batch_size = "auto" as the user set it
    precision: Precision
    processes: int
    device: str  # with the name of its hardware

    def __str__(self) -> str:
        config, count = self.config, self.processes
        each = f"{config.batch_size} clip{'s' if config.batch_size > 1 else ''}"
        if config.accumulate > 1:
            each = f"{config.accumulate} x {each}"
        total = count * config.accumulate * config.batch_size
        return (
            f"{config.model} on {self.device} in {self.precision}, "
            f"{count} process{'es' if count > 1 else ''}, "
            f"total batch {total} ({each} in each process)"
        )


@dataclass(slots=True)
class Run:
    """A model in training, its optimizers and its files."""

    config: TrainConfig
    processes: Processes
    device: str
    precision: Precision
    model: nn.Module
    loss: nn.Module  # of the model: (lr, target) -> terms; averages gradients over processes
    adversarial: Adversarial | None  # the term of the loss with a discriminator
    ema: Ema
    averages: list[tuple[Ema, nn.Module]]  # of all networks in training, and what they average
    models: dict[str, nn.Module]  # all of these, by their name in the state
    optimizers: list[Optimizer]
    scaler: GradScaler  # of the loss, in float16; does nothing in other number types
    progress: TrainingProgress
    log: RunLog
    timer: StepTimer

    @property
    def directory(self) -> Path:
        """Folder of the run."""
        return Path(self.config.run_dir)

    def save(self) -> None:
        """Write the state that `--resume` needs, in the main process."""
        if self.processes.is_main:
            save_state(
                self.directory / STATE, self.models, self.optimizers, self.progress, self.scaler
            )


def plan_run(config: TrainConfig, processes: Processes, *, resume: bool) -> Plan:
    """Decide precision, memory layout and batch size; the main process decides for all.

    Args:
        config: all settings of the run.
        processes: the processes of the run.
        resume: whether `config.run_dir` has a run to continue.
    """
    return processes.from_main(lambda: _plan(config, processes, resume=resume))


def _plan(config: TrainConfig, processes: Processes, *, resume: bool) -> Plan:
    if (Path(config.run_dir) / STATE).exists() and not resume:
        raise ConfigError(
            f"{config.run_dir} already contains a run; use --resume or another run_dir"
        )
    model, device = untrained_model(config).to(processes.device), processes.device
    written = fit_to_model(config, model.spec)  # type: ignore[arg-type]
    if config.refit:  # fail now, not after the last step
        degrader_named(config.refit)
        last_convolution(model)
    precision = resolve_training_precision(config.precision, model, device)
    set_training_layout(model, precision)
    batch_size, accumulate = config.batch_size, config.accumulate
    if config.total_batch_size:
        batch_size, accumulate = share_batch(written, processes, model, precision)
    used = replace(written, batch_size=batch_size, accumulate=accumulate, total_batch_size=0)
    return Plan(used, written, precision, processes.count, device_title(device))


def start_run(
    plan: Plan, processes: Processes, sources: Sequence[TrainingSource], *, resume: bool
) -> Run:
    """Build the model, its loss, optimizers and log.

    Args:
        plan: of `plan_run`.
        processes: the processes of the run.
        sources: training clips, on which a student is narrowed from its teacher.
        resume: restore the model and the optimizers from the last state.
    """
    config, precision, device = plan.config, plan.precision, processes.device
    run_dir, kind = Path(config.run_dir), torch.device(device).type
    keep_freed_memory(UNLIMITED)  # the next step allocates the same sizes again
    teacher = load_teacher(config.teacher) if config.learns_features else None
    model = untrained_model(config) if resume else initial_model(config, teacher, sources)
    model = model.train().to(device)
    set_training_layout(model, precision)
    ema = Ema(model, config.ema_decay)
    if config.activation_checkpointing:
        recompute_activations(model)
    scale: int = model.spec.scale  # type: ignore[union-attr, assignment]
    loss = compose_loss(model, config, teacher, scale)
    set_loss_layout(loss, model, precision, device)
    if config.compile:
        compile_loss(loss, scale, plan, processes)
    loss = processes.average_gradients(loss)
    ema.model.load_state_dict(model.state_dict())  # which are now those of the main process
    optimizers = make_optimizers(
        model, name=config.optimizer, betas=config.betas, flow_scale=config.flow_learning_rate_scale
    )
    models = {"model": model, "ema": ema.model}
    averages = [(ema, model)]
    if adversarial := adversarial_term(loss):
        discriminator = adversarial.discriminator
        rate = config.losses.discriminator_learning_rate
        optimizers.append(
            discriminator_optimizer(
                discriminator, learning_rate=rate, model_rate=config.learning_rate,
                betas=config.betas,
            )
        )  # fmt: skip
        averages.append((Ema(discriminator, config.ema_decay), discriminator))
        models |= {"discriminator": discriminator, "discriminator_ema": averages[-1][0].model}
    scaler = GradScaler(kind, enabled=precision.dtype == "float16")
    progress, changed = TrainingProgress(), {}
    if resume:
        progress = load_state(run_dir / STATE, models, optimizers, scaler)
        changed = changed_settings(run_dir, plan.written)
    if changed.keys() & set(SCORED):
        progress.best, progress.best_step = TrainingProgress().best, 0
    if processes.is_main:
        write_json(run_dir / "config.json", to_dict(plan.written))
    run_log = RunLog(
        run_dir if processes.is_main else None, tensorboard=config.tensorboard, after=progress.step
    )
    run_log.changes(progress.step, changed)
    return Run(
        config, processes, device, precision, model, loss, adversarial, ema, averages, models,
        optimizers, scaler, progress, run_log, StepTimer(),
    )  # fmt: skip


def changed_settings(run_dir: Path, config: TrainConfig) -> dict[str, tuple[Any, Any]]:
    """Settings that differ from those in `config.json` of a run: (before, now) by key."""
    before: dict[str, Any] = {}
    with suppress(OSError, ValueError, VsrkitError):  # missing, damaged, or of another version
        saved = json.loads((run_dir / "config.json").read_text(encoding="utf-8"))
        before = to_dict(from_saved(saved))
    now = to_dict(config)
    return {
        key: (value, now[key])
        for key, value in before.items()
        if key in now and key != "run_dir" and value != now[key]
    }


def untrained_model(config: TrainConfig) -> nn.Module:
    """The model with the weights of a file, or with new ones that depend on the seed only."""
    torch.manual_seed(config.seed)
    return build_model(config.model) if config.model in MODELS else load_model(config.model)


def initial_model(
    config: TrainConfig, teacher: BasicVSR | None, sources: Sequence[TrainingSource]
) -> nn.Module:
    """The model with the weights of a file, of a teacher or new ones, then of the warm starts."""
    model = untrained_model(config)
    if teacher is not None and config.model in MODELS:
        first = replace(config, batch_size=NARROWING_CLIPS, accumulate=1)
        lr, _ = make_batches(first, sources).step(0)[0]
        model = narrow(teacher, model.config, lr)
    for source in config.warm_start:
        warm_start(model, source)
    return model


def compile_loss(loss: nn.Module, scale: int, plan: Plan, processes: Processes) -> None:
    """Compile the loss and the model in it, in place; leave them as they are if that fails.

    The compiler starts with the first batch and can fail in many ways: without a C++ compiler, for
    a device it does not support, or on one of the operations. So one step is tried first.
    """
    loss.forward = torch.compile(loss.forward)
    side = plan.config.crop
    lr = torch.rand(1, plan.config.frames, 3, side, side, device=processes.device)
    target = lr.repeat_interleave(scale, -1).repeat_interleave(scale, -2)
    reason = ""
    try:
        with autocast(plan.precision, processes.device):
            terms = loss(lr, target)
        torch.stack(list(terms.values())).sum().backward()
    except Exception as error:  # noqa: BLE001 - errors of the compiler have no common base class
        reason = (str(error).splitlines() or [type(error).__name__])[0][:150]
    loss.zero_grad(set_to_none=True)
    reasons = [text for text in processes.gather(reason) if text]
    if reasons:  # in one process is enough: all use the same code
        del loss.forward
        if processes.is_main:
            log.warning("torch.compile failed (%s); training without it", reasons[0])


def fit_to_model(config: TrainConfig, spec: Spec) -> TrainConfig:
    """The config with `frames` and `crop` changed to values that the model accepts."""
    if config.mirrored and isinstance(spec.context, Window):
        raise ConfigError(f"mirrored is for recurrent models; set it to false for {config.model}")
    frames, crop = max(config.frames, spec.min_frames), max(config.crop, spec.minimum)
    if isinstance(spec.context, Window) and spec.context.size > 1:
        frames = spec.context.size
    crop = spec.tile or -(-crop // spec.multiple) * spec.multiple
    return replace(config, frames=frames, crop=crop)


def set_training_layout(model: nn.Module, precision: Precision) -> None:
    """Store weights in the memory layout of `precision`; float32 flow networks in PyTorch's layout.

    The gradient of a warp is discontinuous where the flow crosses a pixel border, so that a
    different rounding order changes it. In PyTorch's layout the gradients equal those of plain
    training; the flow network takes only about a hundredth of the time.
    """
    set_memory_layout(model, precision)
    if precision.channels_last:
        # The strides of 1x1 kernels are ambiguous; those of their gradients are channels-last.
        for weight in (p for p in model.parameters() if p.dim() == 4):
            like = torch.empty_like(weight, memory_format=torch.channels_last)
            weight.data = like.detach().copy_(weight.data)
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
