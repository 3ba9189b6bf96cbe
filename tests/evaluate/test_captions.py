"""Captions, boxes and grids on pictures."""

import pytest
import torch

from vsrkit.evaluate.captions import add_caption, arrange, draw_box, enlarge


def test_a_caption_adds_centred_text_below_the_picture() -> None:
    picture = torch.rand(3, 10, 200)
    drawn = add_caption(picture, "vsrt-s", "25.97 dB")
    assert torch.equal(drawn[:, :10], picture)
    assert drawn.shape[2] == 200
    for top in (14, 34):  # each line of text is dark somewhere, and about centred
        columns = (drawn[0, top : top + 20] < 0.5).any(0).nonzero()[:, 0]
        assert abs(int(columns.min() + columns.max()) / 2 - 100) < 3
    assert (drawn[:, 10:] == drawn[:1, 10:]).all()  # grey


def test_a_long_caption_shrinks_and_then_widens_the_result() -> None:
    picture = torch.zeros(3, 4, 100)
    assert add_caption(picture, "a caption of 26 characters").shape[2] > 100
    assert add_caption(picture, "16 px are enough").shape[2] == 100
    wide = add_caption(picture, "x" * 60)
    left = (wide.shape[2] - 100) // 2
    assert not wide[:, :4, left : left + 100].any()
    assert (wide[:, :4, :left] == 1).all()


@pytest.mark.parametrize("box", [(5, 6, 4, 4), (-2, -2, 4, 4), (28, 18, 4, 4)])
def test_a_box_is_drawn_around_a_rectangle(box: tuple[int, int, int, int]) -> None:
    picture = torch.zeros(3, 20, 30)
    framed = draw_box(picture, box, (1.0, 0.5, 0.0), line=2)
    x, y, width, height = box
    assert not framed[:, max(y, 0) : y + height, max(x, 0) : x + width].any()
    outside = [
        (row, column)
        for row in range(20)
        for column in range(30)
        if -2 <= row - y < height + 2 and -2 <= column - x < width + 2
        if not (0 <= row - y < height and 0 <= column - x < width)
    ]
    assert framed[0].nonzero().tolist() == [list(place) for place in outside]
    assert framed[:, outside[0][0], outside[0][1]].tolist() == [1.0, 0.5, 0.0]
    assert not picture.any()  # the original is unchanged


def test_a_grid_centres_pictures_in_their_columns() -> None:
    black, grey = torch.zeros(3, 4, 6), torch.full((3, 8, 10), 0.5)
    grid = arrange([[black, grey], [grey, black]])
    assert grid.shape == (3, 2 * (8 + 8), 2 * (10 + 8))
    assert not grid[:, :4, 2:8].any()
    assert (grid[:, :8, 18:28] == 0.5).all()
    assert (grid[:, :8, 28:] == 1).all()


def test_enlarging_repeats_pixels() -> None:
    pixels = torch.tensor([[[1.0, 2.0]]])
    assert enlarge(pixels, 2).tolist() == [[[1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 2.0, 2.0]]]
