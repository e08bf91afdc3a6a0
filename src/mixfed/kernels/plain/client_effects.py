"""What clients deviate by, found where their rows are: with the final model, from each client's own rows.

With Psi_j = F_j F_j^T a client of kind j has the model theta_j + F_j c, c ~ N(0, I). Given its rows, with Z = X F_j,

    c ~ N(m, S),  m = Z^T V^-1 r,  S = I - Z^T V^-1 Z,  V = s_j^2 I + Z Z^T,

and a row x of it is predicted by x theta_j + x F_j m with the variance s_j^2 + x F_j S F_j^T x. In these coordinates
nothing is lost by columns that are far from 0. A client that is not known has m = 0 and S = I.

Shapes: n rows, m clients, k kinds, D columns with the intercept, r columns of F.
"""

import numpy as np

from ...core.arrays import Floats, Ints
from ...core.symmetric import packed
from .memberships import softmax
from .random_effects import reduced, solve
from .rows import alike


def client_effects(
    x: Floats,
    y: Floats,
    offsets: Ints,
    theta: Floats,
    factor: Floats,
    variance: Floats,
    log_weight: Floats,
    uncertainty: bool,
) -> tuple[Floats, Floats, Floats]:
    """Give clients' memberships (m, k), means (m, k, r) and packed covariances (m, k, t), t = 0 if none are wanted.

    x (n, D), y (n,), theta (k, D), factor (k, D, r).
    """
    clients, (k, _, width) = len(offsets) - 1, factor.shape
    logs, mean = np.empty((clients, k)), np.empty((clients, k, width))
    covariance = np.empty((clients, k, width * (width + 1) // 2 if uncertainty else 0))
    z, residual = x @ factor, y - theta @ x.T  # (k, n, r), (k, n)
    for places, rows in alike(offsets, 4 * k * width * width):
        own, left, rest = reduced(z[:, rows], residual[:, rows])
        size = np.full(len(places), rows.shape[1])
        one = solve(own, left, rest, size, np.ones((k, 1, width)), False, variance)
        logs[places] = (log_weight[:, None] + one.log_density).T
        mean[places] = np.moveaxis((one.error[:, :, None] @ one.x)[:, :, 0], 0, 1)
        if uncertainty:
            covariance[places] = np.moveaxis(packed(np.eye(width) - one.x.swapaxes(2, 3) @ one.x), 0, 1)
    return softmax(logs)[0], mean, covariance
