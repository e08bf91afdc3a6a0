"""Compiled mathematics: how well clients' rows are predicted from their own other rows.

With Z = X R, Psi = R R^T and M = s^2 I + Z^T Z, V^-1 = (I - Z M^-1 Z^T) / s^2. Row t of a client, given its other rows,
has under kind j the mean y_t - e_t and the variance v_t, where v_t = 1 / [V^-1]_tt and e_t = v_t [V^-1 r]_t; and
without the row the client's membership is that with it divided by the density of e_t. So nothing has to be left out
in earnest.

Shapes: n rows, m clients, C candidates, k kinds, L = C k models, w features, a columns of R.
"""

from __future__ import annotations

import numpy as np

from ..core.arrays import Floats, Ints
from ..core.compile import compiled

_LEAST = 1e-12
"""Least share of a row's variance that its own client's other rows leave."""


@compiled
def leave_out(
    x: Floats,
    y: Floats,
    offsets: Ints,
    theta: Floats,
    roots: Floats,
    log_variance: Floats,
    log_weight: Floats,
    small: int,
) -> tuple[Floats, Floats]:
    """Sum squared errors of rows that are predicted from the others of their client, if it has any.

    x (n, w), y (n,), theta (w, L), roots (L, w, a). -> (C, 2) sums and (2,) rows: of all, and of clients with at most
    ``small`` rows.
    """
    n_clients, (total, _, width) = len(offsets) - 1, roots.shape
    count, k = log_weight.shape
    squares, rows = np.zeros((count, 2)), np.zeros(2)
    log_v, prior = log_variance.ravel(), log_weight.ravel()
    variance = np.exp(log_v)
    for i in range(n_clients):
        n = offsets[i + 1] - offsets[i]
        if n < 2:
            continue
        own, target = x[offsets[i] : offsets[i + 1]], y[offsets[i] : offsets[i + 1]]
        residual = np.dot(own, theta)
        means, logs = np.empty((total, n)), np.empty((total, n))
        for j in range(total):
            z = np.dot(own, roots[j])
            inner = np.dot(z.T, z)
            for a in range(width):
                inner[a, a] += variance[j]
            root = np.linalg.cholesky(inner)
            # K^-1 z of each row, in columns.
            half = np.linalg.solve(root, z.T.copy())
            error = target - residual[:, j]
            pull = np.dot(half, error)
            density = (
                (n - width) * log_v[j]
                + n * np.log(2.0 * np.pi)
                + (np.dot(error, error) - np.dot(pull, pull)) / variance[j]
            )
            for a in range(width):
                density += 2.0 * np.log(root[a, a])
            for row in range(n):
                weight, lean = 1.0, error[row]
                for a in range(width):
                    weight -= half[a, row] * half[a, row]
                    lean -= half[a, row] * pull[a]
                weight = max(weight, _LEAST)
                miss = lean / weight
                means[j, row] = target[row] - miss
                alone = np.log(2.0 * np.pi * variance[j] / weight) + miss * miss * weight / variance[j]
                logs[j, row] = prior[j] - 0.5 * (density - alone)
        places = 2 if n <= small else 1
        for place in range(places):
            rows[place] += n
        for c in range(count):
            for row in range(n):
                top, whole, mean = logs[c * k : (c + 1) * k, row].max(), 0.0, 0.0
                for j in range(c * k, (c + 1) * k):
                    share = np.exp(logs[j, row] - top)
                    whole += share
                    mean += share * means[j, row]
                miss = target[row] - mean / whole
                for place in range(places):
                    squares[c, place] += miss * miss
    return squares, rows
