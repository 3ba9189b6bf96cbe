"""Line plots (SVG, by matplotlib) and tables (CSV) of experiments."""

import csv
from collections.abc import Callable, Iterable, Sequence
from math import ceil
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from vsrkit.errors import VsrkitError

try:
    import matplotlib
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
    from matplotlib.ticker import MaxNLocator
except ImportError as error:
    raise VsrkitError(
        "matplotlib is not installed; install it with `pip install vsrkit[research]`"
    ) from error

COLOURS = ("#1f5fa8", "#c8511b", "#2a8a57", "#8447a3", "#b58a00", "#3b9fb5", "#a3304f", "#555555")
BLUE, ORANGE, GREEN, PURPLE = COLOURS[:4]
GREY = COLOURS[-1]
PANEL_SIZE = (3.9, 3.0)  # inches, with labels
LEGEND_COLUMNS = 3
T = TypeVar("T")


def panel_figure(
    title: str, groups: Sequence[T], draw: Callable[[Axes, T], None], *, columns: int = 3
) -> Figure:
    """A figure with a panel for each group of data.

    title: the heading of the whole figure.
    groups: the data of each panel, row by row.
    draw: draws one group into the axes of its panel.
    columns: panels in a row; fewer if there are not as many groups.
    """
    columns = min(columns, len(groups))
    rows = ceil(len(groups) / columns)
    width, height = PANEL_SIZE
    figure = Figure(figsize=(width * columns, height * rows + 0.8), layout="constrained")
    figure.suptitle(title, fontsize=13, fontweight="bold")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, group in zip(panels, groups, strict=False):
        draw(axes, group)
    for unused in panels[len(groups) :]:
        unused.remove()
    return figure


def label_panel(axes: Axes, title: str, *, x: str, y: str, note: str = "") -> None:
    """Set the title of a panel and the labels of its axes; the x axis counts in whole numbers.

    note: a remark in small letters between the title and the axes.
    """
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold", pad=16 if note else None)
    if note:
        axes.text(0, 1.02, note, transform=axes.transAxes, fontsize=8, color=GREY)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.grid(color="#e4e4e4", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)


def draw_line(
    axes: Axes,
    name: str,
    x: Sequence[float],
    y: Sequence[float],
    *,
    colour: str,
    band: tuple[Sequence[float], Sequence[float]] | None = None,
    dashed: bool = False,
    marked: bool = False,
) -> None:
    """Draw one line into a panel.

    name: the label in the legend; lines of the same name share one entry.
    x, y: the points; NaN leaves a gap.
    colour: any colour that matplotlib accepts.
    band: the lower and the upper edge of a shaded area around the line.
    dashed: dashes instead of a solid line.
    marked: a dot at every point.
    """
    style, marker = "--" if dashed else "-", "o" if marked else ""
    axes.plot(x, y, style, color=colour, label=name, marker=marker, markersize=3.5, linewidth=1.6)
    if band is not None:
        axes.fill_between(x, *band, color=colour, alpha=0.18, linewidth=0)


def draw_seeds(
    axes: Axes,
    name: str,
    x: Sequence[float],
    runs: Sequence[Sequence[float]],
    *,
    colour: str,
    marked: bool = False,
) -> None:
    """Draw the mean of several runs, with a band from the lowest to the highest.

    runs: the values of each run at x; the other arguments are those of `draw_line`.
    """
    values = np.array(runs)
    band = (values.min(axis=0).tolist(), values.max(axis=0).tolist())
    mean = values.mean(axis=0).tolist()
    draw_line(axes, name, x, mean, band=band, colour=colour, marked=marked)


def write_figure(path: Path, figure: Figure) -> None:
    """Add one legend for all panels of a figure and write it as SVG."""
    entries: dict[str, Artist] = {}
    for axes in figure.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(name, handle)
    figure.legend(
        entries.values(),
        entries.keys(),
        loc="outside lower left",
        ncols=min(LEGEND_COLUMNS, len(entries)),
        frameon=False,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    # With a fixed salt and without a date, the same figure is written as the same bytes every time.
    with matplotlib.rc_context({"svg.hashsalt": "vsrkit", "svg.fonttype": "none"}):
        figure.savefig(path, format="svg", metadata={"Date": None})


def write_csv(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write a table whose columns are the keys of its first row."""
    rows = list(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
