"""Results as tables for people and as JSON for programs."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from vsrkit import __version__
from vsrkit.evaluate.benchmark import Result
from vsrkit.evaluate.published import Published, published_for
from vsrkit.evaluate.scores import USUAL
from vsrkit.hardware.files import write_atomically

MOST_COLUMNS = 6  # clips beside one another; more are listed below one another
MOST_ROWS = 60  # of clips on a screen; the rest is in the JSON
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


def print_results(results: Sequence[Result], console: Console) -> None:
    """Everything that was measured, how, and what was published for the same measurement."""
    first = results[0]
    published = published_for(first.set, first.protocol)  # type: ignore[arg-type]
    names = [clip.name for clip in first.clips]
    if len(names) <= MOST_COLUMNS:
        console.print(_methods_table(results, published, names))
    else:
        console.print(_clips_table(results, names))
        console.print(_methods_table(results, published, []))
    if set(first.average) - set(USUAL):
        console.print(_metrics_table(results))
    for line in describe(results):
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    if published:
        console.print(f"published: {published[0].source}", highlight=False, soft_wrap=True)


def describe(results: Sequence[Result]) -> list[str]:
    """What the numbers mean, one line each: protocol, LR, run, and all that was not as usual."""
    first = results[0]
    lines = [f"protocol {first.protocol}", f"LR frames {first.lr}"]
    lines += [
        f"{r.model}: {r.seconds_per_frame * 1000:.1f} ms per frame, "
        f"peak memory {r.peak_memory_mb:.0f} MB, {r.precision} on {r.device}"
        for r in results
    ]
    for clip in first.clips:
        if clip.partial:
            lines.append(
                f"partial: {clip.name}, only {clip.frames} frames of it were there to score"
            )
        lines += [f"{clip.name}: {note}" for note in clip.notes]
    if first.left_out:
        more = f" and {len(first.left_out) - 8} more" if len(first.left_out) > 8 else ""
        lines.append(f"partial: left out {', '.join(first.left_out[:8])}{more}")
    if first.partial:
        lines.append("partial: this average is not over the full set; compare it with nothing else")
    return lines + list(first.notes)


def pair(metrics: dict[str, float]) -> str:
    """PSNR/SSIM as the papers print it."""
    parts = [f"{metrics[n]:.{DECIMALS[n]}f}" for n in USUAL if n in metrics]
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
        table.caption = f"{len(names) - MOST_ROWS} more clips: see --json"
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
    """The stable form of a result, described in docs/evaluate.md."""
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
    """JSON knows no infinity, which the PSNR of equal frames is."""
    return value if math.isfinite(value) else "inf"


def write_json(path: Path, results: Sequence[Result]) -> None:
    """One object for one model, a list of them for several."""
    content: Any = [as_json(result) for result in results]
    text = json.dumps(content[0] if len(content) == 1 else content, indent=2, allow_nan=False)
    write_atomically(path, text + "\n")
