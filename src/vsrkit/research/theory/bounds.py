"""The right-hand sides: of Theorem 1 as printed, as proved, and sharp; of Theorem 2; of Lemma 2."""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, comb, exp, floor, log, sqrt


def printed(n: int, k: int, q: int = 1) -> Fraction:
    """Theorem 1 as it is printed: q n min(1 / C(n-1, k), 1 / C(n-1, k-1))."""
    return Fraction(q * n, max(comb(n - 1, k), comb(n - 1, k - 1)))


def supported(n: int, k: int, q: int = 1) -> Fraction:
    """What its printed proof supports: each weight has the binomial of its own case.

    The two terms are equal, so this is 2 q k / C(n-1, k-1).
    """
    inside, outside = Fraction(k, comb(n - 1, k - 1)), Fraction(0)
    if k < n:
        outside = Fraction(n - k, comb(n - 1, k))
    return q * (inside + outside)


def sharp(n: int, k: int, q: int = 1) -> Fraction:
    """Parseval once for all weights of a neuron: q max(k / C(n, k-1), (n-k) / C(n, k+1)).

    Never above `printed`, which is therefore right although its proof is not (docs/theory.md).
    """
    inside, outside = Fraction(k, comb(n, k - 1)), Fraction(0)
    if k < n:
        outside = Fraction(n - k, comb(n, k + 1))
    return q * max(inside, outside)


def smallest_width(k: int, delta: float) -> int:
    """The least q above 2^(k+3) log(2^k / delta), which Lemma 2 and Theorem 2 ask for."""
    return floor(2 ** (k + 3) * log(2**k / delta)) + 1


def chernoff(k: int, q: int) -> float:
    """Lemma 2's bound on the probability that some sign pattern has under q / 2^(k+1) neurons."""
    return min(1.0, 2**k * exp(-q / 2 ** (k + 3)))


@dataclass(frozen=True, slots=True)
class Descent:
    """A training run as Theorem 2 describes it."""

    n: int
    k: int
    q: int
    learning_rate: float
    steps: int


def theorem2(run: Descent) -> float:
    """Its bound on the mean of the loss over all steps."""
    way = run.learning_rate * run.steps
    drift, start = _terms(run.n, run.k)
    return drift * way**2 + start / (run.q * way) + run.learning_rate * run.n * run.q * run.k


def _terms(n: int, k: int) -> tuple[float, float]:
    """Factors of the first two terms: of (learning_rate * steps)^2, and of its inverse over q."""
    return n * k**2.5 * 2 ** (k + 1), k**2 * 2 ** (2 * k + 1)


def useful_width(n: int, k: int) -> int:
    """The least q for which some step size and number of steps bring the bound below 1.

    With ever smaller steps the third term vanishes; a x^2 + b / (q x) is least at
    x^3 = b / (2 a q), where it is (27/4 a b^2 / q^2)^(1/3).
    """
    drift, start = _terms(n, k)
    return floor(sqrt(6.75 * drift) * start) + 1


def run_below(n: int, k: int, target: float = 0.9) -> Descent:
    """A run whose bound is `target`: four times the least width, the best step size for it."""
    q = 4 * useful_width(n, k)
    drift, start = _terms(n, k)
    way = (start / (2 * drift * q)) ** (1 / 3)
    left = target - drift * way**2 - start / (q * way)
    learning_rate = left / (n * q * k)
    return Descent(n, k, q, learning_rate, ceil(way / learning_rate))
