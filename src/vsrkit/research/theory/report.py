"""What the theory commands write: a CSV and a plot of each experiment."""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np

from vsrkit.research.plots import COLOURS, Panel, Series, write_plot
from vsrkit.research.theory.bounds import Descent, theorem2
from vsrkit.research.theory.gradient import Cell, Estimate, vanishes
from vsrkit.research.theory.learn import LAYERS, Curve
from vsrkit.research.theory.separable import Separability, indicator_error, witness_error

BLUE, ORANGE, GREEN, PURPLE = COLOURS[:4]
GREY = COLOURS[-1]
MOST_POINTS = 200  # of a curve, in CSV and plot


def write_csv(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """A table with a heading."""
    rows = list(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def write_gradients(cells: Sequence[Cell], folder: Path) -> list[Path]:
    """gradient.csv, a row for each n, k and bias, and gradient.svg, a panel for each k."""
    table, plot = folder / "gradient.csv", folder / "gradient.svg"
    write_csv(table, (_gradient_row(cell) for cell in cells))
    panels = [_gradient_panel([c for c in cells if c.k == k]) for k in sorted({c.k for c in cells})]
    write_plot(plot, "Squared norm of the first gradient, E‖∂L/∂W‖²", panels)
    return [table, plot]


def _gradient_row(cell: Cell) -> dict[str, Any]:
    row = {name: value for name, value in asdict(cell).items() if not isinstance(value, dict)}
    for name, found in (("fc", cell.fully_connected), ("conv", cell.convolutional)):
        row |= {f"{name}_{key}": value for key, value in asdict(found).items()}
    return row


def _gradient_panel(cells: Sequence[Cell]) -> Panel:
    k, q = cells[0].k, cells[0].q
    plain, biased = ([c for c in cells if c.bias == bias] for bias in (False, True))
    series = []
    if not vanishes(k, bias=False):
        series += [
            _estimates("convolutional", plain, [c.convolutional for c in plain], GREEN),
            _estimates("fully connected", plain, [c.fully_connected for c in plain], BLUE),
        ]
    series += [
        _estimates("convolutional, with a bias", biased, [c.convolutional for c in biased], ORANGE),
        _estimates(
            "fully connected, with a bias", biased, [c.fully_connected for c in biased], PURPLE
        ),
        _bound("bound as printed", plain, [c.printed for c in plain], "#000000", dashed=True),
        _bound("bound that its proof supports", plain, [c.supported for c in plain], GREY),
    ]
    note = "without a bias both are exactly 0" if vanishes(k, bias=False) else ""
    return Panel(
        title=f"k = {k}, q = {q}",
        series=series,
        x_label="n",
        y_label="squared norm",
        log_y=True,
        note=note,
    )


def _estimates(name: str, cells: Sequence[Cell], found: Sequence[Estimate], colour: str) -> Series:
    return Series(
        name=name,
        x=[c.n for c in cells],
        y=[e.mean for e in found],
        low=[e.low for e in found],
        high=[e.high for e in found],
        colour=colour,
        marked=True,
    )


def _bound(
    name: str, cells: Sequence[Cell], values: Sequence[float], colour: str, dashed: bool = False
) -> Series:
    return Series(name=name, x=[c.n for c in cells], y=values, colour=colour, dashed=dashed)


def write_learning(curves: Sequence[Curve], folder: Path, name: str, title: str) -> list[Path]:
    """NAME.csv, a row for each step shown, and NAME.svg, a panel for each n and k."""
    table, plot = folder / f"{name}.csv", folder / f"{name}.svg"
    runs = sorted({c.run for c in curves}, key=lambda run: (run.k, run.n))
    write_csv(table, (row for run in runs for row in _learning_rows(run, curves)))
    panels = [_learning_panel(run, [c for c in curves if c.run == run]) for run in runs]
    columns = len({run.n for run in runs})
    write_plot(plot, title, panels, columns=columns)
    return [table, plot]


def shown_steps(steps: int) -> list[int]:
    """Step numbers from 1 to the last, not too many."""
    return sorted({round(s) for s in np.linspace(1, steps, min(steps, MOST_POINTS))})


def _learning_rows(run: Descent, curves: Sequence[Curve]) -> Iterable[dict[str, Any]]:
    for curve in (c for c in curves if c.run == run):
        means = np.cumsum(curve.losses) / np.arange(1, run.steps + 1)
        for step in shown_steps(run.steps):
            yield {
                "n": run.n,
                "k": run.k,
                "q": run.q,
                "learning_rate": run.learning_rate,
                "layer": curve.layer,
                "seed": curve.seed,
                "step": step,
                "loss": curve.losses[step - 1],
                "mean_loss_so_far": means[step - 1],
                "theorem2": _bound_at(run, step),
            }


def _bound_at(run: Descent, step: int) -> float:
    return theorem2(Descent(run.n, run.k, run.q, run.learning_rate, step))


def _learning_panel(run: Descent, curves: Sequence[Curve]) -> Panel:
    steps = shown_steps(run.steps)
    series = []
    for layer, colour in zip(LAYERS, (GREEN, ORANGE, BLUE), strict=True):
        losses = [c.losses[np.array(steps) - 1] for c in curves if c.layer == layer]
        if losses:
            series.append(_band(layer, steps, np.stack(losses), colour))
    bound = [_bound_at(run, step) for step in steps]
    lowest = min(bound)
    note = f"Theorem 2: above 1 at every step (least {lowest:.3g})"
    if lowest < 1:
        means = [
            np.cumsum(c.losses)[np.array(steps) - 1] / steps
            for c in curves
            if c.layer == "convolutional"
        ]
        series += [
            _band("its mean over the steps so far", steps, np.stack(means), PURPLE),
            Series(
                name="Theorem 2's bound on that mean",
                x=steps,
                y=[b if b < 1 else nan for b in bound],
                colour=GREY,
                dashed=True,
            ),
        ]
        note = "the bound is drawn where it is below 1"
    return Panel(
        title=f"n = {run.n}, k = {run.k}, q = {run.q:,}",
        series=series,
        x_label="step",
        y_label="hinge loss",
        y_range=(-0.05, 1.15),
        note=note,
    )


def _band(name: str, x: Sequence[float], rows: np.ndarray, colour: str) -> Series:
    """Mean over seeds, between the least and the largest."""
    return Series(
        name=name,
        x=x,
        y=rows.mean(axis=0).tolist(),
        low=rows.min(axis=0).tolist(),
        high=rows.max(axis=0).tolist(),
        colour=colour,
    )


def write_separability(found: Sequence[Separability], folder: Path) -> list[Path]:
    """separable.csv and separable.svg, a panel for each delta."""
    table, plot = folder / "separable.csv", folder / "separable.svg"
    write_csv(table, (_separability_row(s) for s in found))
    panels = [
        _separability_panel([s for s in found if s.delta == delta])
        for delta in sorted({s.delta for s in found})
    ]
    write_plot(plot, "Lemma 2: how often every sign pattern has q / 2ᵏ⁺¹ neurons", panels)
    return [table, plot]


def _separability_row(s: Separability) -> dict[str, Any]:
    return asdict(s) | {
        "promised": s.promised,
        "indicator_error_printed": indicator_error(s.k, bias=False),
        "indicator_error_with_bias": indicator_error(s.k, bias=True),
        "witness_error_printed": witness_error(s.k, bias=False),
        "witness_error_with_bias": witness_error(s.k, bias=True),
    }


def _separability_panel(found: Sequence[Separability]) -> Panel:
    k = [s.k for s in found]
    low = min([s.promised for s in found] + [s.low for s in found])
    return Panel(
        title=f"delta = {found[0].delta:g}",
        series=[
            Series(
                name="measured",
                x=k,
                y=[s.frequency for s in found],
                low=[s.low for s in found],
                high=[s.high for s in found],
                colour=BLUE,
                marked=True,
            ),
            Series(
                name="promised: 1 - delta",
                x=k,
                y=[s.promised for s in found],
                colour="#000000",
                dashed=True,
            ),
        ],
        x_label="k",
        y_label="frequency",
        y_range=(low - (1 - low) * 0.2, 1 + (1 - low) * 0.1),
        note=f"q = {found[0].q:,} to {found[-1].q:,}",
    )


def describe_gradients(cells: Sequence[Cell]) -> list[str]:
    """What the numbers say of the bounds."""
    known = [c for c in cells if not vanishes(c.k, bias=c.bias)]
    lines = [
        _holds("the bound that the proof supports", cells, [c.supported for c in cells]),
        _holds("the bound as printed", cells, [c.printed for c in cells]),
    ]
    inside = sum(c.fully_connected.low <= c.closed_form <= c.fully_connected.high for c in known)
    lines.append(f"the closed form lies in {inside} of {len(known)} 95 % intervals")
    ratio = max(
        (c.fully_connected.mean / c.convolutional.mean for c in known if c.convolutional.mean),
        default=inf,
    )
    lines.append(f"fully connected / convolutional: at most {ratio:.3g}, see the CSV")
    if len(known) < len(cells):
        lines.append("odd k from 3 on, without a bias: both gradients are exactly 0")
    return lines


def _holds(name: str, cells: Sequence[Cell], bounds: Sequence[float]) -> str:
    held = sum(c.fully_connected.high <= b for c, b in zip(cells, bounds, strict=True))
    closest = max(c.fully_connected.high / b for c, b in zip(cells, bounds, strict=True))
    return (
        f"{name} holds in {held} of {len(cells)} cells; "
        f"the upper end of the interval is at most {closest:.3g} of it"
    )
