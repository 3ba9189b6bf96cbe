"""Theorem 1: exact, sampled and closed-form gradients agree, and the bounds hold."""

from math import comb, log

import numpy as np
import pytest
import torch

from vsrkit.research.theory.bounds import theorem1_printed, theorem1_sharp, theorem1_supported
from vsrkit.research.theory.gradient import (
    closed_form,
    convolutional_levels,
    enumerated_levels,
    estimate,
    measure_gradients,
    sampled_levels,
    squared_norms,
    vanishes,
)
from vsrkit.research.theory.patterns import all_inputs, level_weights, parity

KS = range(2, 7)


@pytest.fixture(scope="module")
def grid():
    """Enumerated up to 11, sampled for 18."""
    return measure_gradients([8, 9, 10, 11, 18], KS, q=4, enumerate_up_to=11)


def hinge_gradient(predict, w, inputs, k):
    """The gradient of the hinge loss over all inputs, by autograd."""
    target = torch.from_numpy(parity(inputs, k))
    w = w.clone().requires_grad_()
    (1 - predict(w) * target).clamp(min=0).mean().backward()
    return w.grad


@pytest.mark.parametrize("bias", [0.0, 0.3])
def test_the_fully_connected_gradient_is_made_of_fourier_coefficients(bias):
    n, k, q = 7, 3, 5
    inputs = all_inputs(n)
    x, generator = torch.from_numpy(inputs), torch.Generator().manual_seed(0)
    w = torch.randn(q, n, generator=generator, dtype=torch.float64) / (2 * n * q)  # h in [-1, 1]
    u = torch.tensor([1.0, -1, 1, -1, 1], dtype=torch.float64)
    b = bias / (2 * n * q)
    found = hinge_gradient(lambda w: torch.relu(x @ w.T + b) @ u, w, inputs, k)
    fires = (inputs @ w.numpy().T + b > 0).T
    product = parity(inputs, k)
    expected = [-float(u[i]) * (fires[i] * product) @ inputs / len(inputs) for i in range(q)]
    assert found.numpy() == pytest.approx(np.stack(expected), abs=1e-12)


def test_all_permutations_of_the_weights_average_to_the_level_formula():
    n, k = 5, 2
    rng = np.random.default_rng(3)
    inputs, w = all_inputs(n), rng.standard_normal(n)
    product = parity(inputs, k)
    total = []
    for order in np.array(np.meshgrid(*[range(n)] * n)).reshape(n, -1).T:
        if len(set(order)) == n:
            gradient = ((inputs @ w[order] > 0) * product) @ inputs / len(inputs)
            total.append((gradient**2).sum())
    assert len(total) == 120

    class Same:
        """Draws the one neuron that was permuted above."""

        def standard_normal(self, shape):
            return np.broadcast_to(w, shape)

    levels = enumerated_levels(n, k + 1, False, Same(), draws=1)
    assert squared_norms(levels, n, k) == pytest.approx([np.mean(total)])


def test_the_convolutional_gradient_comes_from_the_window_of_the_pattern():
    n, k, q = 7, 3, 4
    inputs = all_inputs(n)
    views = torch.from_numpy(inputs).unfold(1, k, 1)  # (N, places, k)
    generator = torch.Generator().manual_seed(1)
    w = torch.randn(q, k, generator=generator, dtype=torch.float64) / 100
    u = torch.ones(n - k + 1, q, dtype=torch.float64)
    b = torch.tensor([0.003, -0.002, 0.001, 0.004], dtype=torch.float64)
    found = hinge_gradient(
        lambda w: torch.einsum("njq,jq->n", torch.relu(views @ w.T + b), u), w, inputs, k
    )
    patterns = all_inputs(k)
    fires = patterns @ w.numpy().T + b.numpy() > 0
    expected = -(fires * patterns.prod(axis=1)[:, None]).T @ patterns / len(patterns)
    assert found.numpy() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("n", [9, 12])
def test_sampling_agrees_with_enumeration_within_its_interval(n, bias):
    """Both draw their own neurons, so both intervals count; 3.3 sigma for ten comparisons."""
    exact = enumerated_levels(n, 7, bias, np.random.default_rng(0), draws=2000)
    sampled = sampled_levels(n, 7, bias, np.random.default_rng(1), draws=60, inputs=1500)
    for k in KS:
        a = estimate(squared_norms(exact, n, k), 1, enumerated=True)
        b = estimate(squared_norms(sampled, n, k), 1, enumerated=False)
        width = np.hypot(a.high - a.low, b.high - b.low) / 2
        assert abs(a.mean - b.mean) < 3.3 / 1.96 * width, k


@pytest.mark.parametrize("bias", [False, True])
def test_the_closed_form_agrees_with_enumeration(bias):
    for n in (8, 11):
        levels = enumerated_levels(n, 7, bias, np.random.default_rng(5), draws=3000)
        for k in KS:
            values = squared_norms(levels, n, k)
            slack = 3.3 * values.std() / len(values) ** 0.5 + 1e-12
            assert abs(values.mean() - closed_form(n, k, bias=bias)) < slack, (n, k)


def test_odd_patterns_have_no_gradient_without_a_bias(grid):
    zero = [c for c in grid if vanishes(c.k, bias=c.bias)]
    assert {c.k for c in zero} == {3, 5}
    assert all(not c.bias for c in zero)
    for cell in zero:
        assert cell.convolutional.mean == 0
        assert cell.closed_form == pytest.approx(0, abs=1e-12)
        if cell.n <= 11:
            assert cell.fully_connected.mean == 0
        else:  # sampled: zero is in the interval, up to five sigma
            half = cell.fully_connected.high - cell.fully_connected.mean
            assert abs(cell.fully_connected.mean) < 5 / 1.96 * half


def test_the_bounds_hold_on_the_whole_grid(grid):
    for cell in grid:
        assert cell.fully_connected.high <= cell.sharp <= cell.printed <= cell.supported
    for bias in (False, True):  # and exactly, for Gaussian weights
        for n in range(3, 31):
            for k in range(1, min(n, 12)):
                assert closed_form(n, k, bias=bias) <= theorem1_sharp(n, k)


def test_printed_and_supported_bounds_differ_by_the_stated_factor():
    for n in range(2, 60):
        for k in range(1, n):
            assert theorem1_supported(n, k) * comb(n - 1, k - 1) == 2 * k
            assert theorem1_supported(n, k) / theorem1_printed(n, k) * n == 2 * max(k, n - k)
            assert theorem1_sharp(n, k) <= theorem1_printed(n, k) <= theorem1_supported(n, k)
    assert theorem1_printed(8, 2, q=3) * comb(7, 2) == 24


def test_the_layers_differ_by_the_stated_orders(grid):
    """Convolutional: the same for every n. Fully connected: falls like n^-(k-1)."""
    for k in KS:
        here = [c for c in grid if c.bias and c.k == k]
        assert len({c.convolutional.mean for c in here}) == 1
        assert here[0].convolutional.mean > here[0].fully_connected.high
    for k in (2, 4):
        fall = log(closed_form(512, k) / closed_form(256, k), 2)
        assert fall == pytest.approx(-(k - 1), abs=0.05)
    for k in (2, 4, 6):  # the ratio to the convolutional layer falls, too, and is below the bound
        levels = convolutional_levels(k, False, np.random.default_rng(0))
        local = estimate(levels[:, k - 1], 1, enumerated=True)
        ratios = [closed_form(n, k) / local.mean for n in (8, 16, 24)]
        assert ratios[0] > 2 ** (k - 1) * ratios[1] > 2 ** (k - 1) * ratios[2]
        assert ratios[-1] < theorem1_sharp(24, k) / local.low


def test_the_sharp_bound_holds_for_very_different_weights_too():
    """All weights equal, any bias: close to the bound and unlike Gaussian neurons."""
    nearest = 0.0
    for n in range(3, 10):
        inputs = all_inputs(n)
        for bias in np.arange(-n, n) + 0.5:
            levels = np.zeros((1, n + 2))
            levels[:, : n + 1] = level_weights((inputs.sum(axis=1) + bias > 0)[None])
            for k in range(1, n):
                value = float(squared_norms(levels, n, k)[0])
                assert value <= theorem1_sharp(n, k) + 1e-12
                nearest = max(nearest, value / float(theorem1_printed(n, k)))
    assert nearest > 0.85  # the printed bound cannot be made much smaller
