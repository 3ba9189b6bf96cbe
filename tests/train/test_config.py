"""Validation of the settings: ranges, combinations, and errors of one line."""

from dataclasses import FrozenInstanceError, replace

import pytest

from vsrkit.train.config import Source, TrainConfig
from vsrkit.train.recipe import with_overrides
from vsrkit.train.settings import ConfigError


@pytest.mark.parametrize(
    "wrong",
    ["betas=0.9", "betas=2,3", "learning_rate=nan", "learning_rate=-1", "validation_share=2",
     "workers=-1", "validation_frames=0", "seed=-1", "warmup_steps=-3", "steps=1e3"],
)  # fmt: skip
def test_invalid_values_are_named(wrong):
    with pytest.raises(ConfigError, match=wrong.split("=")[0]):
        with_overrides(TrainConfig(run_dir="r"), [wrong])


def test_a_source_cannot_have_a_negative_weight():
    with pytest.raises(ConfigError, match=r"weight must be at least 0, got -1\.0"):
        Source(path="a", weight=-1.0)


def test_a_teacher_weight_of_zero_is_refused_instead_of_changing_the_mode():
    with pytest.raises(ConfigError, match=r'got 0\.0; to learn .* set teacher_mode = "frames"'):
        TrainConfig(run_dir="r", teacher="any", teacher_weight=0.0)
    frames = TrainConfig(run_dir="r", teacher="any", teacher_mode="frames")
    assert (frames.learns_features, frames.learns_frames) == (False, True)
    features = TrainConfig(run_dir="r", teacher="any")
    assert (features.learns_features, features.learns_frames) == (True, False)
    without = TrainConfig(run_dir="r", teacher_mode="frames")
    assert not without.learns_features | without.learns_frames


def test_several_errors_make_one_line():
    with pytest.raises(ConfigError) as error:
        TrainConfig(run_dir="r", steps=0, crop="large")
    assert str(error.value) == (
        "steps must be at least 1, got 0; crop must be a whole number, got 'large'"
    )


def test_a_config_is_frozen_and_checked_when_it_is_changed():
    config = TrainConfig(run_dir="r")
    with pytest.raises(FrozenInstanceError):
        config.steps = 5
    with pytest.raises(ConfigError, match="steps must be at least 1"):
        replace(config, steps=0)
