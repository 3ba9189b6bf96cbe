"""Signs, patterns, and their Fourier coefficients."""

from math import comb

import numpy as np
import pytest

from vsrkit.errors import VsrkitError
from vsrkit.research.theory.patterns import (
    all_inputs,
    count_bits,
    fourier,
    krawtchouk,
    level_weights,
    parity,
    parse_numbers,
    signs,
    size_pairs,
    windows,
)


def test_all_inputs_are_all_sign_vectors():
    inputs = all_inputs(5)
    assert {tuple(row) for row in inputs} == {
        tuple(r) for r in np.ndindex((2,) * 5) for r in [1 - 2 * np.array(r)]
    }
    assert (signs(np.array([0, 5], dtype=np.uint32), 3) == [[1, 1, 1], [-1, 1, -1]]).all()


def test_the_pattern_is_a_product_of_consecutive_bits():
    inputs = all_inputs(6)
    assert (parity(inputs, 3) == inputs[:, 1] * inputs[:, 2] * inputs[:, 3]).all()


def test_windows_are_row_numbers():
    inputs = all_inputs(6)
    found = windows(inputs, 4)
    assert found.shape == (64, 3)
    for place in range(3):
        assert (all_inputs(4)[found[:, place]] == inputs[:, place : place + 4]).all()


def test_fourier_coefficients_are_correlations_with_products():
    rng = np.random.default_rng(0)
    inputs, values = all_inputs(5), rng.integers(0, 2, (3, 32)).astype(float)
    chosen = 0b10110
    product = inputs[:, 1] * inputs[:, 2] * inputs[:, 4]
    assert fourier(values)[:, chosen] == pytest.approx((values * product).mean(axis=1))


def test_levels_add_up_to_the_norm():
    values = np.random.default_rng(1).integers(0, 2, (4, 64)) > 0
    assert level_weights(values).sum(axis=1) == pytest.approx(values.mean(axis=1))  # Parseval


@pytest.mark.parametrize("degree", [0, 1, 2, 4])
def test_krawtchouk_is_the_mean_product_over_all_sets(degree):
    n = 6
    coefficients = count_bits(np.arange(2**n, dtype=np.uint32)) == degree
    for minuses in range(n + 1):
        x = signs(np.array([2**minuses - 1], dtype=np.uint32), n)[0]
        sets = all_inputs(n)[coefficients] < 0
        products = [x[s].prod() for s in sets]
        assert len(products) == comb(n, degree)
        assert krawtchouk(n, degree)[minuses] == pytest.approx(np.mean(products))


def test_bits_are_counted_in_both_halves():
    assert count_bits(np.array([0, 7, 2**31, 2**32 - 1], dtype=np.uint32)).tolist() == [0, 3, 1, 32]


def test_parsing_numbers_and_pairing_sizes():
    assert parse_numbers("8:10,12") == [8, 9, 10, 12]
    assert size_pairs([3, 4], [2, 3]) == [(3, 2), (4, 2), (4, 3)]
    for wrong in ("a", "", "5:2", "0:3"):
        with pytest.raises(VsrkitError, match="8:20"):
            parse_numbers(wrong)
    with pytest.raises(VsrkitError, match="larger"):
        size_pairs([2], [2])
    with pytest.raises(VsrkitError, match="at most 32"):
        size_pairs([40], [2])
