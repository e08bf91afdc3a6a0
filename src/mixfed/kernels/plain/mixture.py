"""What one block of clients says about candidates for the maximum of the likelihood (`exchange.mixture`).

With x the shifted and scaled columns, r_j the residual of model j and lambda_ij the memberships, the sums are

    log likelihood,  lambda,  n_i lambda,  lambda r^2,  lambda lambda^T,  lambda x r,  lambda x x^T,

and, for informed candidates, what memberships that are not known take from the information (Louis): the covariance over
the kinds of a client's complete scores s_j = (x^T r_j / v_j, r_j^T r_j / 2 v_j - n_i / 2, 1), v_j the variance.

Shapes: n rows, m clients, C candidates, k kinds, L = C k models, D columns with the intercept.
"""

from itertools import combinations_with_replacement

import numpy as np

from ...core.arrays import Array, Floats, Ints
from ...core.symmetric import packed
from ...families.base import SQUARED
from .memberships import hardest, losses, softmax
from .rows import by_client, scaled

NEGLIGIBLE, NEGLIGIBLE_SINGLE = 1e-10, 1e-8
"""Memberships below this do not count in the normal equations, which are the curvature; the scores have them all. With
rows in single precision their products are not better known than by the second."""
WAVERING = 1e-5
"""A client with lambda_j (1 - lambda_j) below this misses no information about kind j worth the name."""


def mixture_sums(
    phi: Array,
    y: Floats,
    offsets: Ints,
    centre: Array,
    inverse_sd: Array,
    target_centre: float,
    target_unit: float,
    models: Array,
    log_variance: Floats,
    log_weight: Floats,
    hard: bool,
    curvature: bool,
    informed: Ints,
    before: Floats,
) -> tuple[Floats, Floats, Floats]:
    """Find memberships under every candidate, and sum what they weigh. models (D, L), log_variance (C, k).

    If memberships ``before`` (m, L) are given, second moments are summed as differences from those with them; else
    ``before`` is (0, L). Gives all sums of a candidate in a row, as `MixtureNumbers` names them, (C, .); for each
    ``informed`` candidate the covariance of scores by pairs of kinds, (i, k (k + 1) / 2, D + 2, D + 2); and
    memberships, (m, L).
    """
    (count, k), sizes = log_weight.shape, np.diff(offsets)
    x, target = scaled(phi, centre, inverse_sd), (y - target_centre) / target_unit
    predicted = x @ models
    loss = losses(SQUARED.code, target, predicted, offsets)
    share, likelihood = posterior(loss.reshape(-1, count, k), sizes, log_variance, log_weight, hard)
    membership = share.reshape(len(sizes), count * k)
    residual = target[:, None] - predicted
    score = (np.repeat(membership, sizes, axis=0) * residual).T @ x
    parts = [score]
    if curvature:
        negligible = NEGLIGIBLE if phi.dtype == np.float64 else NEGLIGIBLE_SINGLE
        moved = membership - before if len(before) else membership
        parts.append(np.stack([_second_moments(x, sizes, own, negligible) for own in moved.T]))
    numbers = in_rows(likelihood.sum(axis=0), membership, loss, sizes, *parts)
    missing = np.empty((len(informed), k * (k + 1) // 2, len(models) + 2, len(models) + 2))
    for i, c in enumerate(informed):
        own, precision = slice(c * k, (c + 1) * k), np.exp(-log_variance[c])
        scores = [by_client(residual[:, [j]] * x, offsets) for j in range(c * k, (c + 1) * k)]
        missing[i] = missing_information(np.stack(scores), loss[:, own], sizes, precision, share[:, c])
    return numbers, missing, membership


def in_rows(likelihood: Floats, membership: Floats, loss: Floats, sizes: Array, *sums: Floats) -> Floats:
    """Put the sums of each candidate in a row, as `MixtureNumbers` names them, (C, .).

    likelihood (C,), membership (m, L), loss, half the squared residuals, (m, L), sizes (m,), other sums (L, .).
    """
    count = len(likelihood)
    share = np.ascontiguousarray(membership.reshape(len(sizes), count, -1).swapaxes(0, 1))
    parts = (
        *(
            likelihood,
            np.ones(len(sizes)) @ membership,
            sizes @ membership,
            2.0 * np.einsum("ml,ml->l", membership, loss),
        ),
        *(share.swapaxes(1, 2) @ share, *sums),
    )
    return np.concatenate([part.reshape(count, -1) for part in parts], axis=1)


def posterior(loss: Floats, rows: Array, log_variance: Floats, log_weight: Floats, hard: bool) -> tuple[Floats, Floats]:
    """Turn losses, half the squared residuals (m, C, k), into memberships (m, C, k) and log likelihoods (m, C).

    ``rows`` (m,) are the clients' numbers of rows. Hard labels are those of the largest posterior.
    """
    spread = 0.5 * (np.log(2.0 * np.pi) + log_variance)
    logs = log_weight - rows[:, None, None] * spread - loss * np.exp(-log_variance)
    return hardest(logs) if hard else softmax(logs)


def _second_moments(x: Floats, sizes: Ints, weight: Floats, negligible: float) -> Floats:
    """Sum weight x x^T over the clients whose weight (m,) counts. -> packed (D (D + 1) / 2,)."""
    counts = np.repeat(np.abs(weight) > negligible, sizes)
    some = x[counts]
    return packed((some * np.repeat(weight, sizes)[counts, None]).T @ some)


def missing_information(score: Floats, loss: Floats, sizes: Array, precision: Floats, share: Floats) -> Floats:
    """Sum the covariances of clients' scores over the kinds, by pairs. score: x^T r (k, m, D), loss, share (m, k)."""
    k, clients, width = score.shape
    whole = np.empty((k, clients, width + 2))
    whole[:, :, :width] = precision[:, None, None] * score
    whole[:, :, width] = (loss * precision - 0.5 * sizes[:, None]).T
    whole[:, :, width + 1] = 1.0
    whole *= (share * (1.0 - share) > WAVERING).T[:, :, None]
    pairs = []
    for j, other in combinations_with_replacement(range(k), 2):
        weight = share[:, j] * ((1.0 - share[:, j]) if j == other else -share[:, other])
        pairs.append((whole[j] * weight[:, None]).T @ whole[other])
    return np.stack(pairs)
