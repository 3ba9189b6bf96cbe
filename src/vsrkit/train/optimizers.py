"""Adam and Muon, the learning rate of each step, and the running average of the weights."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from vsrkit.models.layers.flow import flow_networks
from vsrkit.train.config import FlowConfig, TrainConfig

# Coefficients of the quintic Newton-Schulz iteration: steep at zero, so that five iterations bring
# all singular values to between about 0.7 and 1.2, which is close enough to 1.
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)

FUSED = ("cpu", "cuda")  # types of devices on which Adam updates all weights in one kernel


class Muon(Optimizer):
    """Momentum with orthogonalised updates: all singular directions of a weight move alike.

    For weights of two or more axes, in any memory layout; a convolution is used as a matrix
    (out, in * k * k). Steps are scaled by 0.2 * sqrt(max(rows, columns)), which gives them the
    size of Adam's steps, so that learning rates for Adam can be used.
    """

    def __init__(
        self, params: Iterable[Any], lr: float, momentum: float = 0.95, iterations: int = 5
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "iterations": iterations})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every weight that has a gradient."""
        for group in self.param_groups:
            for weights in self._by_shape(group["params"]):
                updates = torch.stack([self._momentum(w, group["momentum"]) for w in weights])
                updates = orthogonal(updates, group["iterations"])
                scale = 0.2 * max(updates.shape[-2:]) ** 0.5
                for weight, update in zip(weights, updates, strict=True):
                    weight.sub_(update.view(weight.shape), alpha=group["lr"] * scale)

    def _momentum(self, weight: Tensor, momentum: float) -> Tensor:
        """Nesterov momentum of a weight as a matrix (out, in * k * k)."""
        gradient = weight.grad
        assert gradient is not None
        state = self.state[weight]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(weight)
        state["momentum"].lerp_(gradient, 1 - momentum)
        # `flatten` copies channels-last weights, which have no flat view, and no others.
        return gradient.lerp(state["momentum"], momentum).flatten(1)

    @staticmethod
    def _by_shape(weights: Iterable[Tensor]) -> Iterator[list[Tensor]]:
        """Weights grouped by shape: one batched product is faster than many small ones."""
        shapes: dict[tuple[int, ...], list[Tensor]] = {}
        for weight in weights:
            if weight.grad is not None:
                shapes.setdefault(tuple(weight.flatten(1).shape), []).append(weight)
        yield from shapes.values()


def orthogonal(matrices: Tensor, iterations: int = 5) -> Tensor:
    """Approximately the nearest orthogonal matrices: (N, rows, columns) -> same shape.

    Computed in float32: bfloat16 is precise enough, but not faster on every processor.
    """
    a, b, c = NEWTON_SCHULZ
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-7)
    for _ in range(iterations):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


def make_optimizers(
    model: nn.Module, *, name: str, betas: tuple[float, float], flow_scale: float
) -> list[Optimizer]:
    """The optimizers of a model; the `scale` of each parameter group multiplies the learning rate.

    Args:
        model: the model; parameters that require no gradient are left out.
        name: "adam", or "muon" for Muon on `inner_matrices` and Adam on the other parameters.
        betas: decay rates of Adam's moments.
        flow_scale: factor of the learning rate of flow networks.
    """
    kind = next(model.parameters()).device.type
    flow = {id(p) for part in flow_networks(model) for p in part.parameters()}
    matrices = {id(p) for p in inner_matrices(model)} - flow if name == "muon" else set()
    parameters = [p for p in model.parameters() if p.requires_grad]
    adam = [
        {"params": [p for p in parameters if id(p) not in flow | matrices], "scale": 1.0},
        {"params": [p for p in parameters if id(p) in flow], "scale": flow_scale, "flow": True},
    ]
    groups = [group for group in adam if group["params"]]
    optimizers: list[Optimizer] = [Adam(groups, lr=0.0, betas=betas, fused=kind in FUSED)]
    if matrices:
        group = {"params": [p for p in parameters if id(p) in matrices], "scale": 1.0}
        optimizers.append(Muon([group], lr=0.0))
    return optimizers


def discriminator_optimizer(
    discriminator: nn.Module, *, learning_rate: float, model_rate: float, betas: tuple[float, float]
) -> Optimizer:
    """Adam for a discriminator, whose learning rate rises and falls as that of the model.

    Args:
        discriminator: on its device.
        learning_rate: peak learning rate.
        model_rate: peak learning rate of the model.
        betas: decay rates of Adam's moments.
    """
    parameters = list(discriminator.parameters())
    scale = learning_rate / model_rate if model_rate else 0.0
    fused = parameters[0].device.type in FUSED
    return Adam([{"params": parameters, "scale": scale}], lr=0.0, betas=betas, fused=fused)


def inner_matrices(model: nn.Module) -> list[Tensor]:
    """Weights of layers from feature maps to feature maps, which Muon is meant for.

    Layers that read or write pixels are left out: those whose number of input or output channels
    is not a multiple of 16 (3 colours, or features and 3 colours), and the last layer.
    """
    layers = [m for m in model.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    return [
        layer.weight
        for layer in layers[:-1]
        if layer.weight.shape[0] % 16 == 0 and layer.weight.shape[1] % 16 == 0
    ]


def set_learning_rate(
    optimizers: Iterable[Optimizer], learning_rate: float, *, flow_frozen: bool = False
) -> None:
    """Set the learning rate of every group to its `scale` times `learning_rate`; 0 if frozen."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            frozen = flow_frozen and group.get("flow", False)
            group["lr"] = 0.0 if frozen else learning_rate * group["scale"]


def learning_rate(config: TrainConfig | FlowConfig, step: int) -> float:
    """The learning rate at `step`, counted from 0."""
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

    As in the released code, the first step of a period still belongs to the cosine of the period
    before it and has the minimum rate: restarts are one step late.
    """
    start = 0
    for period, weight in zip(periods, weights, strict=True):
        if step <= start + period:
            swing = 1 + math.cos(math.pi * (step - start) / period)
            return minimum + weight * 0.5 * (rate - minimum) * swing
        start += period
    return minimum


class Ema:
    """A copy of a model with the exponential moving average of its weights.

    Args:
        model: the model that is trained.
        decay: share of the average that each update keeps; 0: the average equals the weights.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model = deepcopy(model).eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Average in the weights after `step`; the decay is smaller in the first steps."""
        decay = min(self.decay, (1 + step) / (10 + step))
        averages: list[Tensor] = list(self.model.parameters())
        weights: list[Tensor] = list(model.parameters())
        torch._foreach_lerp_(averages, weights, 1 - decay)
        for average, buffer in zip(self.model.buffers(), model.buffers(), strict=True):
            average.copy_(buffer)
