"""The learning rate as a pure function of the step, counted from 0."""

import math
from collections.abc import Sequence

from vsrkit.train.config import FlowConfig, TrainConfig


def learning_rate(config: TrainConfig | FlowConfig, step: int) -> float:
    """The learning rate at `step` of this run."""
    warmup = min(1.0, (step + 1) / config.warmup_steps) if config.warmup_steps else 1.0
    if config.schedule == "constant":
        return config.learning_rate * warmup
    if config.schedule == "linear":
        left = 1 - step / config.steps
        return max(config.learning_rate * left, config.minimum_learning_rate) * warmup
    if isinstance(config, TrainConfig) and config.schedule == "restarts":
        periods, weights = config.periods, config.restart_weights
    else:
        periods, weights = (config.steps,), (1.0,)
    rate = cosine_restarts(
        step,
        rate=config.learning_rate,
        minimum=config.minimum_learning_rate,
        periods=periods,
        weights=weights,
    )
    return rate * warmup


def cosine_restarts(
    step: int, *, rate: float, minimum: float, periods: Sequence[int], weights: Sequence[float]
) -> float:
    """A cosine from `weight * rate` to `minimum` in each period.

    As in the release, a period ends with the step after its last: the minimum itself is reached
    at the first step of the next period, which restarts one step late.
    """
    start = 0
    for period, weight in zip(periods, weights, strict=True):
        if step <= start + period:
            swing = 1 + math.cos(math.pi * (step - start) / period)
            return minimum + weight * 0.5 * (rate - minimum) * swing
        start += period
    return minimum
