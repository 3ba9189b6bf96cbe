"""Where a run reports: a file of JSON lines, the log, and TensorBoard if asked for."""

import json
import logging
from pathlib import Path
from typing import Any

from torch import Tensor

from vsrkit.errors import VsrkitError

log = logging.getLogger("vsrkit")


class Report:
    """Reports of one run. `Report(None)` is silent: what the other processes have."""

    def __init__(self, run_dir: Path | None, *, tensorboard: bool = False) -> None:
        self._lines = None if run_dir is None else run_dir / "log.jsonl"
        self._board: Any = None
        if run_dir is not None and tensorboard:
            self._board = _summary_writer(run_dir)

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


def _summary_writer(run_dir: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise VsrkitError(
            'tensorboard is not installed; pip install "vsrkit[train]" or set tensorboard=false'
        ) from error
    return SummaryWriter(run_dir)
