"""The published tables: the model of each row, and measuring all rows that have weights."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from vsrkit import __version__
from vsrkit.data.check import SetCheck, check_set
from vsrkit.data.clips import OnProgress
from vsrkit.data.frames import FrameFiles, Frames
from vsrkit.data.layouts import SetName
from vsrkit.data.sets import FrameSet
from vsrkit.errors import VsrkitError, WeightsError
from vsrkit.evaluate.benchmark import evaluate_models, open_evaluation, weights_sha256
from vsrkit.evaluate.protocol import Protocol
from vsrkit.evaluate.tables import Published, pair, published_for, sources, write_json
from vsrkit.evaluate.tables import as_json as result_json
from vsrkit.hardware.device import resolve_device
from vsrkit.models.zoo import MODELS, load_model, local_weights
from vsrkit.models.zoo.fetch import SOURCES

TableName: TypeAlias = Literal["reds4", "vid4", "vimeo90k-t"]

_VIMEO = {
    "Bicubic": "bicubic",
    "RCAN": "rcan",
    "VESPCN": "vespcn",
    "SPMC": "spmc",
    "TOFlow": "toflow",
    "FRVSR": "frvsr",
    "DUF": "duf-52l",
    "RBPN": "rbpn",
    "EDVR-L": "edvr-l-vimeo90k",
    "BasicVSR": "basicvsr-vimeo90k-bi",
    "IconVSR": "iconvsr-vimeo90k",
    "VSR-Transformer": "vsrt-vimeo",
}
_REDS = {
    "Bicubic": "bicubic",
    "RCAN": "rcan",
    "TOFlow": "toflow",
    "DUF": "duf-52l",
    "EDVR-M": "edvr-m",
    "EDVR-L": "edvr-l",
    "BasicVSR": "basicvsr-reds4",
    "IconVSR": "iconvsr-reds",
    "VSR-Transformer": "vsrt-reds",
}
# Rows that were published elsewhere; VRT is not in the zoo.
_NEWER = {"BasicVSR++": "basicvsrpp", "RVRT": "rvrt", "PSRT-recurrent": "psrt", "IART": "iart"}
MODEL_OF: dict[TableName, dict[str, str]] = {"reds4": _REDS, "vid4": _VIMEO, "vimeo90k-t": _VIMEO}
RECIPES = {
    "vsrt-reds": "recipes/vsrt_reds.py",
    "vsrt-vimeo": "recipes/vsrt_vimeo90k.py",
    **{f"{name}-reds4": f"recipes/{name}.py" for name in _NEWER.values()},
    **{f"{name}-vimeo90k-bi": f"recipes/{name}.py:vimeo90k" for name in _NEWER.values()},
}
LONGER = "the public weights were trained on longer clips than the 5 frames of the published row"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of a table: the published result, and the model that can be measured for it."""

    published: Published | None  # None for a model that is not in the paper
    model: str | None  # name in the zoo; None if the zoo has no such model
    file: Path | None = None  # a weight file to use instead of the stored weights
    remark: str = ""

    @property
    def title(self) -> str:
        """The name of the row."""
        return self.published.title if self.published else str(self.model)

    @property
    def source(self) -> str | None:
        """The model name or weight file to load; None if there are no weights."""
        if self.file:
            return str(self.file)
        if self.model is None or (local_weights(self.model) is None and self.model != "bicubic"):
            return None
        return self.model

    @property
    def hint(self) -> str:
        """How to get the missing weights."""
        if self.model is None and self.published and self.published.elsewhere:
            return "quoted for comparison; no entry of the zoo has these weights"
        if self.model is None:
            return "no public weights; train this model (docs/train.md)"
        if self.model in SOURCES:
            return f"vsrkit weights get {self.model}"
        manual = f"-m {self.model}=FILE with its authors' checkpoint"
        if self.model in RECIPES:
            return f"{manual}, or vsrkit train {RECIPES[self.model]}"
        return manual


def rows_of(table: TableName, protocol: Protocol, only: Sequence[str] = ()) -> list[Row]:
    """The rows of a table: the paper's, the presets of vsrkit, and those published elsewhere.

    table: name of the table.
    protocol: only results published for this protocol are included.
    only: model names, methods of the table, or NAME=FILE; all rows if empty.

    Presets are included if their weights are stored.
    """
    name: SetName = table
    printed = [p for p in published_for(name, protocol) if "ablation" not in p.table]
    rows = [_row(table, p) for p in printed if not p.elsewhere]
    ours = [n for n, e in MODELS.items() if e.architecture == "vsrt-small" and local_weights(n)]
    rows += [Row(published=None, model=n) for n in ours]
    rows += [_newer_row(table, p) for p in printed if p.elsewhere]
    return [row for word in only for row in _chosen(rows, word)] if only else rows


def _row(table: TableName, printed: Published) -> Row:
    model: str | None = MODEL_OF[table].get(printed.method)
    remark = ""
    if printed.note == "trained on 5 frames":
        remark = LONGER
    elif printed.note:
        model = None  # trained and tested on 7 frames: there are no public weights
    return Row(published=printed, model=model, remark=remark)


def _newer_row(table: TableName, printed: Published) -> Row:
    family = None if printed.note else _NEWER.get(printed.method)
    trained = "reds4" if table == "reds4" else f"vimeo90k-{printed.degradation}"
    return Row(
        published=printed,
        model=family and f"{family}-{trained}",
        remark=f"trained on {printed.trained_frames} frames",
    )


def _chosen(rows: Sequence[Row], word: str) -> list[Row]:
    """The rows that a value of --model (NAME or NAME=FILE) selects, with their weight file."""
    name, _, file = word.partition("=")
    path = Path(file) if file else None
    if path is not None and not path.is_file():
        raise VsrkitError(f"{path} is not a file; expected -m NAME=FILE with a weight file")
    found = []
    for row in rows:
        method = row.published.method if row.published else ""
        if name.lower() in (str(row.model), row.title.lower(), method.lower()):
            found.append(row)
    if not found and name in MODELS:  # in the zoo, but not in this table
        found = [Row(published=None, model=name)]
    if not found:
        known = ", ".join(dict.fromkeys(str(r.model) for r in rows if r.model))
        raise VsrkitError(f"no row or model called {name!r}; this table has {known}")
    chosen = [replace(row, file=path) for row in found if row.model or not path]
    for row in chosen:
        _check_kind(row)
    return chosen


def _check_kind(row: Row) -> None:
    """Raise WeightsError if a weight file is of another architecture than its row."""
    if row.file is None or row.model is None:
        return
    found: Any = load_model(row.file).config
    expected = MODELS[row.model].config
    if type(found) is not type(expected):
        kinds = type(found).__name__, type(expected).__name__
        raise WeightsError(f"{row.file} holds a model of {kinds[0]}, {row.model} needs {kinds[1]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A row and its measured result, in the form of `vsrkit evaluate --json`."""

    row: Row
    ours: dict[str, Any] | None  # None if there are no weights

    @property
    def difference(self) -> tuple[float, float] | None:
        """Measured minus published (PSNR in dB, SSIM); None if they cannot be compared."""
        if self.ours is None or self.row.published is None or self.ours["partial"]:
            return None
        printed = self.row.published.average
        average = self.ours["average"]
        return average["psnr"] - float(printed[0]), average["ssim"] - float(printed[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """A measured table."""

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
    device: str = "auto",
    on_progress: OnProgress | None = None,
) -> Reproduction:
    """Measure the rows of a table; each result is stored and reused.

    A stored result is used if it was measured with the same weights, data, protocol, precision,
    device and version.

    table: name of the table.
    data: the folder of the test set.
    folder: where results are stored.
    only: the rows to measure, as for `rows_of`.
    protocol: name of the protocol; by default the usual one of the set.
    precision: float32, bfloat16 or auto.
    device: as for `evaluate_models`.
    on_progress: called with a description, and the finished and total numbers of frames.
    """
    rules, frame_set = open_evaluation(data, table, protocol, ())
    device = resolve_device(device)  # rows of other devices are not the same
    check = check_set(frame_set.root, table, quick=True, on_progress=on_progress)
    rows = rows_of(table, rules, only)
    data_digest = set_digest(frame_set)
    measured = []
    for row in rows:
        if row.source is None:
            measured.append(Measured(row=row, ours=None))
            continue
        key = {
            "weights": weights_sha256(row.source),
            "data": data_digest,
            "protocol": rules.as_dict(),
            "precision": precision,
            "device": device,
            "vsrkit": __version__,
        }
        stored = folder / f"{rules.name}--{row.model}--{_digest(key)}.json"
        if not stored.is_file():
            (result,) = evaluate_models(
                [row.source],
                data,
                set_name=table,
                protocol=rules.name,
                precision=precision,
                device=device,
                on_progress=on_progress,
            )
            write_json(stored, [result])
            ours = result_json(result)
        else:
            ours = json.loads(stored.read_text(encoding="utf-8"))
        measured.append(Measured(row=row, ours=ours))
    return Reproduction(table=table, protocol=rules, check=check, rows=tuple(measured))


def set_digest(frame_set: FrameSet) -> str:
    """A digest that changes when a frame of the set is added, removed or changed."""
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


def table_cells(measured: Measured) -> tuple[str, ...]:
    """A row as text: method, model, published, ours, difference, and a remark."""
    row, ours = measured.row, measured.ours
    published = "/".join(row.published.average) if row.published else "-"
    average = pair(ours["average"]) + ("*" if ours["partial"] else "") if ours else "-"
    difference = "-"
    if measured.difference:
        difference = f"{measured.difference[0]:+.2f}/{measured.difference[1]:+.4f}"
    remark = row.remark if ours else row.hint
    elsewhere = row.published is not None and row.published.elsewhere
    title = f"{row.title} [published elsewhere]" if elsewhere else row.title
    return title, row.model or "-", published, average, difference, remark


def describe_table(found: Reproduction) -> list[str]:
    """Describe the measurement and the problems of the data, a line each."""
    lines = [f"protocol {found.protocol}"]
    measured = [row.ours for row in found.rows if row.ours]
    if measured:
        lines.append(f"LR frames {measured[0]['lr']}; {measured[0]['precision']}")
    if any(ours["partial"] for ours in measured):
        lines.append("* partial: measured on less than the full set, so there is no difference")
    check = found.check
    problems = [*check.problems, *(f"{c.name}: {p}" for c in check.clips for p in c.problems)]
    lines += [f"problem in the data: {problem}" for problem in problems[:10]]
    if len(problems) > 10:
        lines.append(f"and {len(problems) - 10} more; `vsrkit data check {check.root}` lists all")
    return lines + sources(row.row.published for row in found.rows if row.row.published)


def table_json(found: Reproduction) -> dict[str, Any]:
    """The table as JSON; `ours` is in the form of `vsrkit evaluate --json`."""
    return {
        "format": 1,
        "table": found.table,
        "protocol": found.protocol.as_dict(),
        "rows": [_row_json(row) for row in found.rows],
    }


def _row_json(measured: Measured) -> dict[str, Any]:
    row, difference = measured.row, measured.difference
    printed = row.published
    return {
        "method": row.title,
        "model": row.model,
        "published": printed
        and {
            "average": [float(v) for v in printed.average],
            "clips": {n: [float(v) for v in p] for n, p in printed.clips.items()},
            "parameters_millions": printed.params_m,
            "table": printed.table,
            "source": printed.source,
            "elsewhere": printed.elsewhere,
        },
        "ours": measured.ours,
        "difference": difference and {"psnr": difference[0], "ssim": difference[1]},
        "how": None if measured.ours else row.hint,
        "remark": row.remark,
    }
