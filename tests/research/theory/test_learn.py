"""Theorem 2 and its lemmas: which statements are true, and under which assumptions."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from vsrkit.research.theory.bounds import (
    Descent,
    covered_run,
    lemma2_width,
    theorem2_bound,
    theorem2_width,
)
from vsrkit.research.theory.learn import (
    LAYERS,
    FullyConnected,
    descend,
    fixed_bias,
    hinge,
    indicator_error,
    initial_predictor,
    measure_separability,
    usual_run,
    wilson,
    witness_error,
)
from vsrkit.research.theory.patterns import all_inputs, parity


def attention(tokens, *, to_q, to_k, to_v, to_out):
    """W_o (W_v X) softmax((W_k X)^T (W_q X)), a column of X for each token: (d, N) -> (d_out, N).

    The proofs need the softmax to be 1. It is if the whole input is one token, because it is then
    taken over one number; the features are then W_o W_v x, without queries and keys.
    """
    similarity = (to_k @ tokens).T @ (to_q @ tokens)
    weights = np.exp(similarity - similarity.max(axis=0))
    return to_out @ (to_v @ tokens) @ (weights / weights.sum(axis=0))


def fully_connected(inputs, w, u):
    """h(x) = sum_i u_i relu(<w_i, x>): (N, n) -> (N,)."""
    return np.maximum(inputs @ w.T, 0) @ u


def convolutional(inputs, w, u):
    """h(x) = sum_j <u_j, relu(W x_[j : j+k])>: (N, n) -> (N,)."""
    views = np.lib.stride_tricks.sliding_window_view(inputs, w.shape[1], axis=1)
    return np.einsum("njq,jq->n", np.maximum(views @ w.T, 0), u)


def chernoff(k, q):
    """Lemma 2's bound on the probability that some sign pattern has under q / 2^(k+1) neurons."""
    return min(1.0, 2**k * np.exp(-q / 2 ** (k + 3)))


def test_attention_over_one_token_is_a_linear_layer():
    rng = np.random.default_rng(0)
    x = rng.choice([-1.0, 1.0], (6, 1))
    to_q, to_k, to_v = (rng.standard_normal((3, 6)) for _ in range(3))
    to_out = rng.standard_normal((4, 3))
    weights = {"to_q": to_q, "to_k": to_k, "to_v": to_v, "to_out": to_out}
    assert attention(x, **weights) == pytest.approx(to_out @ to_v @ x)
    several = rng.choice([-1.0, 1.0], (6, 2))
    difference = attention(several, **weights) - to_out @ to_v @ several
    assert np.abs(difference).max() > 0.1  # with more tokens the softmax is not 1


def test_a_head_of_size_one_gives_parallel_neurons():
    rng = np.random.default_rng(0)
    product = rng.standard_normal((5, 1)) @ rng.standard_normal((1, 8))
    assert np.linalg.matrix_rank(product) == 1
    signs_of_theorem_2 = rng.choice([-1.0, 1.0], (5, 8)) / 8
    assert np.linalg.matrix_rank(signs_of_theorem_2) > 1


@pytest.mark.parametrize("k", range(1, 7))
def test_the_indicator_needs_the_bias(k):
    assert indicator_error(k, bias=True) == pytest.approx(0, abs=1e-12)
    assert witness_error(k, bias=True) == pytest.approx(0, abs=1e-12)
    if k > 1:  # at a match 1 instead of 1/k
        assert indicator_error(k, bias=False) == pytest.approx(1 - 1 / k)
        assert witness_error(k, bias=False) > 0.5


@pytest.mark.parametrize("k", [3, 5])
def test_without_a_bias_no_weights_represent_an_odd_product(k):
    """relu(t) = t/2 + |t|/2: the odd part of h is linear, so E[h f] = 0 and the loss is >= 1."""
    rng, inputs = np.random.default_rng(k), all_inputs(7)
    f = parity(inputs, k)
    for scale in (0.01, 1.0, 100.0):
        u, w = rng.standard_normal((8 - k, 20)), scale * rng.standard_normal((20, k))
        h = convolutional(inputs, w, u)
        assert (h * f).mean() == pytest.approx(0, abs=1e-10 * max(1, scale))
        assert hinge(h, f) >= 1 - 1e-10
        wide = scale * rng.standard_normal((20, 7))
        assert hinge(fully_connected(inputs, wide, u[0]), f) >= 1 - 1e-10


def test_counted_kinds_of_neurons_equal_the_whole_network():
    """Three steps with counted kinds equal three steps of autograd with every neuron."""
    run = Descent(n=6, k=3, q=40, learning_rate=0.3, steps=3)
    small = initial_predictor("convolutional", run, np.random.default_rng(0))
    kinds = np.repeat(np.arange(8), small.counts)
    inputs = all_inputs(run.n)
    x, f = torch.from_numpy(inputs).unfold(1, 3, 1), torch.from_numpy(parity(inputs, 3))
    w = torch.from_numpy(small.w[kinds]).requires_grad_()
    u = torch.zeros(4, 40, dtype=torch.float64, requires_grad=True)
    for _ in range(3):
        h = torch.einsum("njq,jq->n", torch.relu(x @ w.T + fixed_bias(3)), u)
        loss = (1 - h * f).clamp(min=0).mean()
        by_w, by_u = torch.autograd.grad(loss, (w, u))
        assert small.step(inputs, f.numpy(), run.learning_rate) == pytest.approx(loss.item())
        w = (w - run.learning_rate * by_w).detach().requires_grad_()
        u = (u - run.learning_rate * by_u).detach().requires_grad_()
    assert small.w[kinds] == pytest.approx(w.detach().numpy())
    assert pytest.approx(u.detach().numpy()) == small.u[kinds].T


def test_fully_connected_steps_follow_autograd():
    rng, inputs = np.random.default_rng(0), all_inputs(5)
    w0, u0 = rng.standard_normal((6, 5)), rng.standard_normal(6)
    layer, f = FullyConnected(w0, u0, -0.3), parity(inputs, 2)
    layer.step(inputs, f, 0.1)
    w, u = (torch.from_numpy(a).requires_grad_() for a in (w0, u0))
    h = torch.relu(torch.from_numpy(inputs) @ w.T - 0.3) @ u
    loss = (1 - h * torch.from_numpy(f)).clamp(min=0).mean()
    by_w, by_u = torch.autograd.grad(loss, (w, u))
    assert layer.w == pytest.approx((w - 0.1 * by_w).detach().numpy(), abs=1e-6)
    assert layer.u == pytest.approx((u - 0.1 * by_u).detach().numpy(), abs=1e-6)


@pytest.mark.parametrize("n", [8, 12])
def test_the_convolutional_layer_learns_and_the_odd_printed_one_does_not(n):
    last = {}
    for layer in LAYERS:
        losses = descend(layer, usual_run(n, 3, lemma2_width(3, 0.1)), seed=0).losses
        last[layer] = losses[-20:].mean()
        assert losses[0] == 1  # u = 0
    assert last["convolutional"] == 0
    assert last["convolutional, as printed"] > 0.95
    assert 0.5 < last["fully connected"] < 1.02


def test_even_products_are_learnt_without_a_bias_too():
    run = usual_run(8, 4, lemma2_width(4, 0.1), steps=300)
    assert descend("convolutional, as printed", run, seed=0).losses[-1] == 0


def test_a_larger_step_lets_the_fully_connected_layer_learn():
    """Theorem 1 bounds the first gradient; it does not imply that the layer never learns."""
    run = usual_run(8, 2, lemma2_width(2, 0.1), faster=16)
    assert descend("fully connected", run, seed=0).losses[-1] < 0.05


def test_the_right_hand_side_of_theorem_2():
    run = Descent(n=8, k=2, q=128, learning_rate=0.01, steps=10)
    terms = 0.1**2 * 8 * 2**2.5 * 8 + 4 * 32 / (128 * 0.1) + 0.01 * 8 * 128 * 2
    assert theorem2_bound(run) == pytest.approx(terms)
    width = theorem2_width(8, 2)

    def least(q):
        ways = np.logspace(-4, 0, 4000)
        return min(theorem2_bound(Descent(8, 2, q, way / 1e15, 10**15)) for way in ways)

    assert least(width * 101 // 100) < 1 < least(width * 99 // 100)
    assert width > 50 * lemma2_width(2, 0.1)  # the bound is above 1 at the width of Lemma 2


def test_the_loss_of_a_covered_run_is_below_the_bound_of_theorem_2():
    run = covered_run(8, 2)
    assert theorem2_bound(run) == pytest.approx(0.9, abs=1e-6)
    shorter = replace(run, steps=4000)
    assert descend("convolutional", shorter, seed=0).losses.mean() < 0.3


def test_the_event_of_lemma_2_is_as_frequent_as_promised():
    for k, delta in ((2, 0.5), (3, 0.1), (5, 0.1)):
        found = measure_separability(k, delta, draws=1000)
        assert found.q == lemma2_width(k, delta)
        assert found.low > found.promised
        assert found.largest_norm <= found.norm_bound
        assert chernoff(k, found.q) <= delta
    assert lemma2_width(2, 0.1) == 119
    thin = measure_separability(2, 0.999, draws=1000)  # few neurons: sometimes one is missing
    assert 0 < thin.frequency < 1


def test_wilson_intervals_of_0_and_1_have_a_width():
    assert wilson(100, 100)[0] == pytest.approx(0.963, abs=1e-3)
    assert wilson(0, 100) == pytest.approx((0.0, 0.037), abs=1e-3)


def test_without_a_bias_only_patterns_with_a_linear_odd_part_are_represented():
    """All 16 patterns of two bits, with the norm that Lemma 2 promises; not all of three bits."""
    for k, representable in ((2, True), (3, False)):
        z = all_inputs(k)
        features = np.maximum(z @ z.T / k, 0)
        errors = []
        for values in all_inputs(2**k):  # every g
            shares = np.linalg.lstsq(features, values, rcond=None)[0]  # u_i times |Omega_z|
            errors.append(np.abs(features @ shares - values).max())
            # |Omega_z| >= q / 2^(k+1), so ||u||^2 <= 2^(k+1) |shares|^2 / q
            assert 2 ** (k + 1) * (shares**2).sum() <= (2 ** (k + 1) * k) ** 2 or not representable
        assert (max(errors) < 1e-9) == representable
