"""Random crops of training clips and their degraded counterparts."""

import numpy as np
import pytest
import torch
from tests.scenes import scene
from tests.train.conftest import moving_picture

from vsrkit.data.augment import Placement, cut, place, to_clip, turn
from vsrkit.data.degrade import BD, BI, CRF, Fixed, degrade
from vsrkit.errors import DataError

PIXELS = moving_picture(4, 100)  # 25 LR pixels a side
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("how", [BI(4), BD(4), BD(4, "matlab12")], ids=str)
@pytest.mark.parametrize(("row", "column"), [(0, 0), (3, 9), (9, 0), (9, 9), (5, 7)])
def test_degrading_the_crop_equals_cropping_the_degraded(how, row, column):
    lr, hr = cut(PIXELS, Placement(1, row, column), Fixed(how), RNG, (2, 16, 16))
    whole = to_clip(PIXELS[1:3])
    inside = (..., slice(row, row + 16), slice(column, column + 16))
    assert torch.equal(lr, degrade(whole, how)[inside])
    times = (..., slice(4 * row, 4 * row + 64), slice(4 * column, 4 * column + 64))
    assert torch.equal(hr, whole[times])


def test_lr_and_hr_are_flipped_and_reversed_alike():
    straight = Placement(0, 2, 3)
    turned = Placement(0, 2, 3, flip_rows=True, transpose=True, reverse=True)
    for plain, other in zip(
        cut(PIXELS, straight, Fixed(), RNG, (3, 16, 16)),
        cut(PIXELS, turned, Fixed(), RNG, (3, 16, 16)),
        strict=True,
    ):
        assert torch.equal(other, plain.flip(0).flip(-2).mT)


def test_all_16_orientations_occur():
    clip = torch.rand(2, 3, 4, 4)
    rng = np.random.default_rng(0)
    options = {"frames": 2, "crop": 4, "scale": 4, "flips": True, "reversal": True}
    seen = {
        tuple(turn(clip, place(rng, (2, 16, 16), **options)).flatten().tolist()) for _ in range(200)
    }
    assert len(seen) == 16  # eight in space, two in time


def test_without_flips_only_the_position_varies():
    rng = np.random.default_rng(0)
    options = {"frames": 2, "crop": 4, "scale": 4, "flips": False, "reversal": False}
    places = [place(rng, (9, 40, 24), **options) for _ in range(300)]
    assert {p.start for p in places} == set(range(8))
    assert {p.row for p in places} == set(range(7))
    assert {p.column for p in places} == set(range(3))
    assert not any(p.flip_rows or p.flip_columns or p.transpose or p.reverse for p in places)


def test_a_clip_smaller_than_the_crop_is_an_error():
    rng = np.random.default_rng(0)
    with pytest.raises(DataError, match="4 frames of 100x100 is too small"):
        place(rng, (4, 100, 100), frames=5, crop=16, scale=4, flips=True, reversal=True)


def test_a_crop_is_encoded_as_part_of_its_clip():
    wide = scene(5, 160, 160, 48)
    hr = torch.stack([wide[:, :, 3 * n : 3 * n + 160] for n in range(14)])
    pixels = (hr * 255).round().byte().permute(0, 2, 3, 1).numpy()
    how, rng = Fixed(CRF(30)), np.random.default_rng(0)
    where = Placement(start=9, row=12, column=12)
    lr, cut_hr = cut(pixels, where, how, rng, (4, 16, 16))
    assert lr.shape == (4, 3, 16, 16)
    assert torch.equal(cut_hr, to_clip(pixels)[9:13, :, 48:112, 48:112])
    whole = how(to_clip(pixels), rng)[9:13, :, 12:28, 12:28]
    alone = how(cut_hr, rng)
    assert torch.equal(lr, whole)  # the context covers the whole clip
    assert not torch.equal(alone, whole)
