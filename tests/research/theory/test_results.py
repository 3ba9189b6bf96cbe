"""Tables, figures and summary lines of both theory experiments."""

import csv
from dataclasses import replace

import pytest
from tests.research.artists import lines_of

from vsrkit.research.theory.bounds import covered_run, theorem1_supported
from vsrkit.research.theory.gradient import measure_gradients, vanishes
from vsrkit.research.theory.learn import LAYERS, learn_patterns
from vsrkit.research.theory.results import (
    describe_gradients,
    describe_learning,
    gradient_figure,
    learning_figure,
    separability_figure,
    write_gradients,
    write_learning,
)

KS = range(2, 7)


def test_gradients_have_a_row_for_each_cell_and_a_line_for_each_name(tmp_path):
    grid = measure_gradients([8, 9, 10, 11, 18], KS, q=4, enumerate_up_to=11)
    table, plot = write_gradients(grid, tmp_path)
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(grid) == 2 * 5 * 5
    assert float(rows[0]["fc_mean"]) == grid[0].fully_connected.mean
    assert {r["fc_inputs"] for r in rows if r["n"] == "18"} == {"sampled"}
    assert plot.stat().st_size > 0
    panels = gradient_figure(grid).axes
    assert len(panels) == len(KS)
    for k, axes in zip(KS, panels, strict=True):
        lines = lines_of(axes)
        assert axes.get_yscale() == "log"
        assert axes.get_title(loc="left") == f"k = {k}, q = 4"
        assert ("fully connected" in lines) == (not vanishes(k, bias=False))
        assert [t.get_text() for t in axes.texts] == (
            ["without a bias both are exactly 0"] if vanishes(k, bias=False) else []
        )
        x, y = lines["bound that its proof supports"]
        assert x == [8, 9, 10, 11, 18]
        assert y == pytest.approx([float(theorem1_supported(int(n), k, 4)) for n in x])
        _, measured = lines["fully connected, with a bias"]
        cells = [c for c in grid if c.bias and c.k == k]
        assert measured == pytest.approx([c.fully_connected.mean for c in cells])
    summary = describe_gradients(grid)
    assert "holds in 50 of 50 cells" in summary[0]
    assert "holds in 50 of 50 cells" in summary[1]


def test_learning_has_tables_and_figures(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "vsrkit.research.theory.learn.covered_run",
        lambda n, k: replace(covered_run(n, k), steps=12_000),
    )
    result = learn_patterns([6, 7], [2], seeds=2, steps=40, draws=50)
    write_learning(result, tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {
        f"{name}.{kind}" for name in ("learn", "bound", "separable") for kind in ("csv", "svg")
    }
    panels = [lines_of(axes) for axes in learning_figure(result.curves, "title").axes]
    assert [set(p) for p in panels] == [set(LAYERS)] * 2  # no line: the bound is above 1
    steps, losses = panels[0]["convolutional"]
    assert steps == list(range(1, 41))
    assert losses[0] == 1
    assert losses[-1] < 0.6
    (axes,) = learning_figure(result.covered_curves, "title").axes
    bound = [value for value in lines_of(axes)["Theorem 2's bound on that mean"][1] if value > 0]
    assert len(bound) > 0
    assert max(bound) < 1
    with (tmp_path / "learn.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 3 * 2 * 40
    assert all(float(r["theorem2"]) > 1 for r in rows)
    panels = [lines_of(axes) for axes in separability_figure(result.separability).axes]
    assert [set(p) for p in panels] == [{"measured", "promised: 1 - delta"}] * 3
    summary = describe_learning(result)
    assert "last loss" in summary[0]
