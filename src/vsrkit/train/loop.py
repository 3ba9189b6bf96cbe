"""Training: `train(config)` reads top to bottom as what happens."""

import logging
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from vsrkit.cache import cache_directory
from vsrkit.data.clips import Clip, OnProgress, Unreadable, hold_out, open_clips
from vsrkit.data.degrade import degradation_named
from vsrkit.errors import VsrkitError
from vsrkit.models import MODELS, build_model, load_model, save_model
from vsrkit.precision import lay_out, resolve_precision
from vsrkit.train.batches import Batches, Share, prefetched
from vsrkit.train.checkpoint import Progress, load_state, save_state, write_json
from vsrkit.train.config import ConfigError, TrainConfig, to_dict
from vsrkit.train.ema import Ema
from vsrkit.train.losses import charbonnier
from vsrkit.train.optimizers import make_optimizers, set_learning_rate
from vsrkit.train.report import Report
from vsrkit.train.schedules import learning_rate
from vsrkit.train.start import warm_start
from vsrkit.train.validate import held_pieces, score

log = logging.getLogger("vsrkit")


class DivergedError(VsrkitError):
    """The loss is no number any more."""


def train(
    config: TrainConfig, *, resume: bool = False, on_progress: OnProgress | None = None
) -> Progress:
    """Train a model as `config` says; its files go to `config.run_dir` (see `checkpoint`)."""
    run_dir = Path(config.run_dir)
    shares, held = open_data(config, on_progress)
    torch.manual_seed(config.seed)
    model = starting_model(config)
    precision = resolve_precision(config.precision, model, config.device)
    lay_out(model.to(config.device), precision)
    optimizers = make_optimizers(
        model,
        name=config.optimizer,
        betas=config.betas,
        flow_scale=config.flow_learning_rate_scale,
    )
    ema = Ema(model, config.ema_decay)
    progress = Progress()
    if resume:
        progress = load_state(run_dir / "state.safetensors", model, ema.model, optimizers)
    elif (run_dir / "state.safetensors").exists():
        raise ConfigError(f"{run_dir} holds a run already; go on with --resume or name another run_dir")
    write_json(run_dir / "config.json", to_dict(config))
    report = Report(run_dir, tensorboard=config.tensorboard)
    pieces = held_pieces(held, shares[0].degradation, config.validation_frames)
    batches = Batches(
        shares=shares,
        seed=config.seed,
        batch_size=config.batch_size,
        accumulate=config.accumulate,
        frames=config.frames,
        crop=config.crop,
        flips=config.flips,
        reversal=config.reversal,
    )
    log.info("%s in %s, %d clips, %d held out", config.model, precision, _count(shares), len(held))

    clock = Clock()
    losses: list[Tensor] = []
    todo = range(progress.step, config.steps)
    for step, parts in zip(todo, prefetched(batches.step, todo, workers=config.workers), strict=True):
        clock.start("work")
        rate = learning_rate(config, step)
        set_learning_rate(optimizers, rate, flow_frozen=step < config.flow_frozen_steps)
        torch.manual_seed(config.seed + step)  # should a model draw numbers: the same on resume
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        for lr, hr in parts:
            lr, hr = lr.to(config.device), hr.to(config.device)
            with torch.autocast(lr.device.type, torch.bfloat16, precision.dtype == "bfloat16"):
                sr = model(lr)
            loss = charbonnier(sr, wanted(hr, sr), reduction=config.loss_reduction)
            (loss / config.accumulate).backward()
            losses.append(loss.detach())
        if config.clip_gradients:
            clip_grad_norm_(model.parameters(), config.clip_gradients)
        for optimizer in optimizers:
            optimizer.step()
        clock.start("rest")
        ema.update(model, step)
        progress.step = done = step + 1

        if done % config.log_every == 0 or done == config.steps:
            mean = check_finite(losses, done, run_dir)
            losses.clear()
            seconds, outside = clock.lap(config.log_every)
            report.scalars(done, loss=mean, learning_rate=rate, seconds=seconds, outside=outside)
        if pieces and (done % config.validate_every == 0 or done == config.steps):
            clock.start("validation")
            psnr = score(ema.model, pieces, precision, config.device)
            report.scalars(done, psnr_y=psnr)
            if psnr > progress.best:
                progress.best, progress.best_step = psnr, done
                save_model(run_dir / "best.safetensors", ema.model, step=done, psnr_y=psnr)
        if done % config.save_every == 0 or done == config.steps:
            clock.start("rest")
            check_finite(losses, done, run_dir)
            save_state(run_dir / "state.safetensors", model, ema.model, optimizers, progress)
            save_model(run_dir / "last.safetensors", ema.model, step=done)
        clock.start("data")
    report.close()
    log.info("%s", summary(progress, run_dir))
    return progress


def open_data(
    config: TrainConfig, on_progress: OnProgress | None
) -> tuple[list[Share], list[Clip]]:
    """The clips to learn from, by source, and those held out."""
    if not config.data:
        raise ConfigError("no data: name a video or a folder, for instance --set data=my-videos")
    cache = Path(config.cache_dir or cache_directory() / "frames")
    unreadable = Unreadable(config.unreadable_limit)
    shares, held = [], []
    for source in config.data:
        clips = open_clips(
            Path(source.path),
            cache,
            unreadable=unreadable,
            max_frames=source.max_frames,
            on_progress=on_progress,
        )
        rest, out = hold_out(clips, config.validation, config.validation_share)
        degradation = degradation_named(source.degradation)
        shares.append(Share(clips=rest, weight=source.weight, degradation=degradation))
        held += out
    return shares, held


def starting_model(config: TrainConfig) -> nn.Module:
    """The model with fresh weights (a name) or a file's, then with those of the warm starts."""
    if config.model in MODELS:
        model = build_model(config.model)
    else:
        model = load_model(config.model)
    for source in config.warm_start:
        warm_start(model, source)
    return model.train()


def wanted(hr: Tensor, sr: Tensor) -> Tensor:
    """The frames that the model answers with: all, or the centre."""
    if sr.shape[1] == hr.shape[1]:
        return hr
    centre = hr.shape[1] // 2
    return hr[:, centre : centre + 1]


def check_finite(losses: Sequence[Tensor], step: int, run_dir: Path) -> float:
    """The mean loss, if it is a number. Looks at the device, which is slow: not at every step."""
    if not losses:
        return 0.0
    mean = float(torch.stack(list(losses)).mean())
    if mean - mean != 0:
        raise DivergedError(
            f"the loss became {mean} before step {step}; the last good state is in {run_dir}: "
            "go on from it with --resume and a lower learning_rate, or with clip_gradients"
        )
    return mean


def summary(progress: Progress, run_dir: Path) -> str:
    """The last line of a run."""
    best = f", best {progress.best:.3f} dB at step {progress.best_step}" if progress.best_step else ""
    return f"{progress.step} steps done{best}; weights in {run_dir}"


def _count(shares: Sequence[Share]) -> int:
    return sum(len(share.clips) for share in shares)


class Clock:
    """Seconds spent on each kind of work since the last lap."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._kind, self._since = "data", time.perf_counter()

    def start(self, kind: str) -> None:
        """What follows is of this kind."""
        now = time.perf_counter()
        self._seconds[self._kind] = self._seconds.get(self._kind, 0.0) + now - self._since
        self._kind, self._since = kind, now

    def lap(self, steps: int) -> tuple[float, float]:
        """Seconds per step, and the share of them outside of forward, backward and optimiser."""
        self.start(self._kind)
        work = self._seconds.get("work", 0.0)
        rest = self._seconds.get("data", 0.0) + self._seconds.get("rest", 0.0)
        self._seconds.clear()
        return (work + rest) / steps, rest / (work + rest)
