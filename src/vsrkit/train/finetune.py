"""Train a model further on given videos: their frames are HR, their degraded frames LR."""

import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from vsrkit.data.clips import Clip, OnProgress
from vsrkit.errors import DataError, StoppedError, WeightsError
from vsrkit.hardware.device import (
    PrecisionName,
    resolve_device,
    resolve_precision,
    set_memory_layout,
)
from vsrkit.models.zoo import load_model, save_model
from vsrkit.train.config import Source, TrainConfig
from vsrkit.train.loop import train
from vsrkit.train.training_data import open_data
from vsrkit.train.validation import score

log = logging.getLogger("vsrkit")


@dataclass(frozen=True, slots=True)
class Finetuned:
    """PSNR on Y of the validation shots in dB, before and after training."""

    before: float
    after: float

    @property
    def better(self) -> bool:
        """Whether the new weights score higher and were written."""
        return self.after > self.before

    def __str__(self) -> str:
        verdict = "new weights written" if self.better else "not better, old weights written"
        return (
            f"validation shots: {self.before:.3f} dB before, {self.after:.3f} dB after "
            f"({self.after - self.before:+.3f} dB): {verdict}"
        )


def finetune(
    videos: Sequence[Path],
    output: Path,
    *,
    model: str = "vsrt-s",
    steps: int = 300,
    degradation: str = "bi",
    frames: int = 7,
    crop: int = 48,
    precision: PrecisionName = "auto",
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
            steps=steps,
            batch_size=2,
            frames=frames,
            crop=crop,
            optimizer="muon",
            learning_rate=3e-4,
            flow_learning_rate_scale=0.0,  # see recipes/vsrt_s.py
            minimum_learning_rate=1e-6,
            warmup_steps=min(20, steps),
            clip_gradients=0.5,
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
        before, _ = score(initial, validation, chosen, device)
        log.info("validation shots: %.3f dB before", before)
        try:
            progress = train(config, on_progress=on_progress)
        except StoppedError as error:
            reason = str(error).split(";")[0]
            raise StoppedError(f"{reason}; nothing was written") from error
        result = Finetuned(before, progress.best)
        best = Path(config.run_dir) / "best.safetensors"
        shutil.move(best if result.better else old, output)
    return result


def _fit_to_footage(config: TrainConfig, clips: Sequence[Clip], scale: int) -> TrainConfig:
    """The config with `frames` and `crop` reduced to the size of short or small footage."""
    frames = min(config.frames, max(len(clip) for clip in clips))
    sides = [min(clip.shape[1:3]) for clip in clips if len(clip) >= frames]
    return replace(config, frames=frames, crop=max(1, min(config.crop, max(sides) // scale)))
