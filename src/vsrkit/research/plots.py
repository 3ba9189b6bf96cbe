"""Line plots as SVG: panels with axes, bands and one legend, written by hand and read by browsers.

Every series carries its numbers in `data-x` and `data-y`, so that a plot can be read back.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

COLOURS = ("#1f5fa8", "#c8511b", "#2a8a57", "#8447a3", "#b58a00", "#3b9fb5", "#a3304f", "#555555")
WIDTH, HEIGHT = 300, 220  # of the area inside a panel's axes
LEFT, RIGHT, ABOVE, BELOW = 62, 18, 34, 46  # around it
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
STYLE = (
    "text{font:12px sans-serif;fill:#222}.title{font-weight:bold}.small{font-size:11px;fill:#555}"
    ".grid{stroke:#e4e4e4}.axis{stroke:#444;fill:none}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line. Points that are no numbers, or not positive on a log axis, are left out."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str
    low: Sequence[float] | None = None  # lower and upper edge of a band around it
    high: Sequence[float] | None = None
    dashed: bool = False
    marked: bool = False  # a dot at every point


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One pair of axes."""

    title: str
    series: Sequence[Series]
    x_label: str
    y_label: str
    log_y: bool = False
    y_range: tuple[float, float] | None = None  # else from the series
    note: str = ""  # in small letters below the title


def write_plot(path: Path, title: str, panels: Sequence[Panel], *, columns: int = 3) -> None:
    """Write the panels, row by row, with one legend for all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(draw(title, panels, columns=columns), encoding="utf-8")


def draw(title: str, panels: Sequence[Panel], *, columns: int = 3) -> str:
    """The plot as the text of an SVG file."""
    columns = min(columns, len(panels))
    cell_width, cell_height = LEFT + WIDTH + RIGHT, ABOVE + HEIGHT + BELOW
    rows = math.ceil(len(panels) / columns)
    width = columns * cell_width
    entries = _legend_entries(panels)
    legend, legend_height = _legend(entries, width)
    top = 34
    height = top + rows * cell_height + legend_height
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="{LEFT}" y="22" class="title" style="font-size:15px">{escape(title)}</text>',
    ]
    for number, panel in enumerate(panels):
        x, y = number % columns * cell_width + LEFT, number // columns * cell_height + top + ABOVE
        parts += [f'<g transform="translate({x} {y})">', *_panel(panel), "</g>"]
    parts += [f'<g transform="translate({LEFT} {top + rows * cell_height})">', *legend, "</g>"]
    return "\n".join([*parts, "</svg>"]) + "\n"


@dataclass(frozen=True, slots=True)
class Axis:
    """Numbers to pixels."""

    low: float
    high: float
    pixels: int
    log: bool = False
    whole: bool = False  # ticks at whole numbers only

    def __call__(self, value: float) -> float:
        low, high, value = (
            (math.log10(v) for v in (self.low, self.high, max(value, self.low)))
            if self.log
            else (self.low, self.high, value)
        )
        return round((value - low) / (high - low) * self.pixels, 2)

    def ticks(self) -> list[float]:
        """Whole decades, or about five round numbers."""
        if self.log:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            every = max(1, math.ceil((last - first) / 7))
            return [10.0**e for e in range(first, last + 1, every)]
        step = 10 ** math.floor(math.log10((self.high - self.low) / 4))
        step *= next(m for m in (1, 2, 5, 10) if (self.high - self.low) / (step * m) <= 6)
        step = max(step, 1) if self.whole else step
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def _panel(panel: Panel) -> list[str]:
    usable = {id(s): _usable(s, panel.log_y) for s in panel.series}
    x_axis, y_axis = _axes(panel, [i for s in panel.series for i in _at(s, usable[id(s)])])
    parts = [
        f'<text x="0" y="-18" class="title">{escape(panel.title)}</text>',
        f'<text x="0" y="-5" class="small">{escape(panel.note)}</text>',
    ]
    for tick in x_axis.ticks():
        x = x_axis(tick)
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="0" y2="{HEIGHT}"/>')
        parts.append(f'<text x="{x}" y="{HEIGHT + 16}" text-anchor="middle">{tick:g}</text>')
    for tick in y_axis.ticks():
        y = HEIGHT - y_axis(tick)
        parts.append(f'<line class="grid" x1="0" x2="{WIDTH}" y1="{y}" y2="{y}"/>')
        parts.append(
            f'<text x="-6" y="{y + 4}" text-anchor="end">{_tick(tick, panel.log_y)}</text>'
        )
    parts.append(f'<path class="axis" d="M0 0V{HEIGHT}H{WIDTH}"/>')
    for series in panel.series:
        parts += _series(series, usable[id(series)], x_axis, y_axis)
    parts.append(
        f'<text x="{WIDTH / 2}" y="{HEIGHT + 34}" text-anchor="middle">'
        f"{escape(panel.x_label)}</text>"
    )
    parts.append(
        f'<text transform="translate(-48 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(panel.y_label)}</text>"
    )
    return parts


def _usable(series: Series, log: bool) -> list[int]:
    return [i for i, y in enumerate(series.y) if math.isfinite(y) and (y > 0 or not log)]


def _at(series: Series, usable: Iterable[int]) -> list[tuple[float, float]]:
    """Every point that must be inside the axes."""
    points = [(series.x[i], series.y[i]) for i in usable]
    for edge in (series.low, series.high):
        points += [(series.x[i], edge[i]) for i in usable] if edge is not None else []
    return points


def _axes(panel: Panel, points: Sequence[tuple[float, float]]) -> tuple[Axis, Axis]:
    if not points:
        raise ValueError(f"nothing to draw in {panel.title!r}")
    xs = [x for x, _ in points]
    ys = [y for _, y in points if y > 0 or not panel.log_y]
    whole = all(x == round(x) for x in xs)
    x_axis = Axis(*_widened(min(xs), max(xs), 0.0), WIDTH, whole=whole)
    if panel.y_range:
        return x_axis, Axis(*panel.y_range, HEIGHT, panel.log_y)
    if panel.log_y:
        low, high = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))
        return x_axis, Axis(10.0**low, 10.0 ** max(high, low + 1), HEIGHT, log=True)
    return x_axis, Axis(*_widened(min(ys), max(ys), 0.05), HEIGHT)


def _widened(low: float, high: float, share: float) -> tuple[float, float]:
    margin = (high - low) * share if high > low else max(abs(high), 1.0) / 2
    return low - margin, high + margin


def _series(series: Series, usable: Sequence[int], x_axis: Axis, y_axis: Axis) -> list[str]:
    if not usable:
        return []

    def place(values: Sequence[float], i: int) -> str:
        y = min(max(values[i], y_axis.low), y_axis.high)
        return f"{x_axis(series.x[i])},{round(HEIGHT - y_axis(y), 2)}"

    line = " ".join(place(series.y, i) for i in usable)
    numbers = {axis: " ".join(f"{v[i]:.9g}" for i in usable) for axis, v in
               (("x", series.x), ("y", series.y))}  # fmt: skip
    parts = []
    if series.low is not None and series.high is not None:
        around = [place(series.high, i) for i in usable]
        around += [place(series.low, i) for i in reversed(usable)]
        parts.append(
            f'<polygon points="{" ".join(around)}" fill="{series.colour}" fill-opacity="0.18"/>'
        )
    dash = ' stroke-dasharray="5 4"' if series.dashed else ""
    parts.append(
        f'<polyline class="series" data-name={quoteattr(series.name)} data-x="{numbers["x"]}" '
        f'data-y="{numbers["y"]}" points="{line}" fill="none" stroke="{series.colour}" '
        f'stroke-width="1.8"{dash}/>'
    )
    if series.marked:
        dots = (point.split(",") for point in line.split())
        parts += [f'<circle cx="{x}" cy="{y}" r="2.6" fill="{series.colour}"/>' for x, y in dots]
    return parts


def _tick(value: float, log: bool) -> str:
    if not log:
        return f"{value:g}"
    return "10" + str(round(math.log10(value))).translate(RAISED)


def _legend_entries(panels: Sequence[Panel]) -> list[Series]:
    """Each name once, in the order of its first use."""
    entries: dict[str, Series] = {}
    for panel in panels:
        for series in panel.series:
            entries.setdefault(series.name, series)
    return list(entries.values())


def _legend(entries: Sequence[Series], width: int) -> tuple[list[str], int]:
    """Entries from left to right, and the height that they take."""
    parts, x, y = [], 0, 8
    for series in entries:
        wide = 44 + round(6.6 * len(series.name))
        if x and LEFT + x + wide > width:
            x, y = 0, y + 20
        dash = ' stroke-dasharray="5 4"' if series.dashed else ""
        parts.append(
            f'<line x1="{x}" x2="{x + 24}" y1="{y}" y2="{y}" stroke="{series.colour}" '
            f'stroke-width="2.4"{dash}/><text x="{x + 30}" y="{y + 4}">{escape(series.name)}</text>'
        )
        x += wide
    return parts, y + 20
