"""Fit a model to one's own footage: its frames are the HR, made smaller they are the LR."""

import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from vsrkit.data.clips import Clip, OnProgress
from vsrkit.errors import DataError, StoppedError, WeightsError
from vsrkit.hardware.precision import PrecisionName, resolve_precision, set_memory_layout
from vsrkit.models.zoo import load_model, save_model
from vsrkit.train.config import Source, TrainConfig
from vsrkit.train.loop import train
from vsrkit.train.sources import open_data
from vsrkit.train.validate import score

log = logging.getLogger("vsrkit")


@dataclass(frozen=True, slots=True)
class Finetuned:
    """PSNR on Y of shots that were not learnt from, before and after."""

    before: float
    after: float

    @property
    def better(self) -> bool:
        """Whether the new weights were kept."""
        return self.after > self.before

    def __str__(self) -> str:
        verdict = "kept" if self.better else "worse, so the old weights were kept"
        return (
            f"held-out shots: {self.before:.3f} dB before, {self.after:.3f} dB after "
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
    device: str = "cpu",
    workers: int = 1,
    on_progress: OnProgress | None = None,
) -> Finetuned:
    """Train `model` on the videos for a short while; write the better of old and new weights.

    Shots are held out of each video (the end of it, if it is one shot) and scored before and
    after. degradation: how the LR frames are made, as in a recipe: `bi` for clean footage,
    `crf15-35` or `realistic` for what has been compressed.
    """
    if not videos:
        raise DataError("no videos; name at least one")
    if output.suffix != ".safetensors":
        raise WeightsError(f"{output} must end in .safetensors, that is what is written")
    output.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".finetune-", dir=output.parent) as folder:
        old = Path(folder) / "old.safetensors"
        start = load_model(model)
        if not any(True for _ in start.parameters()):
            raise WeightsError(f"{model} has no weights that could learn; name another model")
        save_model(old, start)
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
            flow_learning_rate_scale=0.0,  # Muon makes large steps of its faint gradient
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
        shares, held = open_data(config, on_progress)
        clips = [clip for share in shares for clip in share.clips]
        config = _fitted(config, clips, start.spec.scale)  # type: ignore[arg-type, union-attr]
        chosen = resolve_precision(precision, start, device)
        set_memory_layout(start.to(device), chosen)
        before, _ = score(start, held, chosen, device)
        log.info("held-out shots: %.3f dB before", before)
        try:
            progress = train(config, on_progress=on_progress)
        except StoppedError as error:
            reason = str(error).split(";")[0]
            raise StoppedError(f"{reason}; nothing was written, the old weights stay") from error
        result = Finetuned(before, progress.best)
        best = Path(config.run_dir) / "best.safetensors"
        shutil.move(best if result.better else old, output)
    return result


def _fitted(config: TrainConfig, clips: Sequence[Clip], scale: int) -> TrainConfig:
    """The config with as many frames and as large a crop as short or small footage has."""
    frames = min(config.frames, max(len(clip) for clip in clips))
    sides = [min(clip.shape[1:3]) for clip in clips if len(clip) >= frames]
    return replace(config, frames=frames, crop=max(1, min(config.crop, max(sides) // scale)))
