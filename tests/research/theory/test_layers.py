"""Attention layers on videos of signs: the videos, the gradient, the training and its files."""

import csv
from math import isnan

import numpy as np
import pytest
import torch
from tests.research.artists import lines_of
from typer.testing import CliRunner

from vsrkit.cli import app
from vsrkit.errors import VsrkitError
from vsrkit.models.layers.patch_attention import ConvAttention, LinearAttention
from vsrkit.research.theory.layers import (
    KINDS,
    LAYOUTS,
    LayerPredictor,
    VideoLayout,
    accuracy,
    descend,
    draw_videos,
    gradient_signal,
    train_layers,
)
from vsrkit.research.theory.layers_results import (
    describe_layers,
    half_step,
    layer_rows,
    layers_figure,
    smooth,
)

SMALL = VideoLayout("small", frames=1, side=3, patch=3, column=0)


def test_the_loss_is_smoothed_over_the_last_steps():
    losses = np.r_[np.ones(30), np.zeros(30)]
    found = smooth(losses)
    assert found[29] == 1
    assert found[39] == pytest.approx(0.5)
    assert found[-1] == pytest.approx(0)
    assert half_step(losses) == 41
    assert half_step(np.ones(5)) == float("inf")


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_the_target_is_the_product_of_neighbouring_pixels_of_one_frame(layout):
    torch.manual_seed(0)
    bits, target = draw_videos(64, layout, 4)
    assert set(bits.unique().tolist()) == {-1, 1}
    assert bits[0].numel() == layout.bits
    relevant = []
    for number in range(layout.bits):
        flipped = bits.flatten(1).clone()
        flipped[:, number] *= -1
        square = flipped.view_as(bits)[:, layout.frames // 2, layout.side // 2 :]
        cells = square[:, :3, layout.column : layout.column + 3].flatten(1)[:, :4].prod(1)
        if torch.equal(cells, -target):
            relevant.append(np.unravel_index(number, bits.shape[1:]))
    assert len(relevant) == 4
    assert len({int(frame) for frame, _, _ in relevant}) == 1
    patches = {(int(y) // layout.patch, int(x) // layout.patch) for _, y, x in relevant}
    assert len(patches) == (2 if "across" in layout.name else 1)


def test_the_layers_are_those_of_the_networks_and_equally_wide():
    for layout in LAYOUTS:
        convolutional, connected = (LayerPredictor(kind, layout, scaled=False) for kind in KINDS)
        assert isinstance(convolutional.layer, ConvAttention)
        assert isinstance(connected.layer, LinearAttention)
        assert convolutional.u.shape == connected.u.shape
        bits = draw_videos(2, layout, 2)[0]
        assert torch.equal(convolutional(bits), torch.zeros(2))  # u starts at zero
        if layout.tokens > 1:  # softmax over several tokens: the attention is not skipped
            x = torch.randn(2, layout.frames, 8, layout.side, layout.side)
            weights = convolutional.layer.weights(x, slice(0, layout.frames))
            assert weights.shape[-1] == layout.tokens
            assert weights.max() < 1


def test_the_signal_of_a_gradient_is_measured_without_bias():
    """With one sign as the target the gradient is large; of an unused frame there is none."""
    torch.manual_seed(0)
    predictor = LayerPredictor("STCSA", SMALL, scaled=False)
    before = [p.detach().clone() for p in predictor.parameters()]
    one = gradient_signal(predictor, SMALL, 1)
    nine = gradient_signal(predictor, SMALL, 9)
    assert 0.01 < one < 1
    assert abs(nine) < 0.003  # of 4096 videos: a thousandth is noise
    assert all(torch.equal(a, b) for a, b in zip(before, predictor.parameters(), strict=True))


def test_a_pattern_of_two_is_learnt_and_the_sign_is_right():
    torch.manual_seed(0)
    predictor = LayerPredictor("STCSA", SMALL, scaled=False)
    assert accuracy(predictor, SMALL, 2) == 0  # h is 0, which has neither sign
    losses = descend(predictor, SMALL, 2, 120, 1e-2)
    assert losses[0] == pytest.approx(1)
    assert np.mean(losses[-10:]) < 0.1
    assert accuracy(predictor, SMALL, 2) > 0.95


def test_the_study_is_written_as_tables_and_curves(tmp_path):
    study = train_layers([2], seeds=2, steps=3)
    rows = layer_rows(study)
    assert len(study.runs) == len(LAYOUTS) * len(KINDS) * 2
    assert [(row.layout, row.layer) for row in rows] == [
        (layout.name, kind) for layout in LAYOUTS for kind in KINDS
    ]
    assert all(row.seeds == 2 and row.accuracy_low <= row.accuracy <= row.accuracy_high
               for row in rows)  # fmt: skip
    assert all(isnan(row.half_step) and row.learnt == 0 for row in rows)  # three steps teach none
    figure = layers_figure(study)
    assert len(figure.axes) == len(LAYOUTS)
    steps, losses = lines_of(figure.axes[0])["STCSA"]
    assert steps == [1, 2, 3]
    expected = np.mean([smooth(r.losses) for r in study.runs[:2]], axis=0)
    assert losses == pytest.approx(expected.tolist())
    assert len(describe_layers(study)) == 1 + len(rows)
    again = train_layers([2], seeds=1, steps=3)
    assert all(
        np.array_equal(a.losses, b.losses) for a, b in zip(study.runs[::2], again.runs, strict=True)
    )


def test_the_command_writes_its_files(tmp_path):
    words = ["theory", "layers", "-o", str(tmp_path), "--k", "2", "--seeds", "1", "--steps", "2"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "one token, k = 2, STCSA: learnt by 0 of 1 seeds" in done.output
    with (tmp_path / "layers.csv").open(newline="") as file:
        assert [row["layer"] for row in csv.DictReader(file)] == [*KINDS] * 3
    with (tmp_path / "layers-curves.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 3 * 2 * 2
    assert (tmp_path / "layers.svg").stat().st_size > 0


def test_patterns_larger_than_a_kernel_are_refused():
    with pytest.raises(VsrkitError, match="k may be at most 9"):
        train_layers([10])
