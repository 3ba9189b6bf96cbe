"""Train a model further on given videos: their frames are HR, their degraded frames LR."""

import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeAlias

from torch import nn

from vsrkit.data.clips import Clip, OnProgress
from vsrkit.errors import DataError, StoppedError, WeightsError
from vsrkit.evaluate.perceptual import load_lpips
from vsrkit.hardware.device import (
    FloatName,
    resolve_device,
    resolve_precision,
    set_memory_layout,
)
from vsrkit.models.zoo import load_model, save_model
from vsrkit.train.config import Source, TrainConfig
from vsrkit.train.loop import train
from vsrkit.train.losses import AlongFlow
from vsrkit.train.settings import Losses
from vsrkit.train.training_data import open_data
from vsrkit.train.validation import ValidationMetric, score, signed, titled

log = logging.getLogger("vsrkit")

Goal: TypeAlias = Literal["psnr", "eyes"]


@dataclass(frozen=True, slots=True)
class Finetuned:
    """Score of the validation shots before and after training."""

    before: float
    after: float
    metric: ValidationMetric = "psnr_y"

    @property
    def better(self) -> bool:
        """Whether the new weights score higher and were written."""
        return signed(self.after, self.metric) > signed(self.before, self.metric)

    def __str__(self) -> str:
        verdict = "new weights written" if self.better else "not better, old weights written"
        before, after = (titled(value, self.metric) for value in (self.before, self.after))
        change = self.after - self.before
        change_text = f"{change:+.4f}" if self.metric == "lpips" else f"{change:+.3f} dB"
        return f"validation shots: {before} before, {after} after ({change_text}): {verdict}"


def finetune(
    videos: Sequence[Path],
    output: Path,
    *,
    model: str = "vsrt-s",
    goal: Goal = "psnr",
    steps: int = 300,
    degradation: str = "bi",
    frames: int = 7,
    crop: int = 48,
    precision: FloatName = "auto",
    device: str = "auto",
    workers: int = 1,
    on_progress: OnProgress | None = None,
) -> Finetuned:
    """Train a model on videos for some steps; write the better of the old and new weights.

    Some shots of each video (or the end of its only shot) are held out and scored before and after
    training.

    Args:
        videos: video files.
        output: weight file to write, with the suffix .safetensors.
        model: name of a model or a weight file to start from.
        goal: psnr, the smallest error, or eyes, the most natural look: with perceptual and
            adversarial losses, and LPIPS as the score. Needs the weights of LPIPS.
        steps: number of training steps.
        degradation: how LR frames are made, as in a recipe: `bi` for clean footage, `crf15-35` or
            `realistic` for compressed footage.
        frames: frames of each training clip; fewer if the footage is shorter.
        crop: side of the training crop in LR pixels; smaller if the footage is smaller.
        precision: number type of the forward pass.
        device: device to train on, as for `resolve_device`.
        workers: processes that prepare batches.
        on_progress: called while clips are decoded, with the name of the clip, the clips done and
            their number.
    """
    if not videos:
        raise DataError("no videos; give at least one")
    if goal == "eyes":
        load_lpips("vgg16")  # fail before training
    device = resolve_device(device)
    if output.suffix != ".safetensors":
        raise WeightsError(f"the output must end in .safetensors, got {output}")
    output.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".finetune-", dir=output.parent) as folder:
        old = Path(folder) / "old.safetensors"
        initial = load_model(model)
        if not any(True for _ in initial.parameters()):
            raise WeightsError(f"{model} has no trainable weights; choose another model")
        save_model(old, initial)
        config = TrainConfig(
            run_dir=str(Path(folder) / "run"),
            data=tuple(Source(path=str(v), degradation=degradation) for v in videos),
            model=str(old),
            validation_share=0.2,
            **_settings(goal, initial),
            steps=steps,
            batch_size=2,
            frames=frames,
            crop=crop,
            optimizer="muon",
            flow_learning_rate_scale=0.0,  # see recipes/vsrt_s.py
            minimum_learning_rate=1e-6,
            warmup_steps=min(20, steps),
            ema_decay=0.99,
            precision=precision,
            device=device,
            workers=workers,
            validate_every=max(1, steps // 3),
            save_every=steps,
        )
        sources, validation = open_data(config, on_progress)
        clips = [clip for source in sources for clip in source.clips]
        config = _fit_to_footage(config, clips, initial.spec.scale)  # type: ignore[arg-type, union-attr]
        chosen = resolve_precision(precision, initial, device)
        set_memory_layout(initial.to(device), chosen)
        metric = config.validation_metric
        before, _ = score(initial, validation, chosen, device, metric=metric)
        log.info("validation shots: %s before", titled(before, metric))
        try:
            progress = train(config, on_progress=on_progress)
        except StoppedError as error:
            reason = str(error).split(";")[0]
            raise StoppedError(f"{reason}; nothing was written") from error
        result = Finetuned(before, signed(progress.best, metric), metric)
        best = Path(config.run_dir) / "best.safetensors"
        shutil.move(best if result.better else old, output)
    return result


def _fit_to_footage(config: TrainConfig, clips: Sequence[Clip], scale: int) -> TrainConfig:
    """The config with `frames` and `crop` reduced to the size of short or small footage."""
    frames = min(config.frames, max(len(clip) for clip in clips))
    sides = [min(clip.shape[1:3]) for clip in clips if len(clip) >= frames]
    crop = max(1, min(config.crop, max(sides) // scale))
    return replace(config, frames=frames, crop=crop)


def _settings(goal: Goal, model: nn.Module) -> dict[str, Any]:
    """The settings of a run that depend on its goal.

    For eyes the terms are those of recipes/vsrt_s_vivid.py, with a weaker `gan`; those that need
    flow are left out for models without it. The steps are small: a few hundred of them on little
    footage must not undo what the model has learnt.
    """
    if goal == "psnr":
        return {"learning_rate": 3e-4, "clip_gradients": 0.5}
    losses = Losses(
        pixel=2.0,
        perceptual=0.5,
        gan=0.1,
        steadiness=6.0,
        grid=0.04,
        spectrum=0.04,
        colour=10.0,
        window=128,
        gan_frames=3,
    )
    if not isinstance(model, AlongFlow):
        losses = replace(losses, steadiness=0.0, gan_frames=1)
    return {
        "learning_rate": 1e-4,
        "clip_gradients": 1.0,
        "validation_metric": "lpips",
        "losses": losses,
    }
