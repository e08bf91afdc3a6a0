"""Memberships: how likely a client is of each kind, given its rows.

lambda_ij = w_j p_ij / sum_l w_l p_il,   log p_ij = - n_i log s_j - loss_ij / s_j^2 + constant.
"""

import numpy as np

from ...core.arrays import Array, Floats, Ints
from ...families.base import value
from .rows import by_client


def softmax(logs: Floats, axis: int = -1) -> tuple[Floats, Floats]:
    """Turn logarithms, in place, into shares that add to one along an axis; give the logarithms of their sums, too."""
    top = logs.max(axis=axis, keepdims=True)
    logs -= top
    shares = np.exp(logs, out=logs)
    whole = shares.sum(axis=axis, keepdims=True)
    shares /= whole
    return shares, np.squeeze(top + np.log(whole), axis)


def hardest(logs: Floats) -> tuple[Floats, Floats]:
    """Put all of the share where a logarithm (..., k) is largest, the first of equals; give the largest, too."""
    best = logs.argmax(axis=-1)
    return np.eye(logs.shape[-1])[best], logs.max(axis=-1)


def losses(code: int, y: Floats, predicted: Floats, offsets: Ints) -> Floats:
    """Give the loss of each client under each model. y (n,), predicted (n, L) -> (m, L)."""
    with np.errstate(over="ignore"):  # a model may be as far away as numbers go
        return by_client(value(code, y[:, None], predicted), offsets)


def memberships(
    phi: Array, y: Floats, offsets: Ints, theta: Floats, log_weights: Floats, noise: Floats, hard: bool, code: int
) -> tuple[Floats, Floats, Floats]:
    """Give the clients' memberships (m, k), log likelihoods (m,) and losses (m, k). theta (d, k).

    Hard labels are those of least loss, as in the paper.
    """
    loss = losses(code, y, phi @ theta, offsets)
    logs = log_weights - np.diff(offsets)[:, None] * np.log(noise) - loss / noise**2
    if hard:
        return hardest(-loss)[0], logs.max(axis=1), loss
    return *softmax(logs), loss
