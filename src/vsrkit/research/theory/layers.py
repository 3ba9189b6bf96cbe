"""The two predictors of the theorems, built from attention as the paper writes it.

    features = W_o (W_v X) softmax((W_k X)^T (W_q X))        X: a column for each token

The proofs need the softmax to be 1. It is if the whole input is one token, for then it is taken
over one number; the features are then W_o W_v x, and queries and keys have no say.
"""

import numpy as np

from vsrkit.research.theory.patterns import Floats


def attention(
    tokens: Floats, *, to_q: Floats, to_k: Floats, to_v: Floats, to_out: Floats
) -> Floats:
    """W_o (W_v X) softmax((W_k X)^T (W_q X)), softmax over columns: (d, N) -> (d_out, N)."""
    similarity = (to_k @ tokens).T @ (to_q @ tokens)
    weights = np.exp(similarity - similarity.max(axis=0))
    return to_out @ (to_v @ tokens) @ (weights / weights.sum(axis=0))


def fully_connected(inputs: Floats, w: Floats, u: Floats, bias: Floats | float = 0.0) -> Floats:
    """h(x) = sum_i u_i relu(<w_i, x> + b_i): one token that holds all bits.

    inputs: (N, n); w = W_o W_v: (q, n); u: (q,). -> (N,)
    """
    return np.maximum(inputs @ w.T + bias, 0) @ u


def convolutional(inputs: Floats, w: Floats, u: Floats, bias: Floats | float = 0.0) -> Floats:
    """h(x) = sum_j <u_j, relu(W x_[j : j+k] + b)>: the same W at every stretch of k bits.

    inputs: (N, n); w: (q, k); u: (n-k+1, q), one layer for each place. -> (N,)
    """
    views = np.lib.stride_tricks.sliding_window_view(inputs, w.shape[1], axis=1)
    return np.einsum("njq,jq->n", np.maximum(views @ w.T + bias, 0), u)


def hinge(outputs: Floats, wanted: Floats) -> float:
    """Mean of max(1 - h(x) f(x), 0)."""
    return float(np.maximum(1 - outputs * wanted, 0).mean())
