"""Lemma 2: do random signs hold every pattern of k bits, and can u then be chosen by hand?"""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from vsrkit.research.theory.bounds import smallest_width
from vsrkit.research.theory.gradient import NORMAL_95
from vsrkit.research.theory.learn import bias_of, draw_counts
from vsrkit.research.theory.patterns import all_inputs


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
    largest_norm: float  # of the u* that the proof names, over all draws in which it exists
    norm_bound: float  # what the lemma promises for it: 2^(k+1) k / sqrt(q)

    @property
    def promised(self) -> float:
        """The lemma's probability."""
        return 1 - self.delta


def measure_separability(k: int, delta: float, *, draws: int = 2000, seed: int = 0) -> Separability:
    """Draw networks of the least width that the lemma allows."""
    q = smallest_width(k, delta)
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
    """95 % interval of a frequency, honest at 0 and 1 too."""
    share, z = hits / draws, NORMAL_95
    middle = (share + z**2 / (2 * draws)) / (1 + z**2 / draws)
    half = z * sqrt(share * (1 - share) / draws + z**2 / (4 * draws**2)) / (1 + z**2 / draws)
    return max(0.0, middle - half), min(1.0, middle + half)


def indicator_error(k: int, *, bias: bool) -> float:
    """Largest error of the proof's step relu(<w, z>) = 1/k where sign(w) = z, 0 elsewhere."""
    z = all_inputs(k)
    answers = np.maximum(z @ z.T / k + (bias_of(k) if bias else 0.0), 0)
    return float(np.abs(answers - np.eye(2**k) / k).max())


def witness_error(k: int, *, bias: bool) -> float:
    """Largest |h(x) - f(x)| of the u* that the proof names, for f the product of the k bits."""
    z = all_inputs(k)
    answers = np.maximum(z @ z.T / k + (bias_of(k) if bias else 0.0), 0)
    f = z.prod(axis=1)
    return float(np.abs(answers @ (k * f) - f).max())
