"""The learning rate is the release's, to every digit."""

import json

import pytest
from tests import paths

from vsrkit.train.config import TrainConfig
from vsrkit.train.schedules import learning_rate

GOLDEN = json.loads((paths.GOLDEN / "lr_schedule.json").read_text())
RUNS = {
    "REDS": {"periods": (300_000,) * 4, "restart_weights": (1.0, 0.5, 0.5, 0.5)},
    "Vimeo": {"periods": (200_000,) * 6, "restart_weights": (1.0, *(0.5,) * 5)},
}


@pytest.mark.parametrize("name", GOLDEN)
def test_restarts_equal_the_release(name):
    config = TrainConfig(run_dir="r", steps=1_200_000, schedule="restarts", **RUNS[name])
    found = {i: learning_rate(config, int(i) - 1) for i in GOLDEN[name]}
    assert found == GOLDEN[name]


def test_warmup_rises_to_the_cosine():
    config = TrainConfig(run_dir="r", steps=1000, warmup_steps=10, learning_rate=1.0)
    rates = [learning_rate(config, step) for step in range(1000)]
    assert rates[0] == pytest.approx(0.1)
    assert rates.index(max(rates)) == 9
    assert rates[-1] == pytest.approx(config.minimum_learning_rate, abs=1e-5)
