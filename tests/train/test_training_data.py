"""Batches are a pure function of seed and step; validation clips are the middle of their clip."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.data.trees import write_published_reds
from tests.train.conftest import moving_picture, write_cache

from vsrkit.data.augment import to_clip
from vsrkit.data.degrade import BD, CRF, Fixed
from vsrkit.data.layouts import REDS4, REDS_TRAINING
from vsrkit.errors import DataError
from vsrkit.train.config import TrainConfig
from vsrkit.train.training_data import (
    Batches,
    TrainingSource,
    cumulative,
    draw,
    open_data,
    prefetch,
    validation_clips,
)


def clip(tmp_path, name, seed, frames=6):
    return write_cache(tmp_path, moving_picture(frames, 80, seed), name)


@pytest.fixture
def make(tmp_path):
    clips = [clip(tmp_path, name, seed) for seed, name in enumerate("ab")]
    source = TrainingSource(clips=clips, weight=1.0, degradation=Fixed())

    def batches(**changes):
        values = {"sources": [source], "seed": 0, "batch_size": 2, "accumulate": 1, "frames": 3,
                  "crop": 16, "flips": True, "reversal": True}  # fmt: skip
        return Batches(**(values | changes))

    return batches


def equal(a, b):
    return all(
        torch.equal(x, y) for p, q in zip(a, b, strict=True) for x, y in zip(p, q, strict=True)
    )


def test_a_step_is_a_pure_function(make):
    first = make()
    for step in (7, 3):
        first.step(step)
    assert equal(first.step(5), make().step(5))
    assert not equal(first.step(5), first.step(6))
    assert not equal(first.step(5), make(seed=1).step(5))


@pytest.mark.parametrize("weights", [[3], [0, 2, 0, 5, 0], [1.5, 0.25], range(1, 1000)])
def test_a_draw_from_a_table_is_that_of_choice(weights):
    weights = np.array(weights)
    table, rngs = cumulative(weights), [np.random.default_rng(0) for _ in range(2)]
    for _ in range(200):
        chosen = rngs[1].choice(len(weights), p=weights / weights.sum())
        assert draw(table, rngs[0]) == chosen


def test_the_windows_are_counted_once(make, monkeypatch):
    counted = []
    plain = TrainingSource.drawable
    batches = make()
    monkeypatch.setattr(
        TrainingSource, "drawable", property(lambda s: counted.append(s) or plain.__get__(s))
    )
    for step in range(3):
        batches.step(step)
    assert len(counted) == 6  # one for the shape of the drawn clip of each pair


def test_validation_of_a_published_set_can_be_changed_but_reds4_is_never_trained_on(tmp_path):
    write_published_reds(tmp_path)
    config = TrainConfig(
        run_dir="run", data="reds-train", data_root=str(tmp_path), cache_dir=str(tmp_path / "cache")
    )
    for changes, training, validation in (
        ({}, REDS_TRAINING, REDS4),
        ({"validation": ("00?",)}, REDS_TRAINING[9:], tuple(f"{n:03d}" for n in range(10))),
        ({"validation_overlaps": True}, REDS_TRAINING, REDS_TRAINING),
    ):
        [source], held_out = open_data(replace(config, **changes), None)
        assert tuple(clip.name for clip in source.clips) == training
        assert sorted(clip.name for clip in held_out) == list(validation)
    with pytest.raises(DataError, match="no clip matches '270'"):
        open_data(replace(config, validation=("270",)), None)


def test_shapes(make):
    [(lr, hr), _] = make(accumulate=2).step(0)
    assert lr.shape == (2, 3, 3, 16, 16)
    assert hr.shape == (2, 3, 3, 64, 64)


def test_a_target_is_a_mean_of_the_teachers_output_and_hr(make, tmp_path):
    clips = [clip(tmp_path, name, seed) for seed, name in enumerate("ab")]
    outputs = [clip(tmp_path, f"{name}-teacher", seed + 2) for seed, name in enumerate("ab")]

    def pairs(of, outputs=(), hr_share=0.0):
        source = TrainingSource(
            clips=of, weight=1.0, degradation=Fixed(), teacher_clips=outputs, hr_share=hr_share
        )
        return [make(sources=[source]).pair(number) for number in range(12)]

    mixed = pairs(clips, outputs, hr_share=0.25)
    for (lr, target), (plain_lr, hr), (_, output) in zip(
        mixed, pairs(clips), pairs(outputs), strict=True
    ):
        assert torch.equal(lr, plain_lr)
        torch.testing.assert_close(target, 0.75 * output + 0.25 * hr)


def test_only_frames_with_a_teacher_output_are_drawn_but_all_are_encoded(make, tmp_path):
    whole, output = clip(tmp_path, "a", 0, frames=12), clip(tmp_path, "a-teacher", 1, frames=4)
    how = Fixed(CRF(35))

    def pairs(of):
        source = TrainingSource(clips=[of], weight=1.0, degradation=how, teacher_clips=[output])
        drawn = make(sources=[source], crop=20, flips=False, reversal=False)
        return [drawn.pair(number)[0] for number in range(12)]

    degraded = how(to_clip(whole.frames), np.random.default_rng(0))
    found = {
        next(start for start in range(10) if torch.equal(lr, degraded[start : start + 3]))
        for lr in pairs(whole)
    }
    assert found == {0, 1}
    short = replace(whole, shape=(4, *whole.shape[1:]))
    assert not equal([pairs(whole)], [pairs(short)])


def test_accumulation_and_processes_divide_the_same_list(make):
    whole = make(batch_size=4).step(3)
    parts = make(batch_size=2, accumulate=2).step(3)
    ranks = [make(rank=rank, processes=2).step(3)[0] for rank in range(2)]
    for divided in (parts, ranks):
        assert torch.equal(torch.cat([lr for lr, _ in divided]), whole[0][0])
        assert torch.equal(torch.cat([hr for _, hr in divided]), whole[0][1])


def test_sources_are_drawn_by_weight_with_their_own_degradation(tmp_path):
    rare, common = (
        TrainingSource(clips=[clip(tmp_path, name, 0)], weight=weight, degradation=Fixed(how))
        for name, weight, how in (("a", 1.0, BD(4)), ("b", 3.0, Fixed().how))
    )
    batches = Batches(sources=[rare, common], seed=0, batch_size=1, accumulate=1, frames=1,
                      crop=20, flips=False, reversal=False)  # fmt: skip
    # The crop is the whole frame, so that the LR shows which source was drawn.
    reduced = common.degradation(to_clip(common.clips[0].frames), np.random.default_rng(0))
    bicubic = {tuple(lr.flatten().tolist()) for lr in reduced}
    pairs = [batches.pair(number)[0] for number in range(200)]
    common_share = np.mean([tuple(lr.flatten().tolist()) in bicubic for lr in pairs])
    assert common_share == pytest.approx(0.75, abs=0.1)  # three standard deviations of 200 draws


def test_clips_that_are_too_short_are_never_drawn(make, tmp_path):
    clips = [clip(tmp_path, "short", 0, frames=2), clip(tmp_path, "long", 1, frames=4)]
    batches = make(sources=[TrainingSource(clips=clips, weight=1.0, degradation=Fixed())])
    for number in range(20):
        batches.pair(number)
    with pytest.raises(DataError, match="no clip has 5 frames"):
        make(sources=[TrainingSource(clips=clips, weight=1.0, degradation=Fixed())], frames=5)


def test_sources_without_any_weight_are_refused(make, tmp_path):
    source = TrainingSource(clips=[clip(tmp_path, "a", 0)], weight=0.0, degradation=Fixed())
    with pytest.raises(DataError, match="every source has weight 0"):
        make(sources=[source])


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")  # Python 3.12 on
@pytest.mark.parametrize("workers", [0, 1])
def test_prefetching_keeps_the_order(make, workers):
    batches = make(batch_size=1)
    made = list(prefetch(batches.step, range(2, 6), workers=workers))
    assert len(made) == 4
    for step, found in zip(range(2, 6), made, strict=True):
        assert equal(found, batches.step(step))


def test_a_validation_clip_is_the_middle_of_its_clip(tmp_path):
    pixels = moving_picture(7, 64)
    [found] = validation_clips([write_cache(tmp_path, pixels)], Fixed(), frames=5, crop=8)
    assert found.lr.shape == (5, 3, 8, 8)
    assert torch.equal(found.hr, to_clip(pixels[1:6, 16:48, 16:48]))


def test_a_validation_clip_is_encoded_as_part_of_its_whole_clip(tmp_path):
    pixels = moving_picture(9, 96)[:, :, :80]
    how = Fixed(CRF(30))
    [found] = validation_clips([write_cache(tmp_path, pixels)], how, frames=5, crop=16)
    whole = how(to_clip(pixels), np.random.default_rng(0))
    assert torch.equal(found.lr, whole[2:7, :, 4:20, 2:18])
    assert torch.equal(found.hr, to_clip(pixels[2:7, 16:80, 8:72]))
