from fractions import Fraction

import numpy as np
import pytest
import torch
from tests import paths
from torch import Tensor

from vsrkit.models.layers.resample import (
    BLOCK,
    _bicubic_blocks,
    bicubic_matrix,
    imresize,
    resample,
    tap_matrix,
)

GOLDEN = np.load(paths.GOLDEN / "imresize.npz")


def golden(name: str) -> Tensor:
    return torch.from_numpy(GOLDEN[name]).movedim(-1, 0)


@pytest.mark.parametrize(
    ("name", "scale"),
    [("61x83.in", 4), ("61x83.in", 2), ("impulse32.in", 4)],
)
def test_reduction_equals_the_reference(name: str, scale: int) -> None:
    wanted = golden(name.replace(".in", f".down{scale}"))
    # The reference made its weights in float32, which is good to about one unit of 2**-23.
    torch.testing.assert_close(
        imresize(golden(name).double(), Fraction(1, scale)).float(), wanted, atol=2e-7, rtol=0
    )


def test_enlargement_equals_the_reference() -> None:
    sr = imresize(golden("40x40.in").double(), 4)[:, ::8].float()
    # Twice the tolerance of reducing: negative lobes are larger beside a kernel of four taps.
    torch.testing.assert_close(sr, golden("40x40.up4_every_8th_row"), atol=4e-7, rtol=0)


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(2, 3), Fraction(5, 4), Fraction(3)])
def test_a_constant_picture_stays_constant_for_any_scale(scale: Fraction) -> None:
    out = imresize(torch.full((3, 17, 23), 0.3, dtype=torch.float64), scale)
    assert out.shape == (3, -(-17 * scale // 1), -(-23 * scale // 1))
    torch.testing.assert_close(out, torch.full_like(out, 0.3))


@pytest.mark.parametrize("scale", [Fraction(5, 4), Fraction(4), Fraction(1, 4), Fraction(1, 2)])
def test_a_ramp_stays_a_ramp_away_from_the_borders(scale: Fraction) -> None:
    ramp = torch.arange(60, dtype=torch.float64).expand(1, 8, 60)
    out = imresize(ramp, scale)[0, 0]
    wanted = (torch.arange(len(out), dtype=torch.float64) + 0.5) / float(scale) - 0.5
    border = int(2 * max(scale, 1)) + 2
    torch.testing.assert_close(out[border:-border], wanted[border:-border])


def test_blocks_equal_the_whole_product() -> None:
    x = torch.rand(2, 3, 50, 70, dtype=torch.float64)
    rows, columns = bicubic_matrix(50, Fraction(1, 4)), bicubic_matrix(70, Fraction(3, 2))
    torch.testing.assert_close(resample(x, rows, columns), rows @ x @ columns.T)


@pytest.mark.parametrize(
    ("border", "first_row"),
    [("symmetric", [2, 1, 0]), ("reflect", [1, 1, 1]), ("replicate", [3, 0, 0])],
)
def test_taps_outside_are_moved_inside(border: str, first_row: list[int]) -> None:
    row = tap_matrix(torch.tensor([[-2, -1, 0]]), torch.ones(1, 3), 3, border)  # type: ignore[arg-type]
    assert torch.equal(row * 3, torch.tensor([first_row], dtype=torch.float64))


def test_gradients_work_after_use_in_inference_mode() -> None:
    _bicubic_blocks.cache_clear()
    with torch.inference_mode():
        imresize(torch.rand(1, 9, 9, dtype=torch.float64), 2)
    x = torch.rand(1, 9, 9, dtype=torch.float64, requires_grad=True)
    imresize(x, 2).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad.sum(), torch.tensor(4.0 * 81, dtype=torch.float64))


def test_a_resize_never_makes_the_whole_matrix():
    """That of 30720 to 15360 columns would have 3.8 GB."""
    blocks = _bicubic_blocks(30720, Fraction(1, 2))
    assert sum(block.numel() for block, _ in blocks) < 1_000_000
    dense = bicubic_matrix(300, Fraction(2, 3))
    for (block, band), rows in zip(
        _bicubic_blocks(300, Fraction(2, 3)), dense.split(BLOCK), strict=True
    ):
        assert torch.equal(block, rows[:, band])
        assert rows.count_nonzero() == block.count_nonzero()
