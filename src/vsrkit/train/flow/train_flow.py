"""Training the light flow network: known motion of stills first, then real clips as well."""

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
from vsrkit.data.clips import OnProgress, hold_out, open_clips, read_picture
from vsrkit.data.random_degradation import Fixed
from vsrkit.errors import DataError
from vsrkit.evaluate.metrics import mean_psnr_y
from vsrkit.hardware.cache import cache_directory
from vsrkit.hardware.precision import resolve_precision, set_memory_layout
from vsrkit.models.layers.flow import LightFlow, warp
from vsrkit.models.layers.resample import imresize
from vsrkit.models.weights import write_checkpoint
from vsrkit.train.batches import Batches, Share, prefetched
from vsrkit.train.checkpoint import Progress, load_state, save_state, write_json
from vsrkit.train.config import FlowConfig, to_dict
from vsrkit.train.ema import Ema
from vsrkit.train.flow.motion import Moving, moving_pairs
from vsrkit.train.optimizers import Muon, inner_matrices, set_learning_rate
from vsrkit.train.report import Report
from vsrkit.train.schedules import learning_rate
from vsrkit.train.validate import held_pieces
from vsrkit.train.warm_start import warm_start
from vsrkit.video.images import is_image

log = logging.getLogger("vsrkit")


def train_flow(
    config: FlowConfig, *, resume: bool = False, on_progress: OnProgress | None = None
) -> Progress:
    """Train a LightFlow; `best.safetensors` holds the one that warps held-out clips best."""
    run_dir = Path(config.run_dir)
    data = FlowData(config, on_progress)
    torch.manual_seed(config.seed)
    model = LightFlow(config.channels, config.levels)
    for source in config.warm_start:
        warm_start(model, source)
    set_memory_layout(model, resolve_precision("float32", model))
    optimizers = flow_optimizers(model)
    ema = Ema(model, config.ema_decay)
    progress = Progress()
    if resume:
        progress = load_state(run_dir / "state.safetensors", model, ema.model, optimizers)
    write_json(run_dir / "config.json", to_dict(config))
    report = Report(run_dir, after=progress.step)
    about = {"part": "light-flow", "channels": config.channels, "levels": config.levels}

    todo = range(progress.step, config.steps)
    made = prefetched(data.batch, todo, workers=config.workers)
    for step, (moving, real) in zip(todo, made, strict=True):
        rate = learning_rate(config, step)
        set_learning_rate(optimizers, rate)
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss = flow_loss(model, moving)
        if real is not None:
            loss = loss + config.real_weight * photometric(model, *real)
        loss.backward()
        clip_grad_norm_(model.parameters(), config.clip_gradients)
        for optimizer in optimizers:
            optimizer.step()
        ema.update(model, step)
        progress.step = done = step + 1

        if done % config.log_every == 0:
            report.scalars(done, loss=loss.item(), learning_rate=rate)
        if done % config.validate_every == 0 or done == config.steps:
            still, warped = data.score(ema.model)
            known = end_point_error(ema.model, data.held_moving)
            report.scalars(done, end_point_error=known, psnr_unmoved=still, psnr_warped=warped)
            if warped > progress.best:
                progress.best, progress.best_step = warped, done
                write_checkpoint(run_dir / "best.safetensors", ema.model, {**about, "step": done})
        if done % config.save_every == 0 or done == config.steps:
            save_state(run_dir / "state.safetensors", model, ema.model, optimizers, progress)
            write_checkpoint(run_dir / "last.safetensors", ema.model, {**about, "step": done})
    log.info("%d steps done, best %.3f dB; weights in %s", progress.step, progress.best, run_dir)
    return progress


class FlowData:
    """Stills that are set in motion, real pairs, and what is held out of both."""

    def __init__(self, config: FlowConfig, on_progress: OnProgress | None) -> None:
        self.config = config
        self.stills = read_stills(Path(config.stills))
        self.held_moving = self._moving(-1 % 2**31, batch=16)
        self.real: Batches | None = None
        self.held_pairs: list[tuple[Tensor, Tensor]] = []
        if config.clips:
            cache = Path(config.cache_dir or cache_directory() / "frames")
            clips = open_clips(Path(config.clips), cache, on_progress=on_progress)
            rest, held = hold_out(clips, config.validation, 0.1)
            share = Share(clips=rest, weight=1.0, degradation=Fixed())
            self.real = Batches(
                shares=[share], seed=config.seed, batch_size=config.real_batch_size, accumulate=1,
                frames=2, crop=config.size, flips=True, reversal=True,
            )  # fmt: skip
            pieces = held_pieces(held, Fixed(), frames=5)
            self.held_pairs = [(p.lr[:-1], p.lr[1:]) for p in pieces]

    def batch(self, step: int) -> tuple[Moving, tuple[Tensor, Tensor] | None]:
        """The pairs of a step: with known motion, and real ones if it is time for them."""
        moving = self._moving(step, self.config.batch_size)
        if self.real is None or step < self.config.real_from:
            return moving, None
        [(lr, _)] = self.real.step(step)
        return moving, (lr[:, 0].contiguous(), lr[:, 1].contiguous())

    def _moving(self, step: int, batch: int) -> Moving:
        c = self.config
        return moving_pairs(self.stills, c.seed, step, batch=batch, size=c.size, reach=c.reach)

    @torch.no_grad()
    def score(self, model: nn.Module) -> tuple[float, float]:
        """PSNR on Y between held-out neighbours, as they are and with one warped onto the other."""
        if not self.held_pairs:
            return 0.0, -end_point_error(model, self.held_moving)
        still, warped = [], []
        for a, b in self.held_pairs:
            to_b, _ = model(a, b)
            still.append(mean_psnr_y(b, a))
            warped.append(mean_psnr_y(warp(b, to_b, padding="border"), a))
        return sum(still) / len(still), sum(warped) / len(warped)


def flow_optimizers(model: nn.Module) -> list[Optimizer]:
    """Muon inside, Adam for what touches pixels and flows."""
    matrices = inner_matrices(model)
    inside = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in inside]
    return [
        Adam([{"params": rest, "scale": 1.0}], lr=0.0, betas=(0.9, 0.99)),
        Muon([{"params": matrices, "scale": 1.0}], lr=0.0),
    ]


def read_stills(folder: Path) -> list[NDArray[np.uint8]]:
    """Every picture of a folder at half its size, as sharp as a picture can be."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; a folder of pictures was wanted")
    paths = sorted(p for p in folder.iterdir() if is_image(p))
    if not paths:
        raise DataError(f"{folder} holds no pictures")
    return [_halved(read_picture(path)) for path in paths]


def _halved(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    half = imresize(to_clip(pixels[None]), Fraction(1, 2))[0].clamp(0, 1)
    return (half * 255).round().byte().permute(1, 2, 0).numpy()


def flow_loss(model: nn.Module, pairs: Moving) -> Tensor:
    """Distance between found and known flow relative to the pair's motion, over all levels.

    Relative, because else the few large motions would drown the many small ones.
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
def end_point_error(model: nn.Module, pairs: Moving) -> float:
    """Mean distance in pixels between found and known flow."""
    truth = torch.cat([pairs.a_to_b, pairs.b_to_a], 1)
    return float(_distance(torch.cat(model(pairs.a, pairs.b), 1), truth, pairs))


def _distance(found: Tensor, truth: Tensor, pairs: Moving) -> Tensor:
    """Mean over what can be seen; motion that ends outside of the frame counts a tenth."""
    weight = torch.cat([_inside(pairs.a_to_b), _inside(pairs.b_to_a)], 1)
    square = (found - truth).square()
    distance = torch.stack([square[:, :2].sum(1), square[:, 2:].sum(1)], 1)
    return ((distance + 1e-6).sqrt() * weight).sum() / weight.sum()


def _inside(flow: Tensor) -> Tensor:
    """1 where the motion ends inside of the frame, 0.1 elsewhere: (N, 2, H, W) -> (N, 1, H, W)."""
    ones = torch.ones_like(flow[:, :1])
    return 0.1 + 0.9 * (warp(ones, flow) > 0.99)


def photometric(model: nn.Module, a: Tensor, b: Tensor) -> Tensor:
    """How badly each frame, warped, explains the other; with a price on flow that is not smooth."""
    to_b, to_a = model(a, b)
    return 0.5 * (_unexplained(a, b, to_b, to_a) + _unexplained(b, a, to_a, to_b))


def _unexplained(a: Tensor, b: Tensor, to_b: Tensor, to_a: Tensor) -> Tensor:
    with torch.no_grad():  # what is hidden in b has no partner there: the way back misses
        back = warp(to_a, to_b, padding="border")
        missed = (to_b + back).square().sum(1, keepdim=True)
        length = to_b.square().sum(1, keepdim=True) + back.square().sum(1, keepdim=True)
        seen = (missed < 0.01 * length + 0.5) * warp(torch.ones_like(a[:, :1]), to_b).ge(0.99)
    difference = warp(b, to_b, padding="border") - a
    error = (difference.square() + 1e-6).sqrt().mean(1, keepdim=True)
    return 20 * (error * seen).mean() + 0.1 * _roughness(to_b, a)


def _roughness(flow: Tensor, frame: Tensor) -> Tensor:
    """Second differences of the flow, cheaper across edges of the frame."""
    rough = flow.new_zeros(())
    for axis in (-1, -2):
        slope = frame.diff(dim=axis).abs().mean(1, keepdim=True)
        edges = torch.maximum(slope.narrow(axis, 0, slope.shape[axis] - 1),
                              slope.narrow(axis, 1, slope.shape[axis] - 1))  # fmt: skip
        bend = flow.diff(2, dim=axis).square().add(1e-6).sqrt()
        rough = rough + (bend * torch.exp(-10 * edges)).mean()
    return rough
