"""A job of the queue: what is stored of it, and the command that it runs."""

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from vsrkit.studio.api.answers import shown
from vsrkit.studio.options import Given
from vsrkit.upscale.work_folder import WorkFolder

State = Literal["queued", "running", "pausing", "paused", "done", "failed", "cancelled"]
UNFINISHED = ("queued", "running", "pausing", "paused")
CLOCK_S = 2.0  # seconds by which the clock of a file system may differ
AT_WORK = ("running", "pausing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A video to upscale.

    arguments: of the command, made from the options.
    report: where the fidelity report is written; None for no report.
    cluster: address of a Dask cluster.
    then: state after the process that is being stopped has ended; None while none is.
    progress: the last line that the command printed.
    memory: bytes of all processes of the job, while it runs.
    """

    id: str
    source: Path
    output: Path
    options: Given
    arguments: tuple[str, ...]
    report: Path | None
    cluster: str | None
    created: float
    state: State = "queued"
    then: Literal["queued", "paused", "cancelled"] | None = None
    error: str | None = None
    started: float | None = None
    finished: float | None = None
    progress: dict[str, Any] | None = None
    memory: int | None = None

    @property
    def is_finished(self) -> bool:
        """Whether it will not run again by itself."""
        return self.state not in UNFINISHED

    @property
    def work_folder(self) -> WorkFolder:
        """Where the command stores finished parts."""
        return WorkFolder.beside(self.output)

    @property
    def arguments_of_command(self) -> list[str]:
        """What follows `vsrkit` on the command line."""
        made = ["upscale", str(self.source), str(self.output), *self.arguments]
        made += [f"--cluster={self.cluster}"] if self.cluster else []
        return made + ([f"--report={self.report}"] if self.report else [])

    @property
    def process(self) -> list[str]:
        """The command line of its process."""
        # -P: the current folder must not hide modules.
        return [sys.executable, "-P", "-m", "vsrkit", *self.arguments_of_command, "--json-progress"]

    def as_json(self, video: str | None, result: str | None) -> dict[str, Any]:
        """The job as pages see it.

        video: id of the source in the library.
        result: id of the output in the library.
        """
        done = self.state == "done"
        exists = done and self.output.is_file()
        return {
            "id": self.id,
            "state": self.state,
            "video": video,
            "name": shown(self.source.name),
            "output": {
                "name": shown(self.output.name),
                "folder": shown(self.output.parent),
                "path": shown(self.output),
                "size": self.output.stat().st_size if exists else None,
                "video": result if exists else None,
            },
            "options": self.options,
            "report": self.report is not None,
            "command": shown(shlex.join(["vsrkit", *self.arguments_of_command])),
            "error": self.error,
            "created": self.created,
            "started": self.started,
            "finished": self.finished,
            "progress": self.progress,
            "memory": self.memory if self.state in AT_WORK else None,
        }

    def dump(self) -> str:
        """The job as text for the database."""
        paths = {"source": str(self.source), "output": str(self.output)}
        report = None if self.report is None else str(self.report)
        return json.dumps(asdict(self) | paths | {"report": report, "memory": None})

    @classmethod
    def load(cls, text: str) -> "Job":
        """The job that `dump` wrote."""
        value = json.loads(text)
        report = None if value["report"] is None else Path(value["report"])
        job = cls(**value)
        return replace(
            job,
            source=Path(value["source"]),
            output=Path(value["output"]),
            arguments=tuple(value["arguments"]),
            report=report,
        )

    @property
    def is_complete(self) -> bool:
        """Whether the output was written: only then it exists without a work folder."""
        if self.started is None or not self.output.is_file():
            return False
        if self.output.stat().st_mtime < self.started - CLOCK_S:  # someone else's file
            return False
        return self.work_folder.only_cleanup_remains(self.output) or (
            not self.work_folder.path.exists()
        )


def reserved(jobs: Sequence[Job]) -> list[Path]:
    """Outputs that no new job may have."""
    return [job.output for job in jobs if job.state != "done"]
