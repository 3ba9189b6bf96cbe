"""The data of a run: opened sources, batches of crops to train on, and validation clips.

Every batch is a pure function of the seed and the number of the step.
"""

import logging
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from vsrkit.data.augment import Placement, cut, cut_hr, place
from vsrkit.data.clips import (
    Clip,
    OnProgress,
    Unreadable,
    hold_out,
    open_clips,
    open_sources,
)
from vsrkit.data.degrade import Degrader, degrader_named
from vsrkit.data.sets import TrainingSplit, locate_training_set, open_training_set
from vsrkit.errors import DataError
from vsrkit.hardware.device import resolve_training_precision
from vsrkit.hardware.files import cache_directory
from vsrkit.models.zoo import MODELS, build_model, load_model
from vsrkit.train.config import TrainConfig
from vsrkit.train.distill.teacher_outputs import load_teacher, teacher_clips
from vsrkit.train.processes import ALONE, Processes, process_device
from vsrkit.train.settings import ConfigError

log = logging.getLogger("vsrkit")

T = TypeVar("T")
Batch: TypeAlias = tuple[Tensor, Tensor]  # lr (B, T, 3, H, W), target (B, T, 3, sH, sW)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSource:
    """The opened training clips of one data source."""

    clips: Sequence[Clip]
    weight: float
    degradation: Degrader
    teacher_clips: Sequence[Clip] = ()  # the teacher's output for each clip, or for its beginning
    hr_share: float = 0.0  # share of HR in the target, with teacher clips

    @property
    def drawable(self) -> Sequence[Clip]:
        """The part of each clip that may be drawn."""
        return self.teacher_clips or self.clips


@dataclass(frozen=True, slots=True)
class ClipPair:
    """A clip in both resolutions."""

    name: str
    lr: Tensor  # (T, 3, H, W) in [0, 1]
    hr: Tensor  # (T, 3, sH, sW) in [0, 1]


@dataclass(frozen=True, slots=True)
class ValidationClip:
    """A held-out clip in both resolutions, as 8-bit pixels; every degradation rounds to them."""

    name: str
    lr_pixels: Tensor  # (T, 3, H, W) uint8
    hr_pixels: Tensor  # (T, 3, sH, sW) uint8

    @classmethod
    def of(cls, pair: ClipPair) -> Self:
        """The same clip with a quarter of the memory."""
        return cls(pair.name, *((x * 255).round().byte() for x in (pair.lr, pair.hr)))

    @property
    def lr(self) -> Tensor:
        """(T, 3, H, W) in [0, 1]."""
        return self.lr_pixels.float() / 255

    @property
    def hr(self) -> Tensor:
        """(T, 3, sH, sW) in [0, 1]."""
        return self.hr_pixels.float() / 255


def open_data(
    config: TrainConfig, on_progress: OnProgress | None, processes: Processes = ALONE
) -> tuple[list[TrainingSource], list[ValidationClip]]:
    """Decode the sources of a run and split them into training and validation clips.

    Args:
        config: settings of the run.
        on_progress: called with the name of each clip, the clips done and their number.
        processes: of the run; each has its share of the validation clips.
    """
    if not config.data:
        raise ConfigError("no data: name a video or a folder, for instance --set data=my-videos")
    cache = Path(config.cache_dir or cache_directory() / "frames")
    unreadable = Unreadable(config.unreadable_limit)
    sources, validation = [], []
    scale = scale_of(config.model)
    for source in config.data:
        options: Any = {
            "unreadable": unreadable,
            "max_frames": source.max_frames,
            "on_progress": on_progress,
        }
        if named := locate_training_set(source.path, config.data_root):
            split = open_training_set(*named)
            if processes.is_main:
                for note in split.notes:
                    log.warning("%s", note)
            training, held_out = _open_split(split, config, cache, **options)
        else:
            training = held_out = open_clips(Path(source.path), cache, **options)
            if not config.validation_overlaps:
                training, held_out = hold_out(training, config.validation, config.validation_share)
        how = degrader_named(source.degradation or config.degradation, scale)
        sources.append(TrainingSource(clips=training, weight=source.weight, degradation=how))
        validation += [
            partial(middle_of, clip, n, how, config.validation_frames, config.validation_crop)
            for n, clip in enumerate(held_out)
        ]
    if config.learns_frames:
        sources = _with_teacher_clips(sources, config, cache, on_progress)
    own = [ValidationClip.of(cut_clip()) for cut_clip in processes.share(validation)]
    return sources, own


def scale_of(model: str) -> int:
    """The scale of a named model or a weight file."""
    built = build_model(model) if model in MODELS else load_model(model)
    return built.spec.scale  # type: ignore[union-attr,return-value]


def _open_split(
    split: TrainingSplit, config: TrainConfig, cache: Path, **options: Any
) -> tuple[list[Clip], list[Clip]]:
    """The decoded training and validation clips of a published set.

    Its folders are clips of one shot each. `validation` replaces the clips it is validated on, but
    does not make those training clips: REDS4 is never trained on.

    options: as for `open_sources`.
    """
    folders = {c.name: c.hr.place for c in (*split.training, *split.validation)}
    clips = open_sources(list(folders.items()), cache, split_shots=False, **options)
    allowed = {clip.name for clip in split.training}
    training = [clip for clip in clips if clip.name in allowed]
    if config.validation_overlaps:
        return training, training
    if not config.validation:
        return training, [clip for clip in clips if clip.name not in allowed]
    rest, held_out = hold_out(clips, config.validation, 0.0)
    return [clip for clip in rest if clip.name in allowed], held_out


def _with_teacher_clips(
    sources: Sequence[TrainingSource],
    config: TrainConfig,
    cache: Path,
    on_progress: OnProgress | None,
) -> list[TrainingSource]:
    """The sources with the teacher's output for the first frames of each clip."""
    teacher, device = load_teacher(config.teacher), process_device(config.device)
    precision = resolve_training_precision(config.precision, teacher.to(device), device)
    found = []
    for source in sources:
        shapes = [(min(config.teacher_frames, len(c)), *c.shape[1:]) for c in source.clips]
        outputs = teacher_clips(
            [replace(clip, shape=s) for clip, s in zip(source.clips, shapes, strict=True)],
            teacher,
            cache,
            precision=precision,
            device=device,
            on_progress=on_progress,
        )
        found.append(replace(source, teacher_clips=outputs, hr_share=config.teacher_hr_share))
    return found


def validation_clips(
    clips: Sequence[Clip], degradation: Degrader, frames: int, crop: int = 0
) -> list[ValidationClip]:
    """The middle of each clip in both resolutions; arguments as for `middle_of`."""
    middles = (middle_of(clip, n, degradation, frames, crop) for n, clip in enumerate(clips))
    return [ValidationClip.of(middle) for middle in middles]


def middle_of(clip: Clip, seed: int, degradation: Degrader, frames: int, crop: int = 0) -> ClipPair:
    """The middle of a clip in both resolutions.

    Args:
        clip: the decoded HR clip.
        seed: seed of a random degradation.
        degradation: makes the LR frames.
        frames: frames to take; all, if the clip is shorter.
        crop: LR pixels along each side of the centre crop; 0: whole frames.
    """
    h, w = (side // degradation.scale for side in clip.shape[1:3])
    size = t, rows, columns = min(frames, len(clip)), min(crop or h, h), min(crop or w, w)
    middle = Placement((len(clip) - t) // 2, (h - rows) // 2, (w - columns) // 2)
    rng = np.random.default_rng(seed)
    return ClipPair(clip.name, *cut(clip.frames, middle, degradation, rng, size))


@dataclass(frozen=True, kw_only=True)
class Batches:
    """The batches of each step of one process.

    In each step all processes together draw the next n pairs of one endless list, so that two
    processes see the same pairs as one process with twice the batch size.
    """

    sources: Sequence[TrainingSource]
    seed: int
    batch_size: int
    accumulate: int
    frames: int
    crop: int
    flips: bool
    reversal: bool
    rank: int = 0
    processes: int = 1
    distinct: int = 0  # pairs in the list, which is then repeated; 0: no limit

    def __post_init__(self) -> None:
        if not any(source.weight for source in self.sources):
            raise DataError("every source has weight 0; raise the weight of one of them")
        if not self._shares[-1]:
            raise DataError(
                f"no clip has {self.frames} frames and room for a crop of {self.crop} LR pixels; "
                "use longer or larger clips, or lower `frames` or `crop`"
            )

    def step(self, step: int) -> list[Batch]:
        """The `accumulate` batches of a step."""
        size, numbers = self.batch_size, self._numbers(step)
        batches = []
        for i in range(0, len(numbers), size):
            lr, target = zip(*map(self.pair, numbers[i : i + size]), strict=True)
            batches.append((torch.stack(lr), torch.stack(target)))
        return batches

    def pair(self, number: int) -> tuple[Tensor, Tensor]:
        """Pair `number` of the endless list: LR (T, 3, H, W) and its target (T, 3, sH, sW).

        The target is HR, the output of a teacher, or a mean of both.
        """
        rng, source, chosen, where = self._draw(number)
        size = (self.frames, self.crop, self.crop)
        lr, hr = cut(source.clips[chosen].frames, where, source.degradation, rng, size)
        if not source.teacher_clips:
            return lr, hr
        output = cut_hr(source.teacher_clips[chosen].frames, where, source.degradation.scale, size)
        return lr, torch.lerp(output, hr, source.hr_share)

    def describe(self, step: int, part: int = -1) -> str:
        """The clips and frame numbers of a batch of a step, for messages; part -1: of all."""
        numbers = self._numbers(step)
        if part >= 0:
            numbers = numbers[part * self.batch_size : (part + 1) * self.batch_size]
        texts = []
        for number in numbers:
            _, source, chosen, where = self._draw(number)
            clip = source.clips[chosen]
            first = clip.first + where.start
            texts.append(f"{clip.name} (frames {first} to {first + self.frames - 1})")
        return ", ".join(texts)

    def _numbers(self, step: int) -> range:
        """The numbers of this process's pairs of a step in the endless list."""
        size = self.accumulate * self.batch_size
        first = (step * self.processes + self.rank) * size
        return range(first, first + size)

    def _draw(self, number: int) -> tuple[np.random.Generator, TrainingSource, int, Placement]:
        """Pair `number`: random numbers for its degradation, its source, clip and position."""
        if self.distinct:
            number %= self.distinct
        rng = np.random.default_rng([self.seed, number])
        drawn = draw(self._shares, rng)
        source, chosen = self.sources[drawn], draw(self._windows[drawn], rng)
        where = place(
            rng,
            source.drawable[chosen].shape[:3],
            frames=self.frames,
            crop=self.crop,
            scale=source.degradation.scale,
            flips=self.flips,
            reversal=self.reversal,
        )
        return rng, source, int(chosen), where

    # Both tables are built once: Vimeo-90K has 64,548 clips, and counting the windows of all of
    # them took three quarters of the time of each pair.
    @cached_property
    def _windows(self) -> list[NDArray[np.float64]]:
        """For each source, the cumulative shares of its clips; all windows are equally likely."""
        tables = []
        for source in self.sources:
            side, shapes = self.crop * source.degradation.scale, [c.shape for c in source.drawable]
            fitting = [t - self.frames + 1 if min(h, w) >= side else 0 for t, h, w, _ in shapes]
            tables.append(cumulative(np.maximum(0, np.array(fitting, dtype=np.int64))))
        return tables

    @cached_property
    def _shares(self) -> NDArray[np.float64]:
        """The cumulative shares of the sources; those without a window are never drawn."""
        pairs = zip(self.sources, self._windows, strict=True)
        return cumulative(np.array([s.weight if windows[-1] else 0.0 for s, windows in pairs]))


def cumulative(weights: NDArray[Any]) -> NDArray[np.float64]:
    """The cumulative shares of weights, for `draw`: they end with 1; all are 0 if no weight is."""
    total = weights.sum()
    if not total:
        return np.zeros(max(1, len(weights)))
    shares: NDArray[np.float64] = (weights / total).cumsum()
    return shares / shares[-1]


def draw(shares: NDArray[np.float64], rng: np.random.Generator) -> int:
    """Draw an index, the same as `rng.choice(len(weights), p=weights / weights.sum())`."""
    return int(shares.searchsorted(rng.random(), side="right"))


def make_batches(
    config: TrainConfig, sources: Sequence[TrainingSource], processes: Processes | None = None
) -> Batches:
    """The batches of a run for one of its processes (None: the only one)."""
    return Batches(
        sources=sources,
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


class _Steps(Dataset[Any]):
    """The results of `make` for each step as a data set for PyTorch's loader."""

    def __init__(self, make: Callable[[int], Any], steps: range) -> None:
        self.make, self.steps = make, steps

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, index: int) -> Any:
        return self.make(self.steps[index])


def prefetch(make: Callable[[int], T], steps: range, *, workers: int) -> Iterable[T]:
    """`make(step)` for each step in order, computed by worker processes while the model trains.

    Processes instead of threads: two threads that both use all cores slow each other down. With 0
    workers, each result is computed in this process when it is needed.
    """
    return DataLoader(
        _Steps(make, steps), batch_size=None, num_workers=workers, worker_init_fn=_ignore_signals
    )


def _ignore_signals(_: int) -> None:
    """Ignore Ctrl-C in workers; the training process ends them after its last step."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
