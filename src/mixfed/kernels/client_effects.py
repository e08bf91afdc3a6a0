"""What clients deviate by, found where their rows are: with the final model, from each client's own rows.

With Psi_j = F_j F_j^T a client of kind j has the model theta_j + F_j c, c ~ N(0, I). Given its rows, with Z = X F_j,

    c ~ N(m, S),  m = Z^T V^-1 r,  S = I - Z^T V^-1 Z,  V = s_j^2 I + Z Z^T,

and a row x of it is predicted by x theta_j + x F_j m with the variance s_j^2 + x F_j S F_j^T x. In these coordinates
nothing is lost by columns that are far from 0. A client that is not known has m = 0 and S = I.

Shapes: n rows, m clients, k kinds, D columns with the intercept, r columns of F.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from ..clients.blocks import over_blocks
from ..clients.packed import Clients
from ..clients.store import Held
from ..core.arrays import Array, Floats, Ints
from ..core.compile import compiled
from ..core.symmetric import unpacked
from ..core.threads import one_blas_thread
from ..exchange.local_update import Mixture
from .small_matrices import factorise, reflect, solve_lower

MOST_KEPT = 300
"""Numbers of posterior covariances that are kept for a client, at most, unless they are asked for."""
_HALVINGS = 60
_AT_ONCE = 200_000
"""Rows whose deviations are looked at together."""


def own_effects(mixture: Mixture, factor: Floats, clients: Held, uncertainty: bool) -> tuple[Floats, Floats, Floats]:
    """Give every client's memberships (c, k), means (c, k, r) and packed covariances (c, k, r (r + 1) / 2) of its c.

    factor (k, D, r). Without ``uncertainty`` there are no covariances, (c, k, 0).
    """
    unit = mixture.noise.max()  # in units of the noise: squares of a target in units of its own may overflow
    with np.errstate(divide="ignore"):
        log_weight = np.log(mixture.weights)
    theta, factor = np.ascontiguousarray(mixture.theta / unit), np.ascontiguousarray(factor / unit)
    variance = (mixture.noise / unit) ** 2

    def one(block: Clients) -> tuple[Floats, Floats, Floats]:
        design = np.ascontiguousarray(block.design, dtype=np.float64)
        return _effects(design, block.y / unit, block.offsets, theta, factor, variance, log_weight, uncertainty)

    with one_blas_thread():
        parts = list(over_blocks(one, clients))
    share, mean, covariance = (np.concatenate(part) for part in zip(*parts, strict=True))
    return share, mean, covariance


def predicted(
    phi: Array, owner: Ints, mixture: Mixture, factor: Floats, mean: Floats, covariance: Floats | None
) -> tuple[Floats, Floats]:
    """Predict rows under each kind. phi (n, D), owner (n,), mean (c, k, r) -> means and standard deviations, (n, k).

    covariance (c, k, r (r + 1) / 2), packed; None if deviations are not wanted, which are then those of the noise.
    """
    means: Floats = phi @ mixture.theta.T
    deviations = np.tile(mixture.noise, (len(phi), 1))
    unit = mixture.noise.max() or 1.0  # squares of a target in units of its own may overflow
    width = factor.shape[2]
    for j, own in enumerate(factor):
        for begin in range(0, len(phi), _AT_ONCE):
            part = slice(begin, begin + _AT_ONCE)
            z = phi[part] @ own
            means[part, j] += np.einsum("nr,nr->n", z, mean[owner[part], j])
            if covariance is not None:
                spread = unpacked(covariance[owner[part], j], width)
                own_square = np.einsum("nr,nrs,ns->n", z / unit, spread, z / unit)
                deviations[part, j] = np.hypot(deviations[part, j], unit * np.sqrt(np.maximum(own_square, 0.0)))
    return means, deviations


def mixture_quantile(share: Floats, means: Floats, deviations: Floats, level: float) -> Floats:
    """Give the quantile of mixtures of k normal distributions, by bisection. share, means, deviations (n, k) -> (n,).

    Ten standard deviations are as far as it looks.
    """
    low, high = (means - 10.0 * deviations).min(axis=1), (means + 10.0 * deviations).max(axis=1)
    safe = np.maximum(deviations, 1e-300)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        below = np.einsum("nk,nk->n", share, ndtr((middle[:, None] - means) / safe)) < level
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray(0.5 * (low + high))


@compiled
def _effects(
    x: Floats,
    y: Floats,
    offsets: Ints,
    theta: Floats,
    factor: Floats,
    variance: Floats,
    log_weight: Floats,
    uncertainty: bool,
) -> tuple[Floats, Floats, Floats]:
    """Do the work of `own_effects` for a block of clients. x (n, D), y (n,), theta (k, D), factor (k, D, r)."""
    n_clients, (k, _, width) = len(offsets) - 1, factor.shape
    t = width * (width + 1) // 2
    share, mean = np.empty((n_clients, k)), np.zeros((n_clients, k, width))
    covariance = np.zeros((n_clients, k, t if uncertainty else 0))
    longest = 1
    for i in range(n_clients):
        longest = max(longest, offsets[i + 1] - offsets[i])
    most = min(longest, width)
    root, solved, error = np.zeros((most, most)), np.empty((most, width)), np.empty(most)
    for j in range(k):
        z = np.dot(x, factor[j])
        residual = y - np.dot(x, theta[j])
        for i in range(n_clients):
            own, left = z[offsets[i] : offsets[i + 1]], residual[offsets[i] : offsets[i + 1]]
            n = len(own)
            rest, extra = 0.0, 0
            if n > width:
                rest = reflect(own, left)
                n, extra = width, n - width
            for row in range(n):
                error[row] = left[row]
            value = factorise(own[:n], own[:n], variance[j], root, error)
            value += rest / variance[j] + extra * np.log(variance[j]) + (n + extra) * np.log(2.0 * np.pi)
            solve_lower(root, n, own[:n], 1.0, solved)
            for row in range(n):
                for a in range(width):
                    mean[i, j, a] += solved[row, a] * error[row]
            share[i, j] = log_weight[j] - 0.5 * value
            if not uncertainty:
                continue
            place = 0
            for a in range(width):
                for b in range(a + 1):
                    total = 1.0 if a == b else 0.0
                    for row in range(n):
                        total -= solved[row, a] * solved[row, b]
                    covariance[i, j, place + b] = total
                place += a + 1
    for i in range(n_clients):
        top, whole = share[i].max(), 0.0
        for j in range(k):
            share[i, j] = np.exp(share[i, j] - top)
            whole += share[i, j]
        for j in range(k):
            share[i, j] /= whole
    return share, mean, covariance
