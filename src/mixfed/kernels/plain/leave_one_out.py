"""How well clients' rows are predicted from their own other rows.

With Z = X R, Psi = R R^T and M = s^2 I + Z^T Z, V^-1 = (I - Z M^-1 Z^T) / s^2. Row t of a client, given its other rows,
has under kind j the mean y_t - e_t and the variance v_t, where v_t = 1 / [V^-1]_tt and e_t = v_t [V^-1 r]_t. Without
the row the client's membership is that with it divided by the density of e_t. So nothing has to be left out in earnest.

Shapes: n rows, m clients, C candidates, k kinds, L = C k models, w features, a columns of R.
"""

import numpy as np

from ...core.arrays import Floats, Ints
from .memberships import softmax
from .random_effects import inverse_root
from .rows import alike

LEAST = 1e-12
"""Least share of a row's variance that its own client's other rows leave."""


def leave_one_out(
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
    (count, k), (total, width, axes) = log_weight.shape, roots.shape
    squares, rows = np.zeros((count, 2)), np.zeros(2)
    for places, those in alike(offsets, max(total * axes, width) * axes):
        n = those.shape[1]
        if n < 2:
            continue
        own, target = x[those], y[those]
        residual = target - np.moveaxis(own @ theta, 2, 0)
        miss, logs = (
            part.reshape(count, k, len(places), n) for part in _left_out(own @ roots[:, None], residual, log_variance)
        )
        share, _ = softmax(logs + log_weight[:, :, None, None], axis=1)
        error = ((share * miss).sum(axis=1) ** 2).sum(axis=(1, 2))
        which = slice(0, 2 if n <= small else 1)
        squares[:, which] += error[:, None]
        rows[which] += those.size
    return squares, rows


def _left_out(z: Floats, residual: Floats, log_variance: Floats) -> tuple[Floats, Floats]:
    """Give how far rows are from what others say, and the log density of these. z (L, c, n, a), residual (L, c, n)."""
    *_, n, axes = z.shape
    log_v = log_variance.reshape(-1, 1)
    variance, across = np.exp(log_v), z.swapaxes(2, 3)
    inverse, log_det = inverse_root(across @ z + variance[:, :, None, None] * np.eye(axes), variance)
    half = inverse @ across
    pull = (half @ residual[..., None])[..., 0]
    density = (
        log_det
        + (n - axes) * log_v
        + n * np.log(2.0 * np.pi)
        + ((residual**2).sum(axis=2) - (pull**2).sum(axis=2)) / variance
    )
    weight = np.maximum(1.0 - (half**2).sum(axis=2), LEAST)
    miss = (residual - (pull[:, :, None] @ half)[:, :, 0]) / weight
    v = variance[:, :, None]
    alone = np.log(2.0 * np.pi * v / weight) + miss**2 * weight / v
    return miss, -0.5 * (density[..., None] - alone)
