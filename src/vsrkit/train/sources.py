"""What a run learns from and what it is scored on, as its config says."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vsrkit.data.clips import Clip, OnProgress, Unreadable, hold_out, open_clips
from vsrkit.data.random_degradation import degrader_named
from vsrkit.hardware.cache import cache_directory
from vsrkit.hardware.precision import resolve_precision
from vsrkit.train.batches import Batches, Share
from vsrkit.train.config import ConfigError, TrainConfig
from vsrkit.train.distill.distillation import teacher_named
from vsrkit.train.distill.teacher_outputs import answer_clips
from vsrkit.train.processes import Processes, own_device
from vsrkit.train.validate import Held, held_pieces


def open_data(
    config: TrainConfig, on_progress: OnProgress | None
) -> tuple[list[Share], list[Held]]:
    """The clips to learn from, by source, and pieces of those held out."""
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
        rest, out = clips, clips
        if not config.validation_overlaps:
            rest, out = hold_out(clips, config.validation, config.validation_share)
        degradation = degrader_named(source.degradation or config.degradation)
        share = Share(clips=rest, weight=source.weight, degradation=degradation)
        if config.learns_frames:
            share = with_answers(share, config, cache, on_progress)
        shares.append(share)
        held += held_pieces(out, degradation, config.validation_frames, config.validation_crop)
    return shares, held


def with_answers(
    share: Share, config: TrainConfig, cache: Path, on_progress: OnProgress | None
) -> Share:
    """The clips with what the teacher makes of their beginnings."""
    teacher, device = teacher_named(config.teacher), own_device(config.device)
    answers = answer_clips(
        [beginning(clip, config.teacher_frames) for clip in share.clips],
        teacher.to(device),
        cache,
        precision=resolve_precision(config.precision, teacher, device),
        device=device,
        on_progress=on_progress,
    )
    return replace(share, answers=answers, hr_share=config.teacher_hr_share)


def beginning(clip: Clip, frames: int) -> Clip:
    """The first frames of a clip."""
    return replace(clip, shape=(min(frames, len(clip)), *clip.shape[1:]))


def batches_of(
    config: TrainConfig, shares: Sequence[Share], processes: Processes | None = None
) -> Batches:
    """What the config says of batches, for this process."""
    return Batches(
        shares=shares,
        seed=config.seed,
        batch_size=config.batch_size,
        accumulate=config.accumulate,
        frames=config.frames,
        crop=config.crop,
        flips=config.flips,
        reversal=config.reversal,
        rank=processes.rank if processes else 0,
        processes=processes.count if processes else 1,
        distinct=config.distinct_clips,
    )
