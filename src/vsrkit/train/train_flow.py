"""Training of the light flow network on pairs with known motion, later also on real clips."""

import logging
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Adam, Optimizer

from vsrkit.data.augment import to_clip
from vsrkit.data.clips import OnProgress, hold_out, open_clips, read_picture, to_8_bit
from vsrkit.data.degrade import Fixed
from vsrkit.errors import DataError
from vsrkit.evaluate.metrics import mean_psnr_y
from vsrkit.hardware.device import resolve_device, resolve_precision, set_memory_layout
from vsrkit.hardware.files import cache_directory
from vsrkit.models.layers.flow import LightFlow, warp
from vsrkit.models.layers.resample import imresize
from vsrkit.models.weights import write_checkpoint
from vsrkit.train.config import FlowConfig, to_dict
from vsrkit.train.optimizers import Ema, Muon, inner_matrices, learning_rate, set_learning_rate
from vsrkit.train.run_files import (
    STATE,
    RunLog,
    TrainingProgress,
    load_state,
    save_state,
    write_json,
)
from vsrkit.train.synthetic_motion import MotionPairs, motion_pairs
from vsrkit.train.training_data import Batches, TrainingSource, prefetch, validation_clips
from vsrkit.train.warm_start import warm_start
from vsrkit.video.images import is_image

log = logging.getLogger("vsrkit")


def train_flow(
    config: FlowConfig, *, resume: bool = False, on_progress: OnProgress | None = None
) -> TrainingProgress:
    """Train a LightFlow; `best.safetensors` is the one that warps the validation clips best.

    config: all settings of the run; resume and on_progress as for `loop.train`.
    """
    run_dir, device = Path(config.run_dir), resolve_device(config.device)
    data = FlowData(config, device, on_progress)
    torch.manual_seed(config.seed)
    model = LightFlow(config.channels, config.levels)
    for source in config.warm_start:
        warm_start(model, source)
    set_memory_layout(model.to(device), resolve_precision("float32", model, device))
    log.info("light flow on %s in float32, %d pairs in each step", device, config.batch_size)
    optimizers = flow_optimizers(model)
    ema = Ema(model, config.ema_decay)
    progress = TrainingProgress()
    if resume:
        progress = load_state(run_dir / STATE, {"model": model, "ema": ema.model}, optimizers)
    write_json(run_dir / "config.json", to_dict(config))
    run_log = RunLog(run_dir, after=progress.step)
    metadata = {"part": "light-flow", "channels": config.channels, "levels": config.levels}

    todo = range(progress.step, config.steps)
    made = prefetch(data.batch, todo, workers=config.workers)
    for step, (synthetic, real) in zip(todo, made, strict=True):
        rate = learning_rate(config, step)
        set_learning_rate(optimizers, rate)
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss = flow_loss(model, synthetic.to(device))
        if real is not None:
            a, b = (frames.to(device) for frames in real)
            loss = loss + config.real_weight * photometric_loss(model, a, b)
        loss.backward()
        clip_grad_norm_(model.parameters(), config.clip_gradients)
        for optimizer in optimizers:
            optimizer.step()
        ema.update(model, step)
        progress.step = done = step + 1

        if done % config.log_every == 0:
            run_log.scalars(done, loss=loss.item(), learning_rate=rate)
        if done % config.validate_every == 0 or done == config.steps:
            unwarped, warped = data.score(ema.model)
            error = end_point_error(ema.model, data.validation_synthetic)
            run_log.scalars(done, end_point_error=error, psnr_unmoved=unwarped, psnr_warped=warped)
            if warped > progress.best:
                progress.best, progress.best_step = warped, done
                write_checkpoint(
                    run_dir / "best.safetensors", ema.model, {**metadata, "step": done}
                )
        if done % config.save_every == 0 or done == config.steps:
            models = {"model": model, "ema": ema.model}
            save_state(run_dir / STATE, models, optimizers, progress)
            write_checkpoint(run_dir / "last.safetensors", ema.model, {**metadata, "step": done})
    log.info("%d steps done, best %.3f dB; weights in %s", progress.step, progress.best, run_dir)
    return progress


class FlowData:
    """Pairs with synthetic motion made from still images, real pairs, and validation pairs."""

    def __init__(self, config: FlowConfig, device: str, on_progress: OnProgress | None) -> None:
        self.config, self.device = config, device
        self.stills = read_stills(Path(config.stills))
        self.validation_synthetic = self._synthetic(-1 % 2**31, batch=16).to(device)
        self.real: Batches | None = None
        self.validation_pairs: list[tuple[Tensor, Tensor]] = []
        if config.clips:
            cache = Path(config.cache_dir or cache_directory() / "frames")
            clips = open_clips(Path(config.clips), cache, on_progress=on_progress)
            training, held_out = hold_out(clips, config.validation, 0.1)
            source = TrainingSource(clips=training, weight=1.0, degradation=Fixed())
            self.real = Batches(
                sources=[source], seed=config.seed, batch_size=config.real_batch_size, accumulate=1,
                frames=2, crop=config.size, flips=True, reversal=True,
            )  # fmt: skip
            validation = validation_clips(held_out, Fixed(), frames=5)
            self.validation_pairs = [(clip.lr[:-1], clip.lr[1:]) for clip in validation]

    def batch(self, step: int) -> tuple[MotionPairs, tuple[Tensor, Tensor] | None]:
        """The pairs of a step: with synthetic motion, and real ones from step `real_from` on."""
        synthetic = self._synthetic(step, self.config.batch_size)
        if self.real is None or step < self.config.real_from:
            return synthetic, None
        [(lr, _)] = self.real.step(step)
        return synthetic, (lr[:, 0].contiguous(), lr[:, 1].contiguous())

    def _synthetic(self, step: int, batch: int) -> MotionPairs:
        c = self.config
        return motion_pairs(self.stills, c.seed, step, batch=batch, size=c.size, reach=c.reach)

    @torch.no_grad()
    def score(self, model: nn.Module) -> tuple[float, float]:
        """PSNR on Y of neighbouring validation frames, without and with warping one to the other.

        Without clips: 0 and minus the end point error of the synthetic pairs.
        """
        if not self.validation_pairs:
            return 0.0, -end_point_error(model, self.validation_synthetic)
        unwarped, warped = [], []
        for pair in self.validation_pairs:
            a, b = (frames.to(self.device) for frames in pair)
            to_b, _ = model(a, b)
            unwarped.append(mean_psnr_y(b, a))
            warped.append(mean_psnr_y(warp(b, to_b, padding="border"), a))
        return sum(unwarped) / len(unwarped), sum(warped) / len(warped)


def flow_optimizers(model: nn.Module) -> list[Optimizer]:
    """Adam for layers that read pixels or write flows, Muon for the others."""
    matrices = inner_matrices(model)
    inside = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in inside]
    return [
        Adam([{"params": rest, "scale": 1.0}], lr=0.0, betas=(0.9, 0.99)),
        Muon([{"params": matrices, "scale": 1.0}], lr=0.0),
    ]


def read_stills(folder: Path) -> list[NDArray[np.uint8]]:
    """Read all images of a folder at half size, because reduced images are sharper."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; expected a folder of images")
    paths = sorted(p for p in folder.iterdir() if is_image(p))
    if not paths:
        raise DataError(f"{folder} contains no images")
    stills = (to_clip(read_picture(path)[None]) for path in paths)
    return [to_8_bit(imresize(still, Fraction(1, 2))[0]) for still in stills]


def flow_loss(model: nn.Module, pairs: MotionPairs) -> Tensor:
    """Error of the flow relative to the motion of each pair, summed over all pyramid levels.

    Relative, because otherwise the few large motions would dominate the many small ones.
    """
    truth = torch.cat([pairs.a_to_b, pairs.b_to_a], 1)
    scale = truth.square().mean((1, 2, 3), keepdim=True).sqrt() + 0.3
    total = truth.new_zeros(())
    levels: list[Tensor] = model.coarse_to_fine(pairs.a, pairs.b)  # type: ignore[operator]
    for number, flows in enumerate(levels):
        times = truth.shape[-1] / flows.shape[-1]
        full = times * F.interpolate(flows, truth.shape[-2:], mode="bilinear", align_corners=False)
        share = 0.5 ** (len(levels) - 1 - number)
        total = total + share * _distance(full / scale, truth / scale, pairs)
    return total


@torch.no_grad()
def end_point_error(model: nn.Module, pairs: MotionPairs) -> float:
    """Mean distance in pixels between the predicted and the true flow."""
    truth = torch.cat([pairs.a_to_b, pairs.b_to_a], 1)
    return float(_distance(torch.cat(model(pairs.a, pairs.b), 1), truth, pairs))


def _distance(predicted: Tensor, truth: Tensor, pairs: MotionPairs) -> Tensor:
    """Mean distance of two flows; pixels that move out of the frame have a tenth of the weight."""
    weight = torch.cat([_inside(pairs.a_to_b), _inside(pairs.b_to_a)], 1)
    square = (predicted - truth).square()
    distance = torch.stack([square[:, :2].sum(1), square[:, 2:].sum(1)], 1)
    return ((distance + 1e-6).sqrt() * weight).sum() / weight.sum()


def _inside(flow: Tensor) -> Tensor:
    """1 where the motion ends inside the frame, 0.1 elsewhere: (N, 2, H, W) -> (N, 1, H, W)."""
    ones = torch.ones_like(flow[:, :1])
    return 0.1 + 0.9 * (warp(ones, flow) > 0.99)


def photometric_loss(model: nn.Module, a: Tensor, b: Tensor) -> Tensor:
    """Difference of each frame from the other one warped to it, plus a smoothness penalty."""
    to_b, to_a = model(a, b)
    return 0.5 * (_warping_loss(a, b, to_b, to_a) + _warping_loss(b, a, to_a, to_b))


def _warping_loss(a: Tensor, b: Tensor, to_b: Tensor, to_a: Tensor) -> Tensor:
    with torch.no_grad():  # occluded pixels: the flow back does not return to them
        back = warp(to_a, to_b, padding="border")
        gap = (to_b + back).square().sum(1, keepdim=True)
        length = to_b.square().sum(1, keepdim=True) + back.square().sum(1, keepdim=True)
        visible = (gap < 0.01 * length + 0.5) * warp(torch.ones_like(a[:, :1]), to_b).ge(0.99)
    difference = warp(b, to_b, padding="border") - a
    error = (difference.square() + 1e-6).sqrt().mean(1, keepdim=True)
    return 20 * (error * visible).mean() + 0.1 * _smoothness_penalty(to_b, a)


def _smoothness_penalty(flow: Tensor, frame: Tensor) -> Tensor:
    """Mean second difference of the flow, weighted less across edges of the frame."""
    penalty = flow.new_zeros(())
    for axis in (-1, -2):
        slope = frame.diff(dim=axis).abs().mean(1, keepdim=True)
        edges = torch.maximum(slope.narrow(axis, 0, slope.shape[axis] - 1),
                              slope.narrow(axis, 1, slope.shape[axis] - 1))  # fmt: skip
        bend = flow.diff(2, dim=axis).square().add(1e-6).sqrt()
        penalty = penalty + (bend * torch.exp(-10 * edges)).mean()
    return penalty
