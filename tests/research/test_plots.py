"""The plots: their numbers, axes and legend."""

from math import nan
from xml.etree import ElementTree

import pytest

from vsrkit.research.plots import HEIGHT, WIDTH, Axis, Panel, Series, draw

SVG = "{http://www.w3.org/2000/svg}"


def panel(**changes):
    values = {"title": "a < b", "series": [line()], "x_label": "n", "y_label": "loss"}
    return Panel(**(values | changes))


def line(**changes):
    values = {"name": "one & two", "x": [1, 2, 4], "y": [1.0, 10.0, 100.0], "colour": "#123456"}
    return Series(**(values | changes))


def points(text):
    polyline = ElementTree.fromstring(text).find(f".//{SVG}polyline")
    return [tuple(map(float, p.split(","))) for p in polyline.get("points").split()]


def test_points_lie_where_their_numbers_say():
    found = points(draw("t", [panel(log_y=True)]))
    assert found == [(0, HEIGHT), (WIDTH / 3, HEIGHT / 2), (WIDTH, 0)]


def test_what_cannot_be_drawn_is_left_out():
    series = line(y=[0.0, nan, 5.0])
    assert len(points(draw("t", [panel(series=[series, line()], log_y=True)]))) == 1
    with pytest.raises(ValueError, match="nothing to draw"):
        draw("t", [panel(series=[line(y=[nan] * 3)])])


def test_bands_are_cut_at_the_axes():
    series = line(y=[1.0, 1.0, 1.0], low=[-5.0, 0.5, 0.5], high=[2.0, 2.0, 900.0])
    text = draw("t", [panel(series=[series], y_range=(0.0, 2.0))])
    polygon = ElementTree.fromstring(text).find(f".//{SVG}polygon")
    heights = [float(p.split(",")[1]) for p in polygon.get("points").split()]
    assert min(heights) == 0
    assert max(heights) == HEIGHT


def test_one_legend_entry_for_each_name():
    text = draw("t", [panel(), panel(series=[line(), line(name="other")])])
    assert text.count(">one &amp; two<") == 1
    assert text.count(">other<") == 1
    assert text.count("a &lt; b") == 2


@pytest.mark.parametrize(
    ("axis", "ticks"),
    [
        (Axis(0, 1, 100), [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (Axis(8, 20, 100), [8, 10, 12, 14, 16, 18, 20]),
        (Axis(2, 4, 100, whole=True), [2, 3, 4]),
        (Axis(1e-3, 10, 100, log=True), [1e-3, 1e-2, 1e-1, 1, 10]),
    ],
)
def test_ticks_are_round(axis, ticks):
    assert axis.ticks() == pytest.approx(ticks)
