"""Whether a run still computes with numbers: what is saved must be worth going on from."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from vsrkit.errors import VsrkitError
from vsrkit.train.checkpoint import STATE


class DivergedError(VsrkitError):
    """The loss or a weight is no number any more."""


def check_finite(losses: Sequence[Tensor], step: int, run_dir: Path) -> float:
    """The mean loss, if it is a number. Looks at the device, which is slow: not at every step."""
    if not losses:
        return 0.0
    mean = float(torch.stack(list(losses)).mean())
    if mean - mean != 0:
        raise _diverged(f"the loss became {mean}", step, run_dir)
    return mean


def check_weights(model: nn.Module, step: int, run_dir: Path) -> None:
    """A loss that is a number can have a gradient that is none."""
    if not all(bool(weight.isfinite().all()) for weight in model.parameters()):
        raise _diverged("weights are no numbers any more", step, run_dir)


def _diverged(what: str, step: int, run_dir: Path) -> DivergedError:
    if (run_dir / STATE).exists():
        then = f"the last good state is in {run_dir}: go on from it with --resume and"
    else:
        then = "no state was saved before that: start again with"
    return DivergedError(
        f"{what} before step {step}; {then} a lower learning_rate, or with clip_gradients"
    )
