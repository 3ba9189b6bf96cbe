"""Where a run reports: a file of JSON lines, the log, and TensorBoard if asked for."""

import json
import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from vsrkit.errors import VsrkitError
from vsrkit.hardware.files import write_atomically

log = logging.getLogger("vsrkit")


class Report:
    """Reports of one run. `Report(None)` is silent: what the other processes have.

    `after`: the step from which the run goes on; what was reported of later ones, before it was
    killed, comes again.
    """

    def __init__(self, run_dir: Path | None, *, tensorboard: bool = False, after: int = 0) -> None:
        self._lines = None if run_dir is None else run_dir / "log.jsonl"
        self._board: Any = None
        if self._lines is not None and self._lines.exists():
            _forget_later(self._lines, after)
        if run_dir is not None and tensorboard:
            self._board = _summary_writer(run_dir, after)

    def scalars(self, step: int, **values: float) -> None:
        """Numbers at a step."""
        if self._lines is None:
            return
        try:
            with self._lines.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"step": step, **values}) + "\n")
        except OSError as error:
            raise VsrkitError(
                f"cannot write {self._lines} ({error}); the last state is whole: "
                "free some space and go on with --resume"
            ) from error
        log.info("step %d  %s", step, "  ".join(f"{k} {v:.5g}" for k, v in values.items()))
        if self._board:
            for name, value in values.items():
                self._board.add_scalar(name, value, step)

    def picture(self, step: int, name: str, frame: Tensor) -> None:
        """A frame (3, H, W) in [0, 1], for TensorBoard only."""
        if self._board:
            self._board.add_image(name, frame, step)

    def close(self) -> None:
        """Write out what is waiting."""
        if self._board:
            self._board.close()


def _forget_later(lines: Path, step: int) -> None:
    """Leave out reports of steps after `step`, and a line that was cut short."""
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
