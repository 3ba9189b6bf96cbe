"""Theorem 2 and Lemma 2 measured: both predictors trained on the product of k consecutive bits.

As in the proof: hinge loss, u starts at zero, every w_ij at +-1/k, u and W are trained with one
step size on the loss over all inputs. The bias is fixed at `fixed_bias(k)`; without it (the paper
as printed) relu(<w, z>) is not the indicator that the proof needs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vsrkit.research.theory.bounds import Descent, covered_run, lemma2_width
from vsrkit.research.theory.gradient import NORMAL_95, OnProgress
from vsrkit.research.theory.patterns import (
    Floats,
    all_inputs,
    parity,
    random_rows,
    signs,
    size_pairs,
    windows,
)

Layer: TypeAlias = Literal["convolutional", "convolutional, as printed", "fully connected"]
LAYERS: tuple[Layer, ...] = ("convolutional", "convolutional, as printed", "fully connected")
MAX_INPUTS = 512  # all inputs up to n = 9; above, this many new ones at every step
DELTAS = (0.5, 0.1, 0.01)  # at which Lemma 2 is measured
COVERED_K = 2  # larger patterns need millions of steps before Theorem 2's bound is below 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The loss before each step of one run."""

    layer: Layer
    run: Descent
    seed: int
    losses: NDArray[np.float64]

    @property
    def means(self) -> NDArray[np.float64]:
        """The mean loss of all steps up to each step."""
        return np.cumsum(self.losses) / np.arange(1, self.run.steps + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Separability:
    """How often each of the 2^k sign patterns had at least q / 2^(k+1) of q neurons."""

    k: int
    delta: float
    q: int
    draws: int
    frequency: float
    low: float  # Wilson's 95 % interval
    high: float
    largest_norm: float  # of the proof's u*, over all draws in which it exists
    norm_bound: float  # the lemma's bound on that norm: 2^(k+1) k / sqrt(q)

    @property
    def promised(self) -> float:
        """The lemma's probability."""
        return 1 - self.delta


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """All results of `learn_patterns`."""

    runs: Sequence[Descent]
    curves: Sequence[Curve]  # of every run, layer and seed
    covered: Descent  # a run with a Theorem 2 bound below 1
    covered_curves: Sequence[Curve]  # of the convolutional layer, for every seed
    separability: Sequence[Separability]


def learn_patterns(
    ns: Sequence[int],
    ks: Sequence[int],
    *,
    delta: float = 0.1,
    seeds: int = 3,
    steps: int | None = None,
    faster: float = 1.0,
    draws: int = 2000,
    seed: int = 0,
    on_progress: OnProgress = lambda what, done, total: None,
) -> Learning:
    """Train each layer for each n and k and a run that Theorem 2 covers; measure Lemma 2.

    ns, ks: numbers of input bits and of pattern bits; pairs with k < n are trained.
    delta: the failure probability of Lemma 2, which sets the number of neurons.
    seeds: runs of each layer, n and k.
    steps: of every run; by default as many as k needs.
    faster: step size as a multiple of the usual one.
    draws: networks drawn for Lemma 2.
    seed: the first seed.
    on_progress: called with a description, the number of finished runs, and of all runs.
    """
    runs = [
        usual_run(n, k, lemma2_width(k, delta), steps=steps, faster=faster)
        for n, k in size_pairs(ns, ks)
    ]
    covered = covered_run(max(min(ns), COVERED_K + 1), COVERED_K)
    jobs: list[tuple[Layer, Descent]] = [(layer, run) for run in runs for layer in LAYERS]
    jobs.append(("convolutional", covered))
    curves: list[Curve] = []
    for layer, run in jobs:
        for number in range(seeds):
            on_progress(f"n = {run.n}, k = {run.k}, {layer}", len(curves), len(jobs) * seeds)
            curves.append(descend(layer, run, seed=seed + number))
    separability = [
        measure_separability(k, d, draws=draws, seed=seed)
        for d in sorted({delta, *DELTAS})
        for k in ks
    ]
    return Learning(
        runs=runs,
        curves=curves[:-seeds],
        covered=covered,
        covered_curves=curves[-seeds:],
        separability=separability,
    )


def usual_run(n: int, k: int, q: int, *, steps: int | None = None, faster: float = 1.0) -> Descent:
    """A run that is twice as long as the convolutional layer needs, about 4 * 4^k steps.

    The layer's output grows by learning_rate * q / (k^2 4^k) per step until it reaches 1.

    n, k, q: input bits, pattern bits and neurons.
    steps: another number of steps.
    faster: multiplies the step size for the same number of steps.
    """
    return Descent(n, k, q, faster * k**2 / (4 * q), steps or 8 * 4**k)


def descend(layer: Layer, run: Descent, *, seed: int) -> Curve:
    """Train one predictor; the loss of each step is measured on the inputs of that step."""
    rng = np.random.default_rng([seed, run.n, run.k])
    predictor = initial_predictor(layer, run, rng)
    losses = np.empty(run.steps)
    for step, (inputs, targets) in zip(range(run.steps), draw_inputs(run, rng), strict=False):
        losses[step] = predictor.step(inputs, targets, run.learning_rate)
    return Curve(layer=layer, run=run, seed=seed, losses=losses)


def draw_inputs(run: Descent, rng: np.random.Generator) -> Iterator[tuple[Floats, Floats]]:
    """Batches of inputs with their target values, without end."""
    if 2**run.n <= MAX_INPUTS:
        inputs = all_inputs(run.n)
        targets = parity(inputs, run.k)
        while True:
            yield inputs, targets
    while True:
        inputs = signs(random_rows(MAX_INPUTS, run.n, rng), run.n)
        yield inputs, parity(inputs, run.k)


def initial_predictor(
    layer: Layer, run: Descent, rng: np.random.Generator
) -> "FullyConnected | Convolutional":
    """A predictor with weights drawn as in Theorem 2."""
    if layer == "fully connected":
        w = rng.choice([-1.0, 1.0], (run.q, run.n)) / run.k
        return FullyConnected(w, np.zeros(run.q), fixed_bias(run.k))
    counts = draw_counts(run.k, run.q, rng)
    u = np.zeros((2**run.k, run.n - run.k + 1))
    bias = fixed_bias(run.k) if layer == "convolutional" else 0.0
    return Convolutional(all_inputs(run.k) / run.k, counts, u, bias)


def fixed_bias(k: int) -> float:
    """1/k - 1: with it relu(<w, z> + b) is 1/k where sign(w) = z, and 0 everywhere else."""
    return 1 / k - 1


def draw_counts(k: int, q: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """How many of q neurons have each of the 2^k sign patterns."""
    return rng.multinomial(q, np.full(2**k, 2.0**-k))


def hinge(outputs: Floats, targets: Floats) -> float:
    """Mean of max(1 - h(x) f(x), 0)."""
    return float(np.maximum(1 - outputs * targets, 0).mean())


class FullyConnected:
    """h(x) = sum_i u_i relu(<w_i, x> + b)."""

    def __init__(self, w: Floats, u: Floats, bias: float) -> None:
        self.w, self.u, self.bias = w.astype(np.float32), u.astype(np.float32), np.float32(bias)

    def step(self, inputs: Floats, targets: Floats, learning_rate: float) -> float:
        """Take one step of gradient descent and return the hinge loss before it."""
        x, f = inputs.astype(np.float32), targets.astype(np.float32)
        features = np.maximum(x @ self.w.T + self.bias, 0)  # (N, q)
        outputs = features @ self.u
        by_output = f * (outputs * f < 1) / np.float32(len(f))  # -dL/dh, (N,)
        by_w = ((features > 0) * by_output[:, None]).T @ x * self.u[:, None]
        self.u = self.u + np.float32(learning_rate) * (by_output @ features)
        self.w = self.w + np.float32(learning_rate) * by_w
        return hinge(outputs, f)


class Convolutional:
    """h(x) = sum_j <u_j, relu(W x_[j : j+k] + b)>, each kind of neuron stored once.

    Neurons that start with the same weights always have the same gradient, and there are only 2^k
    possible starts: `counts` is the number of neurons of each kind among the q neurons. This is
    the whole network, not an approximation of it.
    """

    def __init__(self, w: Floats, counts: NDArray[np.int64], u: Floats, bias: float) -> None:
        self.w, self.counts, self.u, self.bias = w, counts, u, bias
        self.patterns = all_inputs(w.shape[1])  # (2^k, k)

    def features(self) -> Floats:
        """The feature of each kind of neuron for each pattern of k bits: (2^k patterns, kinds)."""
        return np.maximum(self.patterns @ self.w.T + self.bias, 0)

    def step(self, inputs: Floats, targets: Floats, learning_rate: float) -> float:
        """Take one step of gradient descent and return the hinge loss before it."""
        places = self.u.shape[1]
        at = windows(inputs, self.w.shape[1]) * places + np.arange(places)  # (N, places)
        features = self.features()
        values = features @ (self.counts[:, None] * self.u)  # (patterns, places)
        outputs = values.ravel()[at].sum(axis=1)
        by_output = targets * (outputs * targets < 1) / len(targets)  # -dL/dh
        by_value = np.bincount(at.ravel(), np.repeat(by_output, places), minlength=values.size)
        by_value = by_value.reshape(values.shape)
        by_w = (by_value @ self.u.T * (features > 0)).T @ self.patterns
        self.u = self.u + learning_rate * features.T @ by_value
        self.w = self.w + learning_rate * by_w
        return hinge(outputs, targets)


def measure_separability(k: int, delta: float, *, draws: int = 2000, seed: int = 0) -> Separability:
    """Draw networks of the smallest width that Lemma 2 allows and count how often its event holds.

    k: bits of the pattern.
    delta: the failure probability, which sets the width.
    draws: how many networks are drawn.
    seed: of the random draws.
    """
    q = lemma2_width(k, delta)
    rng = np.random.default_rng([seed, k])
    counts = np.stack([draw_counts(k, q, rng) for _ in range(draws)])
    held = counts.min(axis=1) >= q / 2 ** (k + 1)
    norms = np.sqrt((k**2 / counts[held]).sum(axis=1))  # u* is +-k / count for each neuron
    low, high = wilson(int(held.sum()), draws)
    return Separability(
        k=k,
        delta=delta,
        q=q,
        draws=draws,
        frequency=float(held.mean()),
        low=low,
        high=high,
        largest_norm=float(norms.max(initial=0.0)),
        norm_bound=2 ** (k + 1) * k / sqrt(q),
    )


def wilson(hits: int, draws: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a frequency, which is valid at 0 and 1 too."""
    share, z = hits / draws, NORMAL_95
    middle = (share + z**2 / (2 * draws)) / (1 + z**2 / draws)
    half = z * sqrt(share * (1 - share) / draws + z**2 / (4 * draws**2)) / (1 + z**2 / draws)
    return max(0.0, middle - half), min(1.0, middle + half)


def indicator_error(k: int, *, bias: bool) -> float:
    """Largest error of the proof's step relu(<w, z>) = 1/k where sign(w) = z, 0 elsewhere."""
    return float(np.abs(_pattern_features(k, bias) - np.eye(2**k) / k).max())


def witness_error(k: int, *, bias: bool) -> float:
    """Largest |h(x) - f(x)| with the u* of the proof, for f the product of the k bits."""
    f = all_inputs(k).prod(axis=1)
    return float(np.abs(_pattern_features(k, bias) @ (k * f) - f).max())


def _pattern_features(k: int, bias: bool) -> Floats:
    """relu(<w, z> + b) of every kind of neuron at its start, for every z: (2^k, 2^k)."""
    z = all_inputs(k)
    return np.maximum(z @ z.T / k + (fixed_bias(k) if bias else 0.0), 0)
