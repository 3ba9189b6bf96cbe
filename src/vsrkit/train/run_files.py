"""The files of a training run, its log and its timing.

    run_dir/config.json          the settings
    run_dir/log.jsonl            the log, one JSON object for each line
    run_dir/state.safetensors    weights, average, optimizers and step: resumes the run exactly
    run_dir/last.safetensors     the newest model (the average of its weights, if there is one)
    run_dir/best.safetensors     the model with the highest validation score
    run_dir/discriminator.safetensors   the average of the discriminator, if there is one

Every file is written to a temporary name and renamed once it is complete.
"""

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from vsrkit.errors import VsrkitError
from vsrkit.hardware.files import temporary_path, write_atomically

log = logging.getLogger("vsrkit")

STATE = "state.safetensors"
DISCRIMINATOR = "discriminator.safetensors"


class CheckpointError(VsrkitError):
    """The state of a run cannot be written or read, or is of another model or optimizer."""


@dataclass(slots=True)
class TrainingProgress:
    """How far a run has come."""

    step: int = 0  # completed steps
    best: float = float("-inf")  # best validation score so far; LPIPS with its sign reversed
    best_step: int = 0


def save_state(
    path: Path,
    models: Mapping[str, nn.Module],
    optimizers: Sequence[Optimizer],
    progress: TrainingProgress,
    scaler: GradScaler | None = None,
) -> None:
    """Write all state that the next step depends on, so that a resumed run gives equal results.

    Args:
        path: file to write.
        models: by name: the model in training, the average of its weights, and others.
        optimizers: the optimizers of the models.
        progress: step and best score.
        scaler: scale of the loss in float16.
    """
    tensors = {
        f"{name}.{k}": v for name, model in models.items() for k, v in model.state_dict().items()
    }
    tensors |= dict(_optimizer_tensors(optimizers))
    on_cpu = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    metadata = {
        "step": str(progress.step),
        "best": repr(progress.best),
        "best_step": str(progress.best_step),
        "scaler": json.dumps(scaler.state_dict() if scaler else {}),
    }
    try:
        with temporary_path(path) as temporary:
            save_file(on_cpu, temporary, metadata=metadata)
    except (OSError, SafetensorError) as error:
        if path.exists():
            then = "the previous state is intact: free some space and continue with --resume"
        else:
            then = "no earlier state was saved: free some space and start again"
        raise CheckpointError(f"cannot write {path} ({error}); {then}") from error


def load_state(
    path: Path,
    models: Mapping[str, nn.Module],
    optimizers: Sequence[Optimizer],
    scaler: GradScaler | None = None,
) -> TrainingProgress:
    """Restore models and their optimizers from the file of `save_state`."""
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist: there is no run to resume")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is damaged ({error}); start the run again") from error
    try:
        for name, model in models.items():
            model.load_state_dict(_with_prefix(f"{name}.", tensors))
    except RuntimeError as error:
        first = str(error).splitlines()[1:2] or [str(error)]  # line 0 names only the class
        raise CheckpointError(
            f"{path} belongs to another model ({first[0].strip()[:200]}); "
            "resume with the model that the run was started with, or choose another run_dir"
        ) from error
    found = {name.split(".")[0] for name in tensors} - models.keys()
    if found and found != {f"optimizer{number}" for number in range(len(optimizers))}:
        raise CheckpointError(
            f"{path} belongs to a run with another optimizer; resume with that one, "
            "or start a new run with warm_start = its last.safetensors"
        )
    for number, optimizer in enumerate(optimizers):
        _fill_optimizer(optimizer, _with_prefix(f"optimizer{number}.", tensors))
    scale = json.loads(metadata.get("scaler", "{}"))  # empty without float16
    if scaler is not None and scaler.is_enabled() and scale:
        scaler.load_state_dict(scale)
    return TrainingProgress(
        int(metadata["step"]), float(metadata["best"]), int(metadata["best_step"])
    )


def _optimizer_tensors(optimizers: Sequence[Optimizer]) -> Iterator[tuple[str, Tensor]]:
    """Tensors named `optimizer0.12.exp_avg`: number of the optimizer, of the parameter, name."""
    for number, optimizer in enumerate(optimizers):
        for index, state in optimizer.state_dict()["state"].items():
            for name, value in state.items():
                yield f"optimizer{number}.{index}.{name}", value


def _fill_optimizer(optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        index, name = key.split(".")
        state.setdefault(int(index), {})[name] = value
    # It moves each value to the device where the optimizer wants it.
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    for parameter, values in optimizer.state.items():
        for name, value in values.items():
            if value.shape == parameter.shape:  # keep the memory layout of the parameter
                values[name] = torch.empty_like(parameter).copy_(value)


def _with_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file atomically."""
    try:
        write_atomically(path, json.dumps(content, indent=2) + "\n")
    except OSError as error:
        raise CheckpointError(f"cannot write {path} ({error}); choose another run_dir") from error


class RunLog:
    """The log of a run: `log.jsonl`, the logger of the package and, optionally, TensorBoard.

    Args:
        run_dir: folder of the run; None: log nothing (all processes but the main one).
        tensorboard: also write TensorBoard events to `run_dir`.
        after: last completed step of a resumed run; entries of later steps are removed from the
            log, because those steps are run again.
    """

    def __init__(self, run_dir: Path | None, *, tensorboard: bool = False, after: int = 0) -> None:
        self._lines = None if run_dir is None else run_dir / "log.jsonl"
        self._board: Any = None
        if self._lines is not None and self._lines.exists():
            _remove_later(self._lines, after)
        if run_dir is not None and tensorboard:
            self._board = _summary_writer(run_dir, after)

    def scalars(self, step: int, **values: float) -> None:
        """Log named values of a step."""
        if self._lines is None:
            return
        self._append({"step": step, **values})
        log.info("step %d  %s", step, "  ".join(f"{k} {v:.5g}" for k, v in values.items()))
        if self._board:
            for name, value in values.items():
                self._board.add_scalar(name, value, step)

    def changes(self, step: int, changed: Mapping[str, tuple[Any, Any]]) -> None:
        """Log the settings that differ from those before `step`: their values before and after."""
        if self._lines is None or not changed:
            return
        self._append({"step": step, "changed": changed})
        log.info("resumed after step %d with other settings:", step)
        for key, (before, after) in changed.items():
            log.info("  %s: %s -> %s", key, json.dumps(before), json.dumps(after))

    def _append(self, entry: dict[str, Any]) -> None:
        assert self._lines is not None
        try:
            with self._lines.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise VsrkitError(
                f"cannot write {self._lines} ({error}); the last state is intact: "
                "free some space and continue with --resume"
            ) from error

    def image(self, step: int, name: str, frame: Tensor) -> None:
        """Log a frame (3, H, W) in [0, 1] to TensorBoard."""
        if self._board:
            self._board.add_image(name, frame, step)

    def close(self) -> None:
        """Flush and close TensorBoard's file."""
        if self._board:
            self._board.close()


def _remove_later(lines: Path, step: int) -> None:
    """Remove the entries of steps after `step`, and an incomplete last line."""
    kept = []
    for line in lines.read_text(encoding="utf-8").splitlines():
        with suppress(ValueError, KeyError):
            if json.loads(line)["step"] <= step:
                kept.append(line + "\n")
    try:
        write_atomically(lines, "".join(kept))
    except OSError as error:
        raise VsrkitError(f"cannot write {lines} ({error}); free some space") from error


def _summary_writer(run_dir: Path, after: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise VsrkitError(
            "tensorboard is not installed; pip install tensorboard, or set tensorboard=false"
        ) from error
    return SummaryWriter(run_dir, purge_step=after + 1 if after else None)


class StepTimer:
    """Seconds spent on each kind of work ("work", "data", "rest", "validation")."""

    def __init__(self) -> None:
        self._total = {"work": 0.0, "data": 0.0, "rest": 0.0, "validation": 0.0}
        self._before_lap = dict(self._total)
        self._steps = 0
        self._kind, self._since = "data", time.perf_counter()
        self._begin = self._since

    def start(self, kind: str) -> float:
        """Count the time from now on as `kind`; each start of "work" counts a step.

        Returns the seconds since the last start.
        """
        elapsed = self._add_elapsed()
        self._steps += kind == "work"
        self._kind = kind
        return elapsed

    def _add_elapsed(self) -> float:
        now = time.perf_counter()
        elapsed = now - self._since
        self._total[self._kind] += elapsed
        self._since = now
        return elapsed

    def share(self, kind: str) -> float:
        """Share of all time so far that was spent on `kind`."""
        self._add_elapsed()
        return self._total[kind] / max(self._since - self._begin, 1e-9)

    def lap(self) -> tuple[float, float]:
        """Seconds per step since the last lap, and the share of them outside of "work".

        Work is the forward pass, the backward pass and the optimizer; validation does not count.
        """
        self._add_elapsed()
        lap = {kind: self._total[kind] - self._before_lap[kind] for kind in self._total}
        outside = lap["data"] + lap["rest"]
        total, steps = lap["work"] + outside, max(1, self._steps)
        self._before_lap = dict(self._total)
        self._steps = 0
        return total / steps, outside / max(total, 1e-9)
