"""The files of a run: its config, the state that resumes it exactly, its last and best weights.

    run_dir/config.json          what was asked for
    run_dir/log.jsonl            one line for each report
    run_dir/state.safetensors    weights, average, optimisers, step: enough to go on exactly
    run_dir/last.safetensors     the model as it is now (its average, if one is kept)
    run_dir/best.safetensors     the model when it scored best

Each file appears under its name only when it is whole.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from vsrkit.errors import VsrkitError
from vsrkit.hardware.files import temporary_path, write_atomically

STATE = "state.safetensors"


class CheckpointError(VsrkitError):
    """The state of a run cannot be written, read, or does not belong to this config."""


@dataclass(slots=True)
class Progress:
    """How far a run has come."""

    step: int = 0  # steps done
    best: float = float("-inf")  # highest score so far
    best_step: int = 0


def save_state(
    path: Path,
    model: nn.Module,
    ema: nn.Module,
    optimizers: Sequence[Optimizer],
    progress: Progress,
) -> None:
    """Write everything that the next step depends on."""
    tensors = {f"model.{k}": v for k, v in model.state_dict().items()}
    tensors |= {f"ema.{k}": v for k, v in ema.state_dict().items()}
    tensors |= dict(_optimizer_tensors(optimizers))
    kept = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    about = {
        "step": str(progress.step),
        "best": repr(progress.best),
        "best_step": str(progress.best_step),
    }
    try:
        with temporary_path(path) as temporary:
            save_file(kept, temporary, metadata=about)
    except (OSError, SafetensorError) as error:
        if path.exists():
            then = "the state saved before it is still whole: free some space, go on with --resume"
        else:
            then = "no state was saved before it: free some space and start again"
        raise CheckpointError(f"cannot write {path} ({error}); {then}") from error


def load_state(
    path: Path, model: nn.Module, ema: nn.Module, optimizers: Sequence[Optimizer]
) -> Progress:
    """Put everything back as `save_state` found it."""
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist: there is no run to resume")
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is damaged ({error}); start the run again") from error
    try:
        model.load_state_dict(_below("model.", tensors))
        ema.load_state_dict(_below("ema.", tensors))
    except RuntimeError as error:
        first = str(error).splitlines()[1:2] or [str(error)]  # the line above it names the class
        raise CheckpointError(
            f"{path} belongs to another model ({first[0].strip()[:200]}); "
            "resume with the model that the run began with, or choose another run_dir"
        ) from error
    found = {name.split(".")[0] for name in tensors} - {"model", "ema"}
    if found and found != {f"optimizer{number}" for number in range(len(optimizers))}:
        raise CheckpointError(
            f"{path} belongs to a run with another optimizer; resume with that one, "
            "or begin a new run from its last.safetensors by warm_start"
        )
    for number, optimizer in enumerate(optimizers):
        _fill_optimizer(optimizer, _below(f"optimizer{number}.", tensors))
    return Progress(int(about["step"]), float(about["best"]), int(about["best_step"]))


def _optimizer_tensors(optimizers: Sequence[Optimizer]) -> Iterator[tuple[str, Tensor]]:
    """Named `optimizer0.12.exp_avg`: which optimiser, which of its parameters, which tensor."""
    for number, optimizer in enumerate(optimizers):
        for index, state in optimizer.state_dict()["state"].items():
            for name, value in state.items():
                yield f"optimizer{number}.{index}.{name}", value


def _fill_optimizer(optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for key, value in tensors.items():
        index, name = key.split(".")
        parameter = parameters[int(index)]
        if value.shape == parameter.shape:  # in the layout that the parameter has
            value = torch.empty_like(parameter).copy_(value)
        optimizer.state[parameter][name] = value


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a small readable file, whole or not at all."""
    try:
        write_atomically(path, json.dumps(content, indent=2) + "\n")
    except OSError as error:
        raise CheckpointError(f"cannot write {path} ({error}); choose another run_dir") from error
