"""Figures by matplotlib: panels, lines, bands, one legend; tables; a missing matplotlib."""

import sys
from math import nan
from subprocess import run
from xml.etree import ElementTree

import pytest
from tests.research.artists import lines_of

from vsrkit.research.plots import draw_line, label_panel, panel_figure, write_csv, write_figure


def new_figure(title, panels):
    """A figure with empty panels, and its panels."""
    figure = panel_figure(title, range(panels), lambda axes, group: None)
    return figure, figure.axes


def test_groups_are_drawn_into_their_panels():
    drawn = []
    figure = panel_figure("title", "abcd", lambda axes, group: drawn.append((axes, group)))
    assert drawn == list(zip(figure.axes, "abcd", strict=True))


def test_a_panel_has_its_lines_labels_and_scale():
    figure, (axes,) = new_figure("title", 1)
    draw_line(axes, "one", [1, 2, 4], [1.0, 10.0, nan], colour="#123456", dashed=True, marked=True)
    axes.set_yscale("log")
    label_panel(axes, "a < b", x="n", y="loss", note="a note")
    (line,) = axes.get_lines()
    assert (line.get_color(), line.get_linestyle(), line.get_marker()) == ("#123456", "--", "o")
    x, y = lines_of(axes)["one"]
    assert x == [1, 2, 4]
    assert y == pytest.approx([1, 10, nan], nan_ok=True)
    assert (axes.get_title(loc="left"), axes.get_xlabel(), axes.get_ylabel()) == (
        "a < b", "n", "loss",
    )  # fmt: skip
    assert [text.get_text() for text in axes.texts] == ["a note"]
    assert axes.get_yscale() == "log"
    assert all(tick == round(tick) for tick in axes.get_xticks())
    assert figure.get_suptitle() == "title"


def test_a_band_surrounds_its_line():
    _, (axes,) = new_figure("title", 1)
    band = ([-5.0, 0.5, 0.5], [2.0, 2.0, 9.0])
    draw_line(axes, "one", [1, 2, 3], [1.0, 1.0, 1.0], colour="#123456", band=band)
    (area,) = axes.collections
    points = {tuple(point) for path in area.get_paths() for point in path.vertices}
    assert {(1, -5), (2, 0.5), (3, 0.5), (1, 2), (2, 2), (3, 9)} <= points


@pytest.mark.parametrize(("panels", "grid"), [(1, (1, 1)), (2, (1, 2)), (5, (2, 3))])
def test_panels_fill_rows(panels, grid):
    figure, axes = new_figure("title", panels)
    assert len(axes) == len(figure.axes) == panels
    assert axes[0].get_gridspec().get_geometry() == grid


def test_a_figure_is_written_with_one_legend_entry_for_each_name(tmp_path):
    figure, panels = new_figure("title", 2)
    for axes, names in zip(panels, (["one & two"], ["one & two", "other"]), strict=True):
        for name in names:
            draw_line(axes, name, [1, 2], [1.0, 2.0], colour="#123456")
    path = tmp_path / "new" / "plot.svg"
    write_figure(path, figure)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["one & two", "other"]
    assert ElementTree.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_the_same_figure_gives_the_same_bytes(tmp_path):
    for name in ("a.svg", "b.svg"):
        figure, (axes,) = new_figure("title", 1)
        draw_line(axes, "one", [1, 2], [1.0, 2.0], colour="#123456", band=([0, 1], [2, 3]))
        write_figure(tmp_path / name, figure)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_a_table_has_a_heading(tmp_path):
    write_csv(tmp_path / "new" / "t.csv", ({"a": n, "b": "x,y"} for n in range(2)))
    assert (tmp_path / "new" / "t.csv").read_text() == 'a,b\n0,"x,y"\n1,"x,y"\n'


def test_a_missing_matplotlib_is_one_line_before_anything_is_computed(tmp_path):
    """Python treats a None in sys.modules as a module that cannot be imported."""
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "sys.argv = ['vsrkit', 'theory', 'learn', '-o', sys.argv[1]]\n"
        "from vsrkit.cli import main; main()"
    )
    done = run([sys.executable, "-c", program, tmp_path / "out"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "vsrkit: matplotlib is not installed; install it with `pip install vsrkit[research]`"
    ]
    assert not (tmp_path / "out").exists()
