"""Measure the clips of a set on the workers of an executor."""

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from torch import nn

from vsrkit.cluster.executor import DaskExecutor
from vsrkit.cluster.files import SharedFiles
from vsrkit.data.clips import OnProgress
from vsrkit.data.frames import FrameFiles, Frames
from vsrkit.data.sets import FrameSet, PairedClip
from vsrkit.evaluate.measure import ClipResult, Stopwatch, measure_clip, with_tiles
from vsrkit.evaluate.metrics import Metric
from vsrkit.evaluate.protocol import Protocol
from vsrkit.hardware.device import CANDIDATES, PrecisionName
from vsrkit.hardware.executors import map_in_order
from vsrkit.hardware.files import file_digest, write_atomically
from vsrkit.hardware.memory import PeakMemory
from vsrkit.hardware.threads import leave_parent_threads
from vsrkit.inference.engine import Engine, make_engine
from vsrkit.inference.reference import EngineReference, refer
from vsrkit.models.ensemble import Ensemble


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipTask:
    """A clip to measure, by value.

    hr, lr: the files of the clip; None if the set has no LR frames.
    views: of the ensemble, 1 for none.
    keep_frames: return the upscaled frames.
    """

    reference: EngineReference
    clip: PairedClip
    hr: SharedFiles
    lr: SharedFiles | None
    protocol: Protocol
    metrics: tuple[Metric, ...]
    views: int
    keep_frames: bool


@dataclass(frozen=True, slots=True)
class ClipAnswer:
    """The scores of a clip, the time of the model, and the upscaled frames by name."""

    result: ClipResult
    watch: Stopwatch
    peak_mb: float
    frames: tuple[tuple[str, bytes], ...]


def run_clip(task: ClipTask) -> ClipAnswer:
    """Measure a clip, in whichever process this is called."""
    leave_parent_threads()
    engine, memory, watch = task.reference.open(), PeakMemory(task.reference.device), Stopwatch()
    if task.views > 1:
        ensemble = Ensemble(engine.model, task.views)
        engine = make_engine(ensemble, precision=engine.precision, device=engine.device)
    engine = with_tiles(engine, task.protocol)
    clip = replace(
        task.clip,
        hr=_located(task.clip.hr, task.hr),
        lr=_located(task.clip.lr, task.lr) if task.clip.lr and task.lr else None,
    )
    with TemporaryDirectory() as name:
        folder = Path(name) if task.keep_frames else None
        result = measure_clip(engine, clip, task.protocol, task.metrics, watch, folder, None)
        written = sorted(path for path in Path(name).rglob("*") if path.is_file())
        frames = tuple((str(path.relative_to(name)), path.read_bytes()) for path in written)
    return ClipAnswer(result, watch, memory.peak_mb(), frames)


def _located(frames: Frames, files: SharedFiles) -> Frames:
    """The frames with the paths that they have on this machine."""
    paths = files.locate()
    if isinstance(frames, FrameFiles):
        return FrameFiles(paths)
    return replace(frames, path=paths[0])


def _shared(frames: Frames) -> SharedFiles:
    images = isinstance(frames, FrameFiles)
    paths = frames.paths if isinstance(frames, FrameFiles) else (frames.path,)
    paths = tuple(path.absolute() for path in paths)
    return SharedFiles(file_digest(paths, with_names=images), paths, with_names=images)


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """A model on the workers of an executor."""

    executor: Executor
    reference: EngineReference
    views: int

    @classmethod
    def open(
        cls,
        executor: Executor,
        name: str,
        model: nn.Module,
        precision: PrecisionName,
        device: str,
        views: int,
    ) -> "RemoteModel":
        """Let the workers agree on precision and device, as for `evaluate_models`.

        name: of the model, or its checkpoint file.
        model: loaded, without the ensemble of `views`.
        """
        if not isinstance(executor, DaskExecutor):
            return cls(executor, refer(make_engine(model, precision=precision), name), views)
        reference = refer(Engine(model, CANDIDATES[0]), name)
        agreed = executor.agree(reference, precision=precision, device=device)
        reference = replace(reference, precision=agreed.precision, device=agreed.device)
        return cls(executor, reference, views)

    def measure(
        self,
        frame_set: FrameSet,
        protocol: Protocol,
        metrics: Sequence[Metric],
        watch: Stopwatch,
        save_frames: Path | None,
        on_progress: OnProgress | None,
    ) -> tuple[tuple[ClipResult, ...], float]:
        """Scores of all clips and the peak memory in MB; arguments as for `measure_clip`."""
        tasks = [
            ClipTask(
                reference=self.reference,
                clip=clip,
                hr=_shared(clip.hr),
                lr=_shared(clip.lr) if clip.lr else None,
                protocol=protocol,
                metrics=tuple(metrics),
                views=self.views,
                keep_frames=save_frames is not None,
            )
            for clip in frame_set.clips
        ]
        if isinstance(self.executor, DaskExecutor):
            for task in tasks:
                for files in (task.hr, task.lr):
                    if files:
                        self.executor.share(files)
        results, peak = [], 0.0
        for task, answer in zip(tasks, map_in_order(self.executor, run_clip, tasks), strict=True):
            results.append(answer.result)
            watch.seconds += answer.watch.seconds
            watch.frames += answer.watch.frames
            peak = max(peak, answer.peak_mb)
            if save_frames:
                for name, content in answer.frames:
                    write_atomically(save_frames / name, content)
            if on_progress:
                on_progress(task.clip.name, len(task.clip.hr), len(task.clip.hr))
        return tuple(results), peak
