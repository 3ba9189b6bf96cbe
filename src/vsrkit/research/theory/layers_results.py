"""Write the results of the trained layers: a table, the curves as CSV and as a figure."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vsrkit.research import plots
from vsrkit.research.plots import BLUE, GREEN, Axes, Figure
from vsrkit.research.theory.layers import KINDS, LayerKind, LayerRun, LayerStudy
from vsrkit.research.theory.results import shown_steps

LEARNT = 0.99  # accuracy from which a pattern counts as learnt
SMOOTHING = 20  # steps in the running mean of a curve
COLOUR_OF: dict[LayerKind, str] = {"STCSA": GREEN, "fully connected": BLUE}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRow:
    """The runs of one layer on one layout and k, over seeds."""

    layout: str
    n: int
    tokens: int
    k: int
    layer: LayerKind
    seeds: int
    learnt: int  # seeds that ended with an accuracy of at least `LEARNT`
    accuracy: float  # mean over seeds
    accuracy_low: float
    accuracy_high: float
    last_loss: float  # mean over the last steps and seeds
    half_step: float  # median step at which the smoothed loss fell below 1/2; NaN if more never did
    signal: float  # median over seeds


def layer_rows(study: LayerStudy) -> list[LayerRow]:
    """A row for each layout, k and layer."""
    keys = dict.fromkeys((run.layout, run.k, run.kind) for run in study.runs)
    return [
        _row([run for run in study.runs if (run.layout, run.k, run.kind) == key]) for key in keys
    ]


def _row(runs: Sequence[LayerRun]) -> LayerRow:
    first, found = runs[0], [run.accuracy for run in runs]
    half = median(half_step(run.losses) for run in runs)
    return LayerRow(
        layout=first.layout.name,
        n=first.layout.bits,
        tokens=first.layout.tokens,
        k=first.k,
        layer=first.kind,
        seeds=len(runs),
        learnt=sum(each >= LEARNT for each in found),
        accuracy=mean(found),
        accuracy_low=min(found),
        accuracy_high=max(found),
        last_loss=mean(float(run.losses[-SMOOTHING:].mean()) for run in runs),
        half_step=half if np.isfinite(half) else float("nan"),
        signal=median(run.signal for run in runs),
    )


def smooth(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of the last `SMOOTHING` losses at each step, of fewer at the first steps."""
    sums = np.cumsum(np.insert(losses, 0, 0.0))
    stop = np.arange(1, len(losses) + 1)
    start = np.maximum(0, stop - SMOOTHING)
    return (sums[stop] - sums[start]) / (stop - start)


def half_step(losses: NDArray[np.float64]) -> float:
    """The first step at which the smoothed loss is below 1/2; infinity if there is none."""
    below = np.flatnonzero(smooth(losses) < 0.5)
    return float(below[0] + 1) if len(below) else float("inf")


def write_layers(study: LayerStudy, folder: Path) -> list[Path]:
    """Write layers.csv (a row for each layer), layers-curves.csv and layers.svg."""
    files = [folder / name for name in ("layers.csv", "layers-curves.csv", "layers.svg")]
    plots.write_csv(files[0], (asdict(row) for row in layer_rows(study)))
    plots.write_csv(files[1], _curve_rows(study))
    plots.write_figure(files[2], layers_figure(study))
    return files


def _curve_rows(study: LayerStudy) -> Iterable[dict[str, Any]]:
    for run in study.runs:
        losses = smooth(run.losses)
        for step in shown_steps(study.steps):
            yield {
                "layout": run.layout.name,
                "k": run.k,
                "layer": run.kind,
                "seed": run.seed,
                "step": step,
                "loss": losses[step - 1],
            }


def layers_figure(study: LayerStudy) -> Figure:
    """Losses against steps, a row of panels for each layout, a column for each k."""
    keys = dict.fromkeys((run.layout, run.k) for run in study.runs)
    groups = [[run for run in study.runs if (run.layout, run.k) == key] for key in keys]
    columns = len({run.k for run in study.runs})

    def draw(axes: Axes, runs: Sequence[LayerRun]) -> None:
        steps = shown_steps(study.steps)
        shown = np.array(steps) - 1
        for kind in KINDS:
            losses = [smooth(run.losses)[shown].tolist() for run in runs if run.kind == kind]
            plots.draw_seeds(axes, kind, steps, losses, colour=COLOUR_OF[kind])
        layout = runs[0].layout
        axes.set_ylim(-0.05, 1.15)
        note = f"n = {layout.bits}, {layout.tokens} token{'s' if layout.tokens > 1 else ''}"
        title = f"k = {runs[0].k}: {layout.name}"
        plots.label_panel(axes, title, x="step", y="hinge loss", note=note)

    return plots.panel_figure(
        "Attention layers trained on k-patterns in small videos", groups, draw, columns=columns
    )


def describe_layers(study: LayerStudy) -> list[str]:
    """A line for each row of the table."""
    scale = "scaled" if study.scaled else "not scaled"
    lines = [
        f"{study.steps} steps of Adam, learning rate {study.learning_rate:g}, similarities {scale}"
    ]
    for row in layer_rows(study):
        lines.append(
            f"{row.layout}, k = {row.k}, {row.layer}: learnt by {row.learnt} of {row.seeds} seeds, "
            f"accuracy {row.accuracy:.3f} ({row.accuracy_low:.3f} to {row.accuracy_high:.3f}), "
            f"loss {row.last_loss:.3f}, below 1/2 at step {row.half_step:.0f}, "
            f"signal of the first gradient {row.signal:.2g}"
        )
    return lines
