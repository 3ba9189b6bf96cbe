"""Colours of flow, values, features and differences; marks and grids."""

import pytest
import torch

from vsrkit.research.inspect import draw


def constant_flow(u, v):
    return torch.tensor([u, v])[:, None, None].expand(2, 4, 5)


def test_flow_colours_show_direction_and_speed():
    still = draw.flow_colours(constant_flow(0.0, 0.0), 2.0)
    assert (still == 1).all()
    right = draw.flow_colours(constant_flow(2.0, 0.0), 2.0)[:, 0, 0]
    torch.testing.assert_close(right, torch.tensor([1.0, 0.0, 0.0]))
    half = draw.flow_colours(constant_flow(1.0, 0.0), 2.0)[:, 0, 0]
    torch.testing.assert_close(half, torch.tensor([1.0, 0.5, 0.5]))
    left = draw.flow_colours(constant_flow(-2.0, 0.0), 2.0)[:, 0, 0]
    torch.testing.assert_close(left, torch.tensor([0.0, 1.0, 1.0]))
    beyond = draw.flow_colours(constant_flow(50.0, 0.0), 2.0)[:, 0, 0]
    assert torch.equal(beyond, right)


@pytest.mark.parametrize(("x", "y"), [(0.6, 0.0), (-0.5, 0.3), (0.1, -0.8)])
def test_the_wheel_has_the_colours_of_the_flow(x, y):
    side = 193
    wheel = draw.flow_wheel(3.0, side)
    column, row = (round((place + 1) / 2 * (side - 1)) for place in (x, y))
    exact = [2 * place / (side - 1) - 1 for place in (column, row)]
    expected = draw.flow_colours(constant_flow(3 * exact[0], 3 * exact[1]), 3.0)[:, 0, 0]
    torch.testing.assert_close(wheel[:, row, column], expected, atol=1e-5, rtol=0)


def test_heat_gets_brighter_with_the_value():
    values = torch.linspace(0, 2, 30)[None]
    brightness = draw.heat(values).sum(0)[0]
    assert (brightness.diff() > 0).all()
    torch.testing.assert_close(draw.heat(values)[:, 0, -1], draw.HEAT[-1])


def test_features_share_their_colours_and_constant_ones_are_grey():
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(8, 6, 7, generator=generator)
    one, two = draw.feature_colours([a, a.flip(-1)])
    assert torch.equal(one, two.flip(-1))
    flat = draw.feature_colours([torch.full((8, 4, 4), 3.0)])[0]
    torch.testing.assert_close(flat, torch.full_like(flat, 0.5))
    assert draw.feature_colours([torch.randn(2, 4, 4, generator=generator)])[0].shape == (3, 4, 4)


@pytest.mark.parametrize(("size", "times"), [(0.0, 1), (0.6, 1), (0.1, 4), (1e-6, 64)])
def test_differences_are_amplified_as_far_as_they_fit(size, times):
    picture, found = draw.amplified(torch.full((3, 8, 8), size))
    assert found == times
    assert picture.max() <= 1
    torch.testing.assert_close(picture[0, 0, 0].item(), min(1.0, 0.5 + times * size))


def test_a_mark_leaves_its_inside_unchanged():
    picture = torch.zeros(3, 20, 30)
    for box in ((5, 6, 4, 4), (-2, -2, 4, 4), (28, 18, 4, 4)):
        marked = draw.marked(picture, box)
        x, y, width, height = box
        assert not marked[:, max(y, 0) : y + height, max(x, 0) : x + width].any()
        assert marked.any()
    assert not picture.any()


def test_a_grid_keeps_its_pictures_and_adds_captions():
    cells = [("one", torch.zeros(3, 10, 16)), ("two", torch.ones(3, 10, 16))] * 3
    drawn = draw.grid(cells, width=32, columns=4)
    assert not drawn[:, :20, :32].any()
    assert drawn.shape[-1] > 4 * 32
    assert drawn[:, 20:44, :32].min() == 0  # the text
