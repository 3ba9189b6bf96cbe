"""Results of an evaluation as text and JSON, and the published numbers beside them."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import torch

from vsrkit import __version__
from vsrkit.data.degrade import BD
from vsrkit.data.layouts import SetName
from vsrkit.evaluate.benchmark import Result
from vsrkit.evaluate.metrics import DEFAULT_METRICS
from vsrkit.evaluate.protocol import DEFAULTS, PROTOCOLS, Protocol
from vsrkit.hardware.files import write_atomically

DECIMALS = {
    "psnr": 2,
    "ssim": 4,
    "ms_ssim": 4,
    "warping_error": 3,
    "warped_flicker": 3,
    "tof": 3,
    "lpips": 4,
    "lpips_vgg": 4,
    "tlpips": 3,
    "dists": 4,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One row of a published table. Scores are (PSNR, SSIM) with the digits as printed."""

    method: str
    set: str  # a `SetName`, or a set that vsrkit does not read
    channel: str
    table: str
    average: tuple[str, str]
    source: str
    clips: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    params_m: float | None = None  # millions, as printed
    note: str = ""
    degradation: Literal["bi", "bd"] = "bi"  # how LR frames were made
    trained_frames: int | None = None  # length of the training clips
    elsewhere: bool = False  # not in the tables of the VSR-Transformer paper

    @property
    def title(self) -> str:
        """The method and, where a table lists it twice, the note."""
        return f"{self.method} ({self.note})" if self.note else self.method

    @property
    def label(self) -> str:
        """Whether it was published in the paper or elsewhere."""
        return "published elsewhere" if self.elsewhere else "published"


def load_published() -> list[Published]:
    """Load all rows of the VSR-Transformer paper, in its order."""
    return _load("published.json", elsewhere=False)


def load_elsewhere() -> list[Published]:
    """Load the rows of newer networks, by test set."""
    return _load("published_elsewhere.json", elsewhere=True)


def _load(file: str, *, elsewhere: bool) -> list[Published]:
    content = json.loads(files("vsrkit.evaluate").joinpath(file).read_text("utf-8"))
    return [_row(row, content["source"], elsewhere) for row in content["rows"]]


def _row(row: dict[str, Any], source: str, elsewhere: bool) -> Published:
    clips = {name: (pair[0], pair[1]) for name, pair in row.get("clips", {}).items()}
    average = (row["average"][0], row["average"][1])
    values = {**row, "clips": clips, "average": average}
    return Published(**values, source=source, elsewhere=elsewhere)


def published_for(set_name: SetName, protocol: Protocol) -> list[Published]:
    """Return the rows that are comparable with this protocol, each method once; may be empty.

    First those of the paper, then those that were published elsewhere.
    """
    usual = PROTOCOLS[DEFAULTS[set_name]]
    kinds = {str(usual.degradation): "bi", str(BD()): "bd"}
    kind = kinds.get(str(protocol.degradation))
    # Papers use the default border and frames of a set; LR, tiles and channel may differ.
    same = replace(
        protocol,
        name=usual.name,
        tile=None,
        channel=usual.channel,
        degradation=usual.degradation,
    )
    if same != usual:
        return []
    rows: dict[tuple[str, tuple[str, str]], Published] = {}
    for row in [*load_published(), *load_elsewhere()]:
        if (row.set, row.channel, row.degradation) == (set_name, protocol.channel, kind):
            rows.setdefault((row.title, row.average), row)
    return list(rows.values())


def sources(rows: Iterable[Published]) -> list[str]:
    """Where rows were published, a line each."""
    return list(dict.fromkeys(f"{row.label}: {row.source}" for row in rows))


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
    if first.unlisted:
        total = len(first.clips) + len(first.left_out) + first.unlisted
        lines.append(f"partial: the list names {total - first.unlisted} of {total} clips")
    if first.partial:
        lines.append("partial: this average of an incomplete set is not comparable with others")
    return lines + list(first.notes)


def pair(metrics: dict[str, float]) -> str:
    """Format scores as PSNR/SSIM."""
    parts = [f"{metrics[n]:.{DECIMALS[n]}f}" for n in DEFAULT_METRICS if n in metrics]
    return "/".join(parts) or "-"


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
