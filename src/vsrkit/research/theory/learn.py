"""Theorem 2 run: gradient descent of both predictors on the product of k consecutive bits.

As the proof has it: hinge loss, u starts at zero, every w_ij at +-1/k, u and W are trained with
one step size on the loss over all inputs. The bias is `bias_of(k)` and stays; without it (the
paper as printed) sigma(<w, z>) is not the indicator that the proof needs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vsrkit.research.theory.bounds import Descent
from vsrkit.research.theory.layers import hinge
from vsrkit.research.theory.patterns import Floats, all_inputs, parity, random_rows, signs, windows

Layer: TypeAlias = Literal["convolutional", "convolutional, as printed", "fully connected"]
LAYERS: tuple[Layer, ...] = ("convolutional", "convolutional, as printed", "fully connected")
MOST_INPUTS = 512  # all of them up to n = 9; above, so many new ones at every step


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The loss before each step of one run."""

    layer: Layer
    run: Descent
    seed: int
    losses: NDArray[np.float64]


def descend(layer: Layer, run: Descent, *, seed: int) -> Curve:
    """Train one predictor; the loss of step s is measured on the inputs of that step."""
    rng = np.random.default_rng([seed, run.n, run.k])
    predictor = start(layer, run, rng)
    losses = np.empty(run.steps)
    for step, (inputs, wanted) in zip(range(run.steps), draw_inputs(run, rng), strict=False):
        losses[step] = predictor.step(inputs, wanted, run.learning_rate)
    return Curve(layer=layer, run=run, seed=seed, losses=losses)


def draw_inputs(run: Descent, rng: np.random.Generator) -> Iterator[tuple[Floats, Floats]]:
    """Endless inputs with the values that are wanted for them."""
    if 2**run.n <= MOST_INPUTS:
        inputs = all_inputs(run.n)
        wanted = parity(inputs, run.k)
        while True:
            yield inputs, wanted
    while True:
        inputs = signs(random_rows(MOST_INPUTS, run.n, rng), run.n)
        yield inputs, parity(inputs, run.k)


class Predictor(Protocol):
    """Something that learns."""

    def step(self, inputs: Floats, wanted: Floats, learning_rate: float) -> float:
        """One step of gradient descent; the hinge loss before it."""
        ...


def start(layer: Layer, run: Descent, rng: np.random.Generator) -> Predictor:
    """A predictor with weights drawn as Theorem 2 says."""
    if layer == "fully connected":
        w = rng.choice([-1.0, 1.0], (run.q, run.n)) / run.k
        return FullyConnected(w, np.zeros(run.q), bias_of(run.k))
    counts = draw_counts(run.k, run.q, rng)
    u = np.zeros((2**run.k, run.n - run.k + 1))
    bias = bias_of(run.k) if layer == "convolutional" else 0.0
    return Convolutional(all_inputs(run.k) / run.k, counts, u, bias)


def bias_of(k: int) -> float:
    """1/k - 1: with it relu(<w, z> + b) is 1/k where sign(w) = z, and 0 everywhere else."""
    return 1 / k - 1


def draw_counts(k: int, q: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """How many of q neurons have each of the 2^k sign patterns."""
    return rng.multinomial(q, np.full(2**k, 2.0**-k))


class FullyConnected:
    """h(x) = sum_i u_i relu(<w_i, x> + b)."""

    def __init__(self, w: Floats, u: Floats, bias: float) -> None:
        self.w, self.u, self.bias = w.astype(np.float32), u.astype(np.float32), np.float32(bias)

    def step(self, inputs: Floats, wanted: Floats, learning_rate: float) -> float:
        x, f = inputs.astype(np.float32), wanted.astype(np.float32)
        features = np.maximum(x @ self.w.T + self.bias, 0)  # (N, q)
        outputs = features @ self.u
        pull = f * (outputs * f < 1) / np.float32(len(f))  # -dL/dh, (N,)
        towards_w = ((features > 0) * pull[:, None]).T @ x * self.u[:, None]
        self.u = self.u + np.float32(learning_rate) * (pull @ features)
        self.w = self.w + np.float32(learning_rate) * towards_w
        return hinge(outputs, f)


class Convolutional:
    """h(x) = sum_j <u_j, relu(W x_[j : j+k] + b)>, each kind of neuron held once.

    Neurons that start with the same weights have the same gradient for ever, and there are only
    2^k ways to start: `counts` says how many of the q neurons are of each kind. This is the whole
    network, not an approximation of it.
    """

    def __init__(self, w: Floats, counts: NDArray[np.int64], u: Floats, bias: float) -> None:
        self.w, self.counts, self.u, self.bias = w, counts, u, bias
        self.patterns = all_inputs(w.shape[1])  # (2^k, k)

    def features(self) -> Floats:
        """What each kind answers to each pattern of k bits: (2^k patterns, kinds)."""
        return np.maximum(self.patterns @ self.w.T + self.bias, 0)

    def step(self, inputs: Floats, wanted: Floats, learning_rate: float) -> float:
        places = self.u.shape[1]
        at = windows(inputs, self.w.shape[1]) * places + np.arange(places)  # (N, places)
        features = self.features()
        answers = features @ (self.counts[:, None] * self.u)  # (patterns, places)
        outputs = answers.ravel()[at].sum(axis=1)
        pull = wanted * (outputs * wanted < 1) / len(wanted)  # -dL/dh
        pulls = np.bincount(at.ravel(), np.repeat(pull, places), minlength=answers.size)
        pulls = pulls.reshape(answers.shape)
        towards_w = (pulls @ self.u.T * (features > 0)).T @ self.patterns
        self.u = self.u + learning_rate * features.T @ pulls
        self.w = self.w + learning_rate * towards_w
        return hinge(outputs, wanted)


def usual_run(n: int, k: int, q: int, *, steps: int | None = None, faster: float = 1.0) -> Descent:
    """A step size with which the convolutional layer needs about 4 * 4^k steps, and twice as many.

    Its output grows by learning_rate * q / (k^2 4^k) a step until it reaches 1. `faster` makes the
    step size larger (or smaller) for the same number of steps.
    """
    return Descent(n, k, q, faster * k**2 / (4 * q), steps or 8 * 4**k)
