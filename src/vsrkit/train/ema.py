"""A running average of the weights, which scores better than the weights themselves."""

from copy import deepcopy

import torch
from torch import Tensor, nn


class Ema:
    """A copy of the model whose weights follow it slowly; decay 0 follows at once."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model = deepcopy(model).eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Move towards the model; faster in the first steps, whose weights are soon outdated."""
        decay = min(self.decay, (1 + step) / (10 + step))
        averages: list[Tensor] = list(self.model.parameters())
        weights: list[Tensor] = list(model.parameters())
        torch._foreach_lerp_(averages, weights, 1 - decay)
        for average, buffer in zip(self.model.buffers(), model.buffers(), strict=True):
            average.copy_(buffer)
