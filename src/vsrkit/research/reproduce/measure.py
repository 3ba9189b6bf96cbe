"""Measure every row of a table whose weights are at hand; what is finished is kept."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsrkit import __version__
from vsrkit.data.check import SetCheck, check_set
from vsrkit.data.clips import OnProgress
from vsrkit.data.sets import FrameFiles, Frames, FrameSet
from vsrkit.evaluate.benchmark import evaluate_models, open_with_protocol, weights_sha256
from vsrkit.evaluate.protocol import Protocol
from vsrkit.evaluate.tables import as_json, write_json
from vsrkit.research.reproduce.tables import Row, TableName, rows_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A row with what was measured for it, in the form of `vsrkit evaluate --json`."""

    row: Row
    ours: dict[str, Any] | None  # None: its weights are not at hand

    @property
    def difference(self) -> tuple[float, float] | None:
        """Ours minus published, PSNR in dB and SSIM; None where they cannot be compared."""
        if self.ours is None or self.row.published is None or self.ours["partial"]:
            return None
        printed = self.row.published.average
        average = self.ours["average"]
        return average["psnr"] - float(printed[0]), average["ssim"] - float(printed[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """A whole table."""

    table: TableName
    protocol: Protocol
    check: SetCheck
    rows: tuple[Measured, ...]


def reproduce_table(
    table: TableName,
    data: Path,
    folder: Path,
    *,
    only: Sequence[str] = (),
    protocol: str | None = None,
    precision: str = "float32",
    device: str = "cpu",
    on_progress: OnProgress | None = None,
) -> Reproduction:
    """Measure the rows of a table on the set in `data`, keeping each result in `folder`.

    only: as for `rows_of`. A result is taken from `folder` if weights, data, protocol, precision,
    device and version are those it was measured with.
    """
    rules, frame_set = open_with_protocol(data, table, protocol, ())
    check = check_set(data, quick=True, on_progress=on_progress)
    rows = rows_of(table, rules, only)
    print_of_data = fingerprint(frame_set)
    measured = []
    for row in rows:
        if row.source is None:
            measured.append(Measured(row=row, ours=None))
            continue
        key = {
            "weights": weights_sha256(row.source),
            "data": print_of_data,
            "protocol": rules.as_dict(),
            "precision": precision,
            "device": device,
            "vsrkit": __version__,
        }
        kept = folder / f"{rules.name}--{row.model}--{_digest(key)}.json"
        if not kept.is_file():
            (result,) = evaluate_models(
                [row.source],
                data,
                set_name=table,
                protocol=rules.name,
                precision=precision,
                device=device,
                on_progress=on_progress,
            )
            write_json(kept, [result])
            ours = as_json(result)
        else:
            ours = json.loads(kept.read_text(encoding="utf-8"))
        measured.append(Measured(row=row, ours=ours))
    return Reproduction(table=table, protocol=rules, check=check, rows=tuple(measured))


def fingerprint(frame_set: FrameSet) -> str:
    """Changes when a frame of the set comes, goes or is changed."""
    return _digest(
        [
            [clip.name, _stats(clip.hr), _stats(clip.lr) if clip.lr else None]
            for clip in frame_set.clips
        ]
    )


def _stats(frames: Frames) -> list[tuple[str, int, int]]:
    files = frames.paths if isinstance(frames, FrameFiles) else (frames.place,)
    return [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]
