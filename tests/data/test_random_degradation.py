"""Degradations with random parameters are reproducible from their random generator."""

import numpy as np
import pytest
import torch
from tests.train.conftest import moving_picture

from vsrkit.data.augment import to_clip
from vsrkit.data.degrade import (
    BI,
    CRF,
    ENCODED,
    FAULTS,
    Compressed,
    Fixed,
    Footage,
    Realistic,
    blur,
    degrade,
    degrader_named,
)
from vsrkit.data.recompress import MPEG2, X265
from vsrkit.errors import DataError

HR = to_clip(moving_picture(4, 64))


@pytest.mark.parametrize(
    "name", ["bi", "bd", "crf15-35", "realistic", "vp9-crf20-45", "footage", *FAULTS]
)
def test_equal_seeds_give_equal_frames(name):
    degrader = degrader_named(name)
    first, again = (degrader(HR, np.random.default_rng(3)) for _ in range(2))
    assert first.shape == (4, 3, 16, 16)
    assert torch.equal(first, again)
    assert first.min() >= 0
    assert first.max() <= 1


def test_different_seeds_give_different_frames():
    found = [Realistic()(HR, np.random.default_rng(seed)) for seed in range(3)]
    assert not torch.equal(found[0], found[1])
    assert not torch.equal(found[1], found[2])


def test_a_range_of_one_crf_equals_that_crf():
    assert torch.equal(Compressed(25, 25)(HR, np.random.default_rng(0)), degrade(HR, CRF(25)))
    assert degrader_named("bi") == Fixed(BI(4))
    assert degrader_named("crf15-35") == Compressed(15, 35)
    assert degrader_named("mpeg2-q2-10") == Compressed(2, 10, codec=MPEG2)
    assert degrader_named("X265-CRF28") == Fixed(CRF(28, codec=X265))


def test_footage_has_several_faults_and_codecs_and_one_fault_always_has_it():
    clips = [degrader_named("footage")(HR, np.random.default_rng(seed)) for seed in range(4)]
    assert len({clip.numpy().tobytes() for clip in clips}) == 4
    assert all((clip - degrade(HR, BI(4))).square().mean() < 0.01 for clip in clips)
    assert degrader_named("grain", 2) == Footage(2, ((FAULTS["grain"][0], 1.0),))
    assert {degrader_named(name).reach for name in ("footage", "x265-crf28", *FAULTS)} == {ENCODED}


def test_realistic_frames_are_close_to_bicubic():
    lr = Realistic()(HR, np.random.default_rng(0))
    error = (lr - degrade(HR, BI(4))).square().mean()
    assert 0 < error < 0.01  # 20 dB: degraded, but the same scene


def test_blur_keeps_brightness_and_reduces_contrast():
    y = blur(HR, 2.0, 1.0)
    assert float(y.mean()) == pytest.approx(float(HR.mean()), abs=2e-3)
    assert y.diff(dim=-1).abs().mean() < HR.diff(dim=-1).abs().mean()
    flat = torch.full((1, 3, 9, 9), 0.3)
    torch.testing.assert_close(blur(flat, 1.5, 0.2), flat)


def test_invalid_names_and_ranges_are_errors():
    with pytest.raises(DataError, match="got 35-15"):
        degrader_named("crf35-15")
    with pytest.raises(DataError, match="mpeg2-q must be ascending and between 1 and 31, got 0-9"):
        degrader_named("mpeg2-q0-9")
    with pytest.raises(DataError, match="no degradation called 'blurry'"):
        degrader_named("blurry")


def test_one_of_several_is_chosen_for_each_clip():
    hr = torch.rand(2, 3, 32, 32)
    mixed, clean = degrader_named("bi+crf40"), degrader_named("bi")(hr, np.random.default_rng(0))
    drawn = [torch.equal(mixed(hr, np.random.default_rng(seed)), clean) for seed in range(8)]
    assert 0 < sum(drawn) < 8
    assert mixed.scale == 4
