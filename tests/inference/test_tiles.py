"""Tiles: they cover the frame, their weights add up to one, and no seam shows."""

from itertools import pairwise

import pytest
import torch

from vsrkit.inference.tiles import plan_grid, plan_spans, run_tiled


@pytest.mark.parametrize("length", [64, 65, 96, 127, 180, 320, 1000])
@pytest.mark.parametrize("overlap", [0, 8, 16, 32])
def test_spans_cover_the_axis_and_their_weights_add_up_to_one(length, overlap):
    spans = plan_spans(length, 64, overlap)
    assert spans[0].start == 0
    assert spans[-1].stop == length
    assert all(s.stop - s.start == 64 for s in spans)
    assert all(a.stop - b.start >= overlap for a, b in pairwise(spans))
    total = torch.zeros(length * 4)
    for span in spans:
        total[span.start * 4 : span.stop * 4] += span.weights(4)
    if all(a.stop - b.start <= 32 for a, b in pairwise(spans)):
        # Two ramps of float32 numbers meet.
        torch.testing.assert_close(total, torch.ones_like(total), atol=1e-6, rtol=0)
    else:  # more than half a tile is shared: both are whole in the middle, blending divides
        assert total.amin() >= 1 - 1e-6
        assert total.amax() <= 2


@pytest.mark.parametrize("size", [(64, 64), (70, 101), (40, 200), (130, 64)])
@pytest.mark.parametrize("overlap", [0, 16])
def test_a_pointwise_model_does_not_see_tiles(size, overlap, tmp_path):
    clip = torch.rand(1, 2, 3, *size)

    def double(tile):
        return tile.repeat_interleave(2, -1).repeat_interleave(2, -2)

    def read(start, stop):
        return clip[..., start:stop, :]

    grid = plan_grid(*size, 64, overlap)
    out = torch.stack([f.whole() for f in run_tiled(double, read, grid, scale=2)])
    # Weights sum to 1 in float32.
    torch.testing.assert_close(out, double(clip)[0], atol=1e-6, rtol=0)
    again = run_tiled(double, read, grid, scale=2, scratch=tmp_path)
    for frame, whole in zip(again, out, strict=True):
        height = whole.shape[-2]
        stripes = [frame.read(y, min(y + 10, height)) for y in range(0, height, 10)]
        assert torch.equal(torch.cat(stripes, -2), whole)


def test_neighbouring_tiles_fade_into_each_other():
    """Tiles that answer differently meet in a ramp: the largest step is far below their gap."""
    answers = iter([0.0, 1.0])
    out = next(
        run_tiled(
            lambda tile: torch.full_like(tile, next(answers)),
            lambda start, stop: torch.zeros(1, 1, 3, stop - start, 112),
            plan_grid(64, 112, 64, 16),
            scale=1,
        )
    ).whole()
    assert out.amin() == 0
    assert out.amax() == 1
    assert out.diff(dim=-1).abs().max() <= 1 / 16 + 1e-6


def test_a_frame_smaller_than_the_tile_is_refused():
    with pytest.raises(ValueError, match="pad the frame first"):
        plan_spans(40, 64, 16)
    with pytest.raises(ValueError, match="can overlap by 0 to 32"):
        plan_spans(100, 64, 40)
