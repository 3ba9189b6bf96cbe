"""Adam and Muon, and which of a model's weights each of them moves."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from vsrkit.models.layers.flow import flow_networks

# Quintic of the Newton-Schulz iteration: steep at zero, so that five steps bring all singular
# values near 1 (between about 0.7 and 1.2, which is near enough).
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


class Muon(Optimizer):
    """Momentum, made orthogonal: every direction of a weight matrix moves by the same amount.

    Takes weights of two or more axes, in any memory layout; a convolution counts as a matrix
    (out, in * k * k). Steps are scaled by 0.2 * sqrt(max(rows, columns)), which gives them the
    size of Adam's, so that Adam's learning rates carry over.
    """

    def __init__(
        self, params: Iterable[Any], lr: float, momentum: float = 0.95, iterations: int = 5
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "iterations": iterations})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Move every weight that has a gradient."""
        for group in self.param_groups:
            for weights in self._by_shape(group["params"]):
                updates = torch.stack([self._momentum(w, group["momentum"]) for w in weights])
                updates = orthogonal(updates, group["iterations"])
                scale = 0.2 * max(updates.shape[-2:]) ** 0.5
                for weight, update in zip(weights, updates, strict=True):
                    weight.sub_(update.view(weight.shape), alpha=group["lr"] * scale)

    def _momentum(self, weight: Tensor, momentum: float) -> Tensor:
        """Nesterov's momentum as a matrix: (out, in * k * k)."""
        gradient = weight.grad
        assert gradient is not None
        state = self.state[weight]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(weight)
        state["momentum"].lerp_(gradient, 1 - momentum)
        # Channels-last weights have no flat view: `flatten` copies them, and only them.
        return gradient.lerp(state["momentum"], momentum).flatten(1)

    @staticmethod
    def _by_shape(weights: Iterable[Tensor]) -> Iterator[list[Tensor]]:
        """Weights that can be worked on together, because small products one by one are slow."""
        shapes: dict[tuple[int, ...], list[Tensor]] = {}
        for weight in weights:
            if weight.grad is not None:
                shapes.setdefault(tuple(weight.flatten(1).shape), []).append(weight)
        yield from shapes.values()


def orthogonal(matrices: Tensor, iterations: int = 5) -> Tensor:
    """The nearest matrices with equal singular values, roughly: (N, rows, columns) -> same.

    In float32: bfloat16 is enough, but not faster on every processor.
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
    """The optimisers of a model. Each group's `scale` multiplies the learning rate of the run."""
    flow = {id(p) for part in flow_networks(model) for p in part.parameters()}
    matrices = {id(p) for p in inner_matrices(model)} - flow if name == "muon" else set()
    parameters = [p for p in model.parameters() if p.requires_grad]
    adam = [
        {"params": [p for p in parameters if id(p) not in flow | matrices], "scale": 1.0},
        {"params": [p for p in parameters if id(p) in flow], "scale": flow_scale, "flow": True},
    ]
    optimizers: list[Optimizer] = [Adam([g for g in adam if g["params"]], lr=0.0, betas=betas)]
    if matrices:
        group = {"params": [p for p in parameters if id(p) in matrices], "scale": 1.0}
        optimizers.append(Muon([group], lr=0.0))
    return optimizers


def inner_matrices(model: nn.Module) -> list[Tensor]:
    """The weights between features and features: what Muon is for.

    Left out are the layers that touch pixels: those with a number of channels that is not a
    multiple of 16 (3 colours, or features and 3 colours), and the last one.
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
    """Give every group its share of the learning rate."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            frozen = flow_frozen and group.get("flow", False)
            group["lr"] = 0.0 if frozen else learning_rate * group["scale"]
