"""Inputs of n signs, functions of k of them, and their Fourier (Walsh) coefficients.

Row r of `all_inputs(n)` is -1 where r has a bit set, so that the product of the signs in a set S
is (-1)^(number of bits that r and S share). A set is written as a number in the same way.
"""

from collections.abc import Sequence
from math import comb
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from vsrkit.errors import VsrkitError

Floats: TypeAlias = NDArray[np.floating]
BITS = np.array([number.bit_count() for number in range(2**16)], dtype=np.uint8)
MAX_BITS = 32  # an input is also written as a uint32


def signs(rows: NDArray[np.integer], n: int) -> Floats:
    """The inputs with these row numbers: (N,) -> (N, n) of -1 and 1."""
    return 1.0 - 2.0 * (rows[:, None] >> np.arange(n, dtype=rows.dtype) & 1)


def all_inputs(n: int) -> Floats:
    """Every x in {-1, 1}^n: (2^n, n)."""
    return signs(np.arange(2**n), n)


def random_rows(count: int, n: int, rng: np.random.Generator) -> NDArray[np.uint32]:
    """Row numbers of uniform x in {-1, 1}^n: (count,)."""
    return rng.integers(0, 2**n, count, dtype=np.uint32)


def parity(inputs: Floats, k: int) -> Floats:
    """The pattern of the theorems, the product of k consecutive bits: (N, n) -> (N,)."""
    start = (inputs.shape[1] - k) // 2  # centred; no result depends on it
    return inputs[:, start : start + k].prod(axis=1)


def windows(inputs: Floats, k: int) -> NDArray[np.int64]:
    """Every k consecutive bits as their row number in `all_inputs(k)`: (N, n) -> (N, n-k+1)."""
    bits = (inputs < 0).astype(np.int64)
    views = np.lib.stride_tricks.sliding_window_view(bits, k, axis=1)
    return views @ (1 << np.arange(k))


def count_bits(rows: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """How many bits are set in each number, by a table for its lower and upper 16 bits."""
    lower = 2**16 - 1
    return BITS[rows & lower] + BITS[rows >> 16]


def fourier(values: Floats | NDArray[np.bool_]) -> NDArray[np.float64]:
    """Coefficients E[f(x) prod_{i in S} x_i] of functions on all inputs: (M, 2^n) -> (M, 2^n)."""
    count, size = values.shape
    sums = values.astype(np.float32)  # sums of indicators are at most 2^n: exact for n <= 24
    half = 1
    while half < size:
        pairs = sums.reshape(count, -1, 2, half)
        sums = np.stack((pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]), axis=2)
        half *= 2
    return sums.reshape(count, size).astype(np.float64) / size


def level_weights(values: Floats | NDArray[np.bool_]) -> NDArray[np.float64]:
    """Sum of squared coefficients over the sets of each size: (M, 2^n) -> (M, n+1)."""
    size = values.shape[1]
    n = size.bit_length() - 1
    sizes = count_bits(np.arange(size, dtype=np.uint32))
    member = (sizes[:, None] == np.arange(n + 1)).astype(np.float64)
    return fourier(values) ** 2 @ member


def krawtchouk(n: int, degree: int) -> NDArray[np.float64]:
    """Mean over all sets S of `degree` bits of the product of the signs in S: (n+1,).

    Entry m is for inputs with m negative signs. It is also the average of a product of `degree`
    signs over all permutations of the input.
    """
    values = [
        sum((-1) ** i * comb(m, i) * comb(n - m, degree - i) for i in range(degree + 1))
        for m in range(n + 1)
    ]
    return np.array(values, dtype=np.float64) / comb(n, degree)


def parse_numbers(text: str) -> list[int]:
    """Whole numbers from "8:12" (both ends included), "8,10,12", or a combination of both."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition(":")
        try:
            found += range(int(first), int(last or first) + 1)
        except ValueError:
            raise VsrkitError(f"expected numbers like 8:20 or 8,12,16, got {text!r}") from None
    if not found or min(found) < 1:
        raise VsrkitError(f"{text!r} has no numbers from 1 on; write 8:20 or 8,12,16")
    return sorted(set(found))


def size_pairs(ns: Sequence[int], ks: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs (n, k) with k < n, sorted by k and then by n."""
    if max(ns) > MAX_BITS:
        raise VsrkitError(f"n may be at most {MAX_BITS}, got {max(ns)}")
    pairs = [(n, k) for k in ks for n in ns if k < n]
    if not pairs:
        raise VsrkitError(
            "no n is larger than any k; patterns of k bits need more than k input bits"
        )
    return pairs
