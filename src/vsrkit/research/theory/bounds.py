"""The bounds of Theorem 1 (as printed, as proved, and sharp), of Theorem 2 and of Lemma 2.

In all of them n is the number of input bits, k the number of bits of the pattern, and q the
number of neurons.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, comb, floor, log, sqrt


def theorem1_printed(n: int, k: int, q: int = 1) -> Fraction:
    """Theorem 1 as it is printed: q n min(1 / C(n-1, k), 1 / C(n-1, k-1))."""
    return Fraction(q * n, max(comb(n - 1, k), comb(n - 1, k - 1)))


def theorem1_supported(n: int, k: int, q: int = 1) -> Fraction:
    """The bound that the printed proof supports: for each weight, the binomial of its case.

    The two terms are equal, so this is 2 q k / C(n-1, k-1).
    """
    inside, outside = Fraction(k, comb(n - 1, k - 1)), Fraction(0)
    if k < n:
        outside = Fraction(n - k, comb(n - 1, k))
    return q * (inside + outside)


def theorem1_sharp(n: int, k: int, q: int = 1) -> Fraction:
    """By Parseval for all weights of a neuron together: q max(k / C(n, k-1), (n-k) / C(n, k+1)).

    It is never above the printed bound, which is therefore correct although its proof is not
    (docs/theory.md).
    """
    inside, outside = Fraction(k, comb(n, k - 1)), Fraction(0)
    if k < n:
        outside = Fraction(n - k, comb(n, k + 1))
    return q * max(inside, outside)


def lemma2_width(k: int, delta: float) -> int:
    """The smallest q above 2^(k+3) log(2^k / delta), as Lemma 2 and Theorem 2 require.

    delta: the probability with which the lemma may fail.
    """
    return floor(2 ** (k + 3) * log(2**k / delta)) + 1


@dataclass(frozen=True, slots=True)
class Descent:
    """The sizes of a training run by gradient descent, as Theorem 2 describes it."""

    n: int
    k: int
    q: int
    learning_rate: float
    steps: int


def theorem2_bound(run: Descent) -> float:
    """Theorem 2's bound on the mean of the loss over all steps of a run."""
    path = run.learning_rate * run.steps
    drift, start = _theorem2_factors(run.n, run.k)
    return drift * path**2 + start / (run.q * path) + run.learning_rate * run.n * run.q * run.k


def _theorem2_factors(n: int, k: int) -> tuple[float, float]:
    """Factors of the first two terms: of (learning_rate * steps)^2, and of its inverse over q."""
    return n * k**2.5 * 2 ** (k + 1), k**2 * 2 ** (2 * k + 1)


def theorem2_width(n: int, k: int) -> int:
    """The smallest q for which some step size and number of steps give a bound below 1.

    With decreasing step size the third term vanishes; a x^2 + b / (q x) has its minimum at
    x^3 = b / (2 a q), where it is (27/4 a b^2 / q^2)^(1/3).
    """
    drift, start = _theorem2_factors(n, k)
    return floor(sqrt(6.75 * drift) * start) + 1


def covered_run(n: int, k: int, target: float = 0.9) -> Descent:
    """A run whose Theorem 2 bound is `target`: four times the smallest width, the best step size.

    target: the value of the bound, below 1.
    """
    q = 4 * theorem2_width(n, k)
    drift, start = _theorem2_factors(n, k)
    path = (start / (2 * drift * q)) ** (1 / 3)
    rest = target - drift * path**2 - start / (q * path)
    learning_rate = rest / (n * q * k)
    return Descent(n, k, q, learning_rate, ceil(path / learning_rate))
