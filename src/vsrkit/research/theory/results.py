"""Write the results of both theory experiments: CSV tables, SVG figures and summary lines."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np

from vsrkit.research import plots
from vsrkit.research.plots import BLUE, GREEN, GREY, ORANGE, PURPLE, Axes, Figure
from vsrkit.research.theory.bounds import Descent, theorem2_bound, theorem2_width
from vsrkit.research.theory.gradient import Cell, vanishes
from vsrkit.research.theory.learn import (
    LAYERS,
    Curve,
    Learning,
    Separability,
    indicator_error,
    witness_error,
)

MAX_POINTS = 200  # of a curve, in CSV and figure
BLACK = "#000000"


def write_gradients(cells: Sequence[Cell], folder: Path) -> list[Path]:
    """Write gradient.csv, a row for each n, k and bias, and gradient.svg, a panel for each k."""
    table, plot = folder / "gradient.csv", folder / "gradient.svg"
    plots.write_csv(table, (_gradient_row(cell) for cell in cells))
    plots.write_figure(plot, gradient_figure(cells))
    return [table, plot]


def _gradient_row(cell: Cell) -> dict[str, Any]:
    row = {name: value for name, value in asdict(cell).items() if not isinstance(value, dict)}
    for name, estimate in (("fc", cell.fully_connected), ("conv", cell.convolutional)):
        row |= {f"{name}_{key}": value for key, value in asdict(estimate).items()}
    return row


def gradient_figure(cells: Sequence[Cell]) -> Figure:
    """Squared gradient norms and their bounds against n, a panel for each k."""
    groups = [[c for c in cells if c.k == k] for k in sorted({c.k for c in cells})]
    title = r"Squared norm of the first gradient, $E\,\|\partial L/\partial W\|^2$"
    return plots.panel_figure(title, groups, _draw_gradients)


def _draw_gradients(axes: Axes, cells: Sequence[Cell]) -> None:
    k, q = cells[0].k, cells[0].q
    plain, biased = ([c for c in cells if c.bias == bias] for bias in (False, True))
    zero = vanishes(k, bias=False)
    if not zero:
        _draw_estimates(axes, plain, "", GREEN, BLUE)
    _draw_estimates(axes, biased, ", with a bias", ORANGE, PURPLE)
    n = [c.n for c in plain]
    plots.draw_line(
        axes, "bound as printed", n, [c.printed for c in plain], colour=BLACK, dashed=True
    )
    plots.draw_line(
        axes, "bound that its proof supports", n, [c.supported for c in plain], colour=GREY
    )
    axes.set_yscale("log")
    note = "without a bias both are exactly 0" if zero else ""
    plots.label_panel(axes, f"k = {k}, q = {q}", x="n", y="squared norm", note=note)


def _draw_estimates(
    axes: Axes, cells: Sequence[Cell], suffix: str, convolutional: str, fully_connected: str
) -> None:
    """Draw the means of both layers with their intervals; the last two are colours."""
    for name, colour, estimates in (
        ("convolutional", convolutional, [c.convolutional for c in cells]),
        ("fully connected", fully_connected, [c.fully_connected for c in cells]),
    ):
        plots.draw_line(
            axes,
            name + suffix,
            [c.n for c in cells],
            [e.mean for e in estimates],
            band=([e.low for e in estimates], [e.high for e in estimates]),
            colour=colour,
            marked=True,
        )


def describe_gradients(cells: Sequence[Cell]) -> list[str]:
    """How the measured gradients compare with the bounds, a line for each comparison."""
    known = [c for c in cells if not vanishes(c.k, bias=c.bias)]
    lines = [
        _compare("the bound that the proof supports", cells, [c.supported for c in cells]),
        _compare("the bound as printed", cells, [c.printed for c in cells]),
    ]
    inside = sum(c.fully_connected.low <= c.closed_form <= c.fully_connected.high for c in known)
    lines.append(f"the closed form is inside {inside} of {len(known)} 95 % intervals")
    ratio = max(
        (c.fully_connected.mean / c.convolutional.mean for c in known if c.convolutional.mean),
        default=inf,
    )
    lines.append(f"fully connected / convolutional: at most {ratio:.3g}, see the CSV")
    if len(known) < len(cells):
        lines.append("for odd k from 3 on, without a bias, both gradients are exactly 0")
    return lines


def _compare(name: str, cells: Sequence[Cell], bounds: Sequence[float]) -> str:
    ratios = [c.fully_connected.high / bound for c, bound in zip(cells, bounds, strict=True)]
    held = sum(ratio <= 1 for ratio in ratios)
    return (
        f"{name} holds in {held} of {len(cells)} cells; "
        f"the upper end of the interval is at most {max(ratios):.3g} of it"
    )


def write_learning(result: Learning, folder: Path) -> list[Path]:
    """Write learn, bound and separable, each as CSV and SVG."""
    files = []
    for name, curves, title in (
        ("learn", result.curves, "Learning the product of k bits: loss by step"),
        ("bound", result.covered_curves, "A run that Theorem 2 covers"),
    ):
        files += [folder / f"{name}.csv", folder / f"{name}.svg"]
        plots.write_csv(files[-2], (row for curve in curves for row in _curve_rows(curve)))
        plots.write_figure(files[-1], learning_figure(curves, title))
    files += [folder / "separable.csv", folder / "separable.svg"]
    plots.write_csv(files[-2], (_separability_row(s) for s in result.separability))
    plots.write_figure(files[-1], separability_figure(result.separability))
    return files


def shown_steps(steps: int) -> list[int]:
    """At most MAX_POINTS step numbers from 1 to the last one, evenly spaced."""
    return sorted({round(s) for s in np.linspace(1, steps, min(steps, MAX_POINTS))})


def _curve_rows(curve: Curve) -> Iterable[dict[str, Any]]:
    run = curve.run
    for step in shown_steps(run.steps):
        yield {
            **{name: value for name, value in asdict(run).items() if name != "steps"},
            "layer": curve.layer,
            "seed": curve.seed,
            "step": step,
            "loss": curve.losses[step - 1],
            "mean_loss_so_far": curve.means[step - 1],
            "theorem2": _bound_at(run, step),
        }


def _bound_at(run: Descent, step: int) -> float:
    return theorem2_bound(replace(run, steps=step))


def learning_figure(curves: Sequence[Curve], title: str) -> Figure:
    """Losses against steps, a panel for each n and k."""
    runs = sorted({c.run for c in curves}, key=lambda run: (run.k, run.n))
    groups = [[c for c in curves if c.run == run] for run in runs]
    return plots.panel_figure(title, groups, _draw_learning, columns=len({r.n for r in runs}))


def _draw_learning(axes: Axes, curves: Sequence[Curve]) -> None:
    run = curves[0].run
    steps = shown_steps(run.steps)
    shown = np.array(steps) - 1
    for layer, colour in zip(LAYERS, (GREEN, ORANGE, BLUE), strict=True):
        losses = [c.losses[shown].tolist() for c in curves if c.layer == layer]
        if losses:
            plots.draw_seeds(axes, layer, steps, losses, colour=colour)
    bound = [_bound_at(run, step) for step in steps]
    note = f"Theorem 2: above 1 at every step (least {min(bound):.3g})"
    if min(bound) < 1:
        means = [c.means[shown].tolist() for c in curves if c.layer == "convolutional"]
        name = "its mean over the steps so far"
        plots.draw_seeds(axes, name, steps, means, colour=PURPLE)
        below = [b if b < 1 else nan for b in bound]
        plots.draw_line(
            axes, "Theorem 2's bound on that mean", steps, below, colour=GREY, dashed=True
        )
        note = "the bound is drawn where it is below 1"
    axes.set_ylim(-0.05, 1.15)
    title = f"n = {run.n}, k = {run.k}, q = {run.q:,}"
    plots.label_panel(axes, title, x="step", y="hinge loss", note=note)


def _separability_row(s: Separability) -> dict[str, Any]:
    return asdict(s) | {
        "promised": s.promised,
        "indicator_error_printed": indicator_error(s.k, bias=False),
        "indicator_error_with_bias": indicator_error(s.k, bias=True),
        "witness_error_printed": witness_error(s.k, bias=False),
        "witness_error_with_bias": witness_error(s.k, bias=True),
    }


def separability_figure(found: Sequence[Separability]) -> Figure:
    """How often Lemma 2's event happened against k, a panel for each delta."""
    groups = [[s for s in found if s.delta == d] for d in sorted({s.delta for s in found})]
    title = r"Lemma 2: how often every sign pattern has $q / 2^{k+1}$ neurons"
    return plots.panel_figure(title, groups, _draw_separability)


def _draw_separability(axes: Axes, found: Sequence[Separability]) -> None:
    k, promised = [s.k for s in found], [s.promised for s in found]
    band = ([s.low for s in found], [s.high for s in found])
    frequencies = [s.frequency for s in found]
    plots.draw_line(axes, "measured", k, frequencies, band=band, colour=BLUE, marked=True)
    plots.draw_line(axes, "promised: 1 - delta", k, promised, colour=BLACK, dashed=True)
    low = min(*promised, *band[0])
    axes.set_ylim(low - (1 - low) * 0.2, 1 + (1 - low) * 0.1)
    note = f"q = {found[0].q:,} to {found[-1].q:,}"
    plots.label_panel(axes, f"delta = {found[0].delta:g}", x="k", y="frequency", note=note)


def describe_learning(result: Learning) -> list[str]:
    """The last losses of every run, the run that Theorem 2 covers, and Lemma 2's event."""
    lines = [_describe_run(run, result.curves) for run in result.runs]
    run, covered = result.covered, result.covered_curves
    lines.append(
        f"Theorem 2's bound is below 1 from q = {theorem2_width(run.n, run.k):,} on for "
        f"n = {run.n}, k = {run.k}; measured with q = {run.q:,} over {run.steps:,} steps: "
        f"mean loss {max(c.losses.mean() for c in covered):.3f}, bound {theorem2_bound(run):.3f}"
    )
    least = min(result.separability, key=lambda s: s.frequency - s.promised)
    lines.append(
        f"Lemma 2's event is closest to its promise at k = {least.k}, delta = {least.delta:g}: "
        f"{least.frequency:.4f} of the draws, promised {least.promised:.4f}"
    )
    return lines


def _describe_run(run: Descent, curves: Sequence[Curve]) -> str:
    parts = []
    for layer in LAYERS:
        last = [c.losses[-1] for c in curves if c.run == run and c.layer == layer]
        parts.append(f"{layer} {sum(last) / len(last):.3f}")
    return f"n = {run.n}, k = {run.k}, {run.steps} steps, last loss: {'; '.join(parts)}"
