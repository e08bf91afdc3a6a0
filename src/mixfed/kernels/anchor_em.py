"""Compiled EM on the anchors' statistics: many candidates at once, without leaving compiled code between steps.

Shapes: a anchors, r columns of the basis, C candidates, k kinds, L = C k models, those of a kind one behind another.
"""

from __future__ import annotations

import numpy as np

from ..core.arrays import Floats, Ints
from ..core.compile import compiled
from .gaussian import exponentials
from .small_matrices import solve_ridge


@compiled
def features(theta: Floats, out: Floats) -> None:
    """Write |y - z theta|^2 as a product with an anchor's row of statistics. theta (L, r) -> out (columns, L).

    A row has the number of rows, the sum of squares, the cross products (r) and the packed second moments.
    """
    total, width = theta.shape
    for j in range(total):
        out[0, j] = 0.0
        out[1, j] = 1.0
        place = 2 + width
        for a in range(width):
            out[2 + a, j] = -2.0 * theta[j, a]
            for b in range(a + 1):
                out[place, j] = theta[j, a] * theta[j, b] * (1.0 if a == b else 2.0)
                place += 1


@compiled
def drawn(upto: Floats, chance: Floats) -> Ints:
    """Draw places by their sums of weights up to each of them (a, S). chance (S, t): uniform numbers -> (S, t)."""
    count, starts = upto.shape
    places = np.zeros(chance.shape, np.int64)
    for i in range(count - 1):
        for s in range(starts):
            for t in range(chance.shape[1]):
                places[s, t] += upto[i, s] <= chance[s, t] * upto[count - 1, s]
    return places


@compiled
def _memberships(
    losses: Floats, rows: Floats, log_variance: Floats, log_weight: Floats, membership: Floats, likelihood: Floats
) -> None:
    """Turn squared residuals (a, k, C) into memberships (a, k, C) and log likelihoods (a, C).

    As `posterior.posterior` does, but kind by kind: here candidates are many, and the compiler takes several at once.
    """
    anchors, k, count = losses.shape
    prior = np.ascontiguousarray(log_weight.T)
    half_spread = np.ascontiguousarray((0.5 * (np.log(2.0 * np.pi) + log_variance)).T)
    half_precision = np.ascontiguousarray((0.5 * np.exp(-log_variance)).T)
    likelihood[:] = -np.inf
    for i in range(anchors):
        for j in range(k):
            for c in range(count):
                squares = max(losses[i, j, c], 0.0)  # which rounding may have made negative
                density = prior[j, c] - rows[i] * half_spread[j, c] - squares * half_precision[j, c]
                membership[i, j, c] = density
                likelihood[i, c] = max(likelihood[i, c], density)
        for j in range(k):
            for c in range(count):
                membership[i, j, c] -= likelihood[i, c]
    exponentials(membership.ravel())
    whole = np.empty(count)
    for i in range(anchors):
        whole[:] = 0.0
        for j in range(k):
            for c in range(count):
                whole[c] += membership[i, j, c]
        for c in range(count):
            likelihood[i, c] += np.log(whole[c])
            whole[c] = 1.0 / whole[c]
        for j in range(k):
            for c in range(count):
                membership[i, j, c] *= whole[c]


@compiled
def climb(
    table: Floats,
    weighted: Floats,
    weight: Floats,
    theta: Floats,
    log_variance: Floats,
    log_weight: Floats,
    shared_noise: bool,
    prior_rows: float,
    prior_variance: float,
    ridge: float,
    smallest: float,
    steps: int,
    tolerance: float,
) -> Floats:
    """Take EM steps on all candidates at once, in place; stop early when none gains more than a tolerance above 0.

    table (a, columns): statistics; weighted: each times its weight (a,). theta (C, k, r), the others (C, k). Gives the
    candidates' values (C,) at the last step but one, penalised as in `mixtures`.
    """
    count, k, width = theta.shape
    anchors, total = len(table), count * k
    rows = np.ascontiguousarray(table[:, 0])
    models, form = np.empty((k, count, width)), np.empty((table.shape[1], total))
    losses, membership = np.empty((anchors, total)), np.empty((anchors, k, count))
    likelihood, share = np.empty((anchors, count)), np.empty((k, count))
    value, last = np.empty(count), np.full(count, -np.inf)
    gram = np.empty((width, width))
    for _ in range(steps):
        for c in range(count):
            for j in range(k):
                for a in range(width):
                    models[j, c, a] = theta[c, j, a]
        features(models.reshape(total, width), form)
        np.dot(table, form, losses)
        _memberships(losses.reshape(anchors, k, count), rows, log_variance, log_weight, membership, likelihood)
        # Anchor by anchor, not candidate by candidate: a sum along the inner loop is added in another order if arrays
        # happen to lie near each other, and the last digit would depend on that.
        value[:] = 0.0
        for i in range(anchors):
            for c in range(count):
                value[c] += weight[i] * likelihood[i, c]
        gain = -np.inf
        for c in range(count):
            for j in range(k):
                spread = log_variance[c, j]
                value[c] -= 0.5 * prior_rows * (prior_variance * np.exp(-spread) + spread)
            gain = max(gain, value[c] - last[c])
        if tolerance > 0 and gain < tolerance:
            break
        last, value = value, last
        sums = np.dot(membership.reshape(anchors, total).T, weighted)
        share[:] = 0.0
        for i in range(anchors):
            for j in range(k):
                for c in range(count):
                    share[j, c] += weight[i] * membership[i, j, c]
        for c in range(count):
            people, all_squares, all_rows = 0.0, 0.0, 0.0
            for j in range(k):
                row = sums[j * count + c]
                best = theta[c, j]
                place = 2 + width
                for a in range(width):
                    best[a] = row[2 + a]
                    for b in range(a + 1):
                        gram[a, b] = row[place]
                        place += 1
                solve_ridge(gram, ridge, best)
                squares = row[1]
                for a in range(width):
                    squares -= best[a] * (row[2 + a] + ridge * best[a])
                squares = max(squares, 0.0)
                log_variance[c, j] = np.log((squares + prior_rows * prior_variance) / (row[0] + prior_rows))
                all_squares += squares
                all_rows += row[0]
                log_weight[c, j] = share[j, c]
                people += share[j, c]
            whole = 0.0
            for j in range(k):
                log_weight[c, j] = max(log_weight[c, j] / people, smallest)
                whole += log_weight[c, j]
            for j in range(k):
                log_weight[c, j] = np.log(log_weight[c, j] / whole)
                if shared_noise:
                    log_variance[c, j] = np.log(
                        (all_squares / k + prior_rows * prior_variance) / (all_rows / k + prior_rows)
                    )
    return last
