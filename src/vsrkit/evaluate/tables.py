"""Results of an evaluation as tables, beside the published numbers, and as JSON."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from vsrkit import __version__
from vsrkit.data.layouts import SetName
from vsrkit.evaluate.benchmark import Result
from vsrkit.evaluate.metrics import DEFAULT_METRICS
from vsrkit.evaluate.protocol import DEFAULTS, PROTOCOLS, Protocol
from vsrkit.hardware.files import write_atomically

MOST_COLUMNS = 6  # clips shown as columns; more than that are shown as rows
MOST_ROWS = 60  # clips shown as rows; the others are only in the JSON
TITLES = {
    "psnr": "PSNR",
    "ssim": "SSIM",
    "ms_ssim": "MS-SSIM",
    "warping_error": "warping error x1000",
    "warped_flicker": "warped flicker x1000",
    "tof": "tOF px",
    "flicker": "flicker",
    "consistency": "consistency dB",
    "vmaf": "VMAF",
}
DECIMALS = {"psnr": 2, "ssim": 4, "ms_ssim": 4, "warping_error": 3, "warped_flicker": 3, "tof": 3}
THOUSANDTHS = ("warping_error", "warped_flicker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One row of a table in a paper. Scores are (PSNR, SSIM) with the digits as printed."""

    method: str
    set: SetName
    channel: str
    table: str
    clips: Mapping[str, tuple[str, str]]
    average: tuple[str, str]
    source: str
    params_m: float | None = None  # millions, as printed
    note: str = ""

    @property
    def title(self) -> str:
        """The method and, where a table lists it twice, the note."""
        return f"{self.method} ({self.note})" if self.note else self.method


def load_published() -> list[Published]:
    """Load all rows of `published.json`, in the order of the paper."""
    content = json.loads(files("vsrkit.evaluate").joinpath("published.json").read_text("utf-8"))
    return [_row(row, content["source"]) for row in content["rows"]]


def _row(row: dict[str, Any], source: str) -> Published:
    clips = {name: (pair[0], pair[1]) for name, pair in row["clips"].items()}
    average = (row["average"][0], row["average"][1])
    return Published(**{**row, "clips": clips, "average": average, "source": source})


def published_for(set_name: SetName, protocol: Protocol) -> list[Published]:
    """Return the rows that are comparable with this protocol, each method once; may be empty."""
    usual = PROTOCOLS[DEFAULTS[set_name]]
    # Papers use the default LR, border and frames of a set; tiles and channel may differ.
    if replace(protocol, name=usual.name, tile=None, channel=usual.channel) != usual:
        return []
    rows: dict[tuple[str, tuple[str, str]], Published] = {}
    for row in load_published():
        if row.set == set_name and row.channel == protocol.channel:
            rows.setdefault((row.title, row.average), row)
    return list(rows.values())


def print_results(results: Sequence[Result], console: Console) -> None:
    """Print the scores of all results, the comparable published ones and the settings.

    Args:
        results: of one or more models on the same set and protocol.
        console: where to print.
    """
    first = results[0]
    published = published_for(first.set, first.protocol)  # type: ignore[arg-type]
    names = [clip.name for clip in first.clips]
    if len(names) <= MOST_COLUMNS:
        console.print(_methods_table(results, published, names))
    else:
        console.print(_clips_table(results, names))
        console.print(_methods_table(results, published, []))
    if set(first.average) - set(DEFAULT_METRICS):
        console.print(_metrics_table(results))
    for line in describe(results):
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    if published:
        console.print(f"published: {published[0].source}", highlight=False, soft_wrap=True)


def describe(results: Sequence[Result]) -> list[str]:
    """Describe the settings in lines of text: protocol, LR frames, speed, missing clips, notes."""
    first = results[0]
    lines = [f"protocol {first.protocol}", f"LR frames {first.lr}"]
    lines += [
        f"{r.model}: {r.seconds_per_frame * 1000:.1f} ms per frame, "
        f"peak memory {r.peak_memory_mb:.0f} MB, {r.precision} on {r.device}"
        for r in results
    ]
    for clip in first.clips:
        if clip.partial:
            lines.append(f"partial: {clip.name}, only {clip.frames} frames of it were scored")
        lines += [f"{clip.name}: {note}" for note in clip.notes]
    if first.left_out:
        more = f" and {len(first.left_out) - 8} more" if len(first.left_out) > 8 else ""
        lines.append(f"partial: left out {', '.join(first.left_out[:8])}{more}")
    if first.partial:
        lines.append("partial: this average of an incomplete set is not comparable with others")
    return lines + list(first.notes)


def pair(metrics: dict[str, float]) -> str:
    """Format scores as PSNR/SSIM."""
    parts = [f"{metrics[n]:.{DECIMALS[n]}f}" for n in DEFAULT_METRICS if n in metrics]
    return "/".join(parts) or "-"


def _methods_table(
    results: Sequence[Result], published: Sequence[Published], names: list[str]
) -> Table:
    table = Table(title=f"{results[0].set}, {results[0].protocol.name}: PSNR/SSIM")
    table.add_column("method")
    for name in [*names, "average"]:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("ms/frame", justify="right", no_wrap=True)
    table.add_column("peak MB", justify="right", no_wrap=True)
    for row in published:
        cells = ["/".join(row.clips[n]) if n in row.clips else "-" for n in names]
        table.add_row(
            f"{row.title} [published]".replace("[", r"\["), *cells, "/".join(row.average), "", "",
            style="dim", end_section=row is published[-1],
        )  # fmt: skip
    for result in results:
        scores = {clip.name: clip for clip in result.clips}
        cells = [pair(scores[n].metrics) + ("*" if scores[n].partial else "") for n in names]
        average = pair(result.average) + ("*" if result.partial else "")
        table.add_row(
            result.model, *cells, average,
            f"{result.seconds_per_frame * 1000:.1f}", f"{result.peak_memory_mb:.0f}",
            style="bold",
        )  # fmt: skip
    if any(result.partial for result in results):
        table.caption = "* partial"
    return table


def _clips_table(results: Sequence[Result], names: list[str]) -> Table:
    table = Table(title="PSNR/SSIM per clip")
    table.add_column("clip")
    for result in results:
        table.add_column(result.model, justify="right", no_wrap=True)
    for place, name in enumerate(names[:MOST_ROWS]):
        clips = [result.clips[place] for result in results]
        table.add_row(name, *(pair(c.metrics) + ("*" if c.partial else "") for c in clips))
    if len(names) > MOST_ROWS:
        table.caption = f"{len(names) - MOST_ROWS} more clips: written by --json"
    return table


def _metrics_table(results: Sequence[Result]) -> Table:
    names = list(results[0].average)
    table = Table(title="all metrics")
    table.add_column("method")
    table.add_column("clip")
    for name in names:
        table.add_column(TITLES[name], justify="right")
    for result in results:
        rows = [(clip.name, clip.metrics) for clip in result.clips[:MOST_ROWS]]
        for clip, metrics in [*rows, ("average", result.average)]:
            cells = [_number(name, metrics[name]) if name in metrics else "-" for name in names]
            table.add_row(result.model, clip, *cells, end_section=clip == "average")
    return table


def _number(name: str, value: float) -> str:
    return f"{value * (1000 if name in THOUSANDTHS else 1):.{DECIMALS.get(name, 2)}f}"


def as_json(result: Result) -> dict[str, Any]:
    """Return a result in the stable JSON format described in docs/evaluate.md."""
    return {
        "format": 1,
        "model": result.model,
        "weights_sha256": result.weights,
        "set": result.set,
        "protocol": result.protocol.as_dict(),
        "lr": result.lr,
        "clips": {
            clip.name: {
                "frames": clip.frames,
                "partial": clip.partial,
                **{name: _finite(value) for name, value in clip.metrics.items()},
            }
            for clip in result.clips
        },
        "average": {name: _finite(value) for name, value in result.average.items()},
        "partial": result.partial,
        "left_out": list(result.left_out),
        "notes": [*result.notes, *(f"{c.name}: {n}" for c in result.clips for n in c.notes)],
        "seconds_per_frame": result.seconds_per_frame,
        "peak_memory_mb": result.peak_memory_mb,
        "precision": result.precision,
        "device": result.device,
        "versions": {"vsrkit": __version__, "torch": torch.__version__},
    }


def _finite(value: float) -> float | str:
    """JSON has no infinity, the PSNR of equal frames."""
    return value if math.isfinite(value) else "inf"


def write_json(path: Path, results: Sequence[Result]) -> None:
    """Write results as JSON: an object for one model, a list for several."""
    content: Any = [as_json(result) for result in results]
    text = json.dumps(content[0] if len(content) == 1 else content, indent=2, allow_nan=False)
    write_atomically(path, text + "\n")
