"""What clients deviate by, found where their rows are: with the final model, from each client's own rows.

With Psi_j = F_j F_j^T a client of kind j has the model theta_j + F_j c, c ~ N(0, I). Given its rows, with Z = X F_j,

    c ~ N(m, S),  m = Z^T V^-1 r,  S = I - Z^T V^-1 Z,  V = s_j^2 I + Z Z^T,

and a row x of it is predicted by x theta_j + x F_j m with the variance s_j^2 + x F_j S F_j^T x. In these coordinates
nothing is lost by columns that are far from 0. A client that is not known has m = 0 and S = I.

Shapes: n rows, m clients, k kinds, D columns with the intercept, r columns of F.
"""

import numpy as np

from ...core.arrays import Floats, Ints
from ...core.compile import compiled
from .small_matrices import factorise, householder_reduce, solve_lower


@compiled
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
                rest = householder_reduce(own, left)
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
