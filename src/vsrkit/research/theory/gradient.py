"""Theorem 1 measured: E||dL/dW||^2 of both layers before the first step.

While h(x) stays in [-1, 1] the hinge loss is 1 - h(x) f(x). With f the product of the bits in I

    dL/dw_ij = -u_i E[x_j g(x) prod_I x] = -u_i * (Fourier coefficient of g at I without or with j)

with g(x) = 1{<w_i, x> + b_i > 0}. So one neuron's part of the squared norm is a sum of k squared
coefficients of degree k-1 and n-k of degree k+1. It does not depend on the scale of w: weights can
be made small enough for h to stay in [-1, 1] without changing it. All neurons have the same
distribution and |u_i| = 1, so the total is q times the value of one neuron.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import comb, sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from vsrkit.research.theory.bounds import theorem1_printed, theorem1_sharp, theorem1_supported
from vsrkit.research.theory.patterns import (
    all_inputs,
    count_bits,
    krawtchouk,
    level_weights,
    random_rows,
    signs,
    size_pairs,
)

OnProgress = Callable[[str, int, int], None]
Levels = NDArray[np.float64]  # (draws, degrees): squared coefficients, summed over each degree

NORMAL_95 = 1.96
DRAWS = 256  # neurons, if all inputs are enumerated
SAMPLED_DRAWS, SAMPLED_INPUTS = 64, 3072  # neurons, and pairs of inputs for each, if sampled


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over drawn neurons with its 95 % interval."""

    mean: float
    low: float
    high: float
    inputs: Literal["enumerated", "sampled"]
    draws: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The results for one n, k and bias; all values are for q neurons."""

    n: int
    k: int
    q: int
    bias: bool
    fully_connected: Estimate
    closed_form: float  # of the fully connected layer, by Sheppard's formula
    convolutional: Estimate
    printed: float
    supported: float
    sharp: float


def measure_gradients(
    ns: Sequence[int],
    ks: Sequence[int],
    *,
    q: int = 64,
    enumerate_up_to: int = 16,
    seed: int = 0,
    on_progress: OnProgress = lambda what, done, total: None,
) -> list[Cell]:
    """Measure both layers without and with a bias, over a grid of n and k.

    ns, ks: numbers of input bits and of pattern bits; pairs with k < n are measured.
    q: number of neurons.
    enumerate_up_to: the largest n for which all 2^n inputs are used; above, inputs are sampled.
    seed: of all random draws.
    on_progress: called with a description, and the finished and total numbers of n.
    """
    pairs, found = size_pairs(ns, ks), []
    degrees = max(ks) + 1
    for bias in (False, True):
        local = {k: convolutional_levels(k, bias, np.random.default_rng((seed, k))) for k in ks}
        for done, n in enumerate(ns):
            on_progress(f"n = {n}{', with a bias' if bias else ''}", done, len(ns))
            exact = n <= enumerate_up_to
            method = enumerated_levels if exact else sampled_levels
            levels = method(n, degrees, bias, np.random.default_rng((seed, 1000 + n)))
            found += [_cell(n, k, q, bias, levels, local[k], exact) for m, k in pairs if m == n]
    return sorted(found, key=lambda cell: (cell.bias, cell.k, cell.n))


def _cell(n: int, k: int, q: int, bias: bool, levels: Levels, local: Levels, exact: bool) -> Cell:
    return Cell(
        n=n,
        k=k,
        q=q,
        bias=bias,
        fully_connected=estimate(squared_norms(levels, n, k), q, enumerated=exact),
        closed_form=q * closed_form(n, k, bias=bias),
        convolutional=estimate(local[:, k - 1], q, enumerated=True),
        printed=float(theorem1_printed(n, k, q)),
        supported=float(theorem1_supported(n, k, q)),
        sharp=float(theorem1_sharp(n, k, q)),
    )


def estimate(values: NDArray[np.float64], q: int, *, enumerated: bool) -> Estimate:
    """The mean of squared norms of single neurons, (draws,), scaled to q neurons."""
    mean = float(values.mean())
    half = NORMAL_95 * float(values.std(ddof=1)) / sqrt(len(values))
    return Estimate(
        mean=q * mean,
        low=q * (mean - half),
        high=q * (mean + half),
        inputs="enumerated" if enumerated else "sampled",
        draws=len(values),
    )


def squared_norms(levels: Levels, n: int, k: int) -> NDArray[np.float64]:
    """One neuron's ||dL/dw||^2, averaged over all permutations of its weights: (draws,).

    A permutation of w moves a coefficient to another set of the same size, so the average of one
    squared coefficient over all of them is the mean over all sets of that size.
    """
    below = k * levels[:, k - 1] / comb(n, k - 1)
    return below + (n - k) * levels[:, k + 1] / comb(n, k + 1)


def enumerated_levels(
    n: int, degrees: int, bias: bool, rng: np.random.Generator, *, draws: int = DRAWS
) -> Levels:
    """Squared coefficients of drawn neurons from all 2^n inputs, exact for each neuron.

    n: input bits.
    degrees: the highest degree that is returned.
    bias: whether the neurons have a Gaussian bias.
    rng: draws the neurons.
    draws: how many neurons.
    """
    inputs = all_inputs(n)
    rows = [level_weights(fires) for fires in _firing(inputs, bias, draws, rng)]
    levels = np.zeros((draws, degrees + 1))
    levels[:, : n + 1] = np.concatenate(rows)[:, : degrees + 1]
    return levels


def _firing(
    inputs: NDArray[np.floating], bias: bool, draws: int, rng: np.random.Generator
) -> Iterator[NDArray[np.bool_]]:
    """g(x) of Gaussian neurons on the inputs, up to 32 neurons at a time: (neurons, inputs)."""
    chunk = 32  # 2^16 inputs times 32 neurons take 16 MB
    for start in range(0, draws, chunk):
        count = min(chunk, draws - start)
        w = rng.standard_normal((count, inputs.shape[1]))
        b = rng.standard_normal((count, 1)) if bias else 0.0
        yield w @ inputs.T + b > 0


def sampled_levels(
    n: int,
    degrees: int,
    bias: bool,
    rng: np.random.Generator,
    *,
    draws: int = SAMPLED_DRAWS,
    inputs: int = SAMPLED_INPUTS,
) -> Levels:
    """Unbiased estimates of squared coefficients: products of two sampled inputs.

    For independent x and y, E[g(x) g(y) prod_S x y] is the squared coefficient at S. Its mean over
    all sets of a size depends only on how many bits x and y differ in.

    n, degrees, bias, rng, draws: as in `enumerated_levels`.
    inputs: pairs of inputs for each neuron.
    """
    kernels = np.stack([comb(n, d) * krawtchouk(n, d) for d in range(min(degrees, n) + 1)])
    levels = np.zeros((draws, degrees + 1))
    for row in range(draws):
        rows = random_rows(2 * inputs, n, rng)
        (fires,) = _firing(signs(rows, n), bias, 1, rng)
        xs, ys = rows[:inputs][fires[0, :inputs]], rows[inputs:][fires[0, inputs:]]
        differing = count_bits(xs[:, None] ^ ys)
        pairs = np.bincount(differing.ravel(), minlength=n + 1)
        levels[row, : len(kernels)] = kernels @ pairs / inputs**2
    return levels


def convolutional_levels(
    k: int, bias: bool, rng: np.random.Generator, *, draws: int = 16 * DRAWS
) -> Levels:
    """Squared coefficients for windows of k bits; level k-1 is the ||dL/dw||^2 of a neuron.

    Only the window that holds the pattern has a gradient, and no set of k+1 bits fits into it. The
    result does not depend on n.
    """
    return enumerated_levels(k, k + 1, bias, rng, draws=draws)


def closed_form(n: int, k: int, *, bias: bool = False) -> float:
    """The value of the fully connected layer for one Gaussian neuron, without sampling.

    Two inputs that differ in h bits both activate a Gaussian neuron with probability
    1/2 - angle / (2 pi) (Sheppard's formula); a bias acts as a bit that never differs.
    """
    h = np.arange(n + 1)
    likely = np.array([comb(n, int(m)) for m in h]) / 2.0**n
    both = 0.5 - np.arccos(1 - 2 * h / (n + bias)) / (2 * np.pi)

    def coefficient(degree: int) -> float:
        return float((likely * both * krawtchouk(n, degree)).sum())

    return k * coefficient(k - 1) + ((n - k) * coefficient(k + 1) if k < n else 0.0)


def vanishes(k: int, *, bias: bool) -> bool:
    """Whether the gradient is exactly zero: for odd k from 3 on, unless there is a bias.

    1{t > 0} is 1/2 plus an odd function, so without a bias its only coefficient of even degree is
    the constant.
    """
    return not bias and k % 2 == 1 and k > 1
