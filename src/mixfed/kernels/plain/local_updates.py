"""Phase 2 of the paper at one block of clients: memberships, then local steps of each client's copies of the models.

A client with rows X (n, d), targets y (n,) and membership lambda in a kind moves its copy of the kind's model theta by
s steps against the gradient of its loss (FedAvg), or to the minimum of the loss with a proximal term (FedProx). With
rate = eta lambda / n,

    FedAvg:   theta <- theta - rate X^T (X theta - y), s times;
    FedProx:  theta <- theta + (X^T X + I / rate)^-1 X^T (y - X theta).

What it sends is its shift, new theta - old theta. Everything is in double precision: beside the products of columns far
from zero, such as years, single precision would lose I / rate, and with it most digits.

Shapes: n rows, m clients, k kinds, d features.
"""

import numpy as np

from ...core.arrays import Array, Floats, Ints
from ...families.base import slope
from .memberships import memberships
from .rows import alike, by_client

FEDAVG, FEDPROX = 0, 1
NEGLIGIBLE = 1e-17
"""Memberships below this move no model by more than rounding does."""


def local_updates(
    phi: Array,
    y: Floats,
    offsets: Ints,
    theta: Array,
    log_weights: Floats,
    noise: Floats,
    hard: bool,
    code: int,
    update: int,
    step: float,
    local_steps: int,
) -> tuple[Floats, Floats, Floats, Floats, float]:
    """Estimate memberships and move local models. theta (d, k).

    Gives the sums over clients of n_i times the shift (k, d), n_i times the membership (k,), memberships (k,),
    membership times loss (k,), and log likelihood. ``local_steps=0`` leaves the models where they are.
    """
    x, sizes = phi.astype(np.float64, copy=False), np.diff(offsets)
    share, likelihood, loss = memberships(x, y, offsets, theta, log_weights, noise, hard, code)
    shift = np.zeros(theta.T.shape)
    for j in range(len(shift) if local_steps else 0):
        rate, predicted = step * np.where(share[:, j] > NEGLIGIBLE, share[:, j], 0.0) / sizes, x @ theta[:, j]
        if update == FEDPROX:
            shift[j] = sizes @ proximal_step(x, y - predicted, offsets, rate)
        else:
            shift[j] = sizes @ gradient_steps(x, y, predicted, offsets, rate, local_steps, code)
    return shift, *totals(share, loss, sizes), float(likelihood.sum())


def totals(share: Floats, loss: Floats, sizes: Ints) -> tuple[Floats, Floats, Floats]:
    """Sum n_i times the membership, memberships, and membership times loss. share, loss (m, k), sizes (m,)."""
    weighed = share * np.where(share == 0.0, 0.0, loss)  # the loss under a kind that is not one's may be infinite
    return sizes @ share, share.sum(axis=0), weighed.sum(axis=0)


def gradient_steps(
    x: Floats, y: Floats, predicted: Floats, offsets: Ints, rate: Floats, steps: int, code: int
) -> Floats:
    """FedAvg: take local steps from the server's model, whose predictions are given (n,). rate (m,) -> shift (m, d)."""
    owner, shift = np.repeat(np.arange(len(rate)), np.diff(offsets)), np.zeros((len(rate), x.shape[1]))
    for _ in range(steps):
        now = predicted + np.einsum("nd,nd->n", x, shift[owner])
        gradient = -by_client(slope(code, y, now)[:, None] * x, offsets)
        shift = shift - rate[:, None] * gradient
    return shift


def proximal_step(x: Floats, residual: Floats, offsets: Ints, rate: Floats) -> Floats:
    """FedProx: solve (X^T X + I / rate) shift = X^T residual, by the smaller of X^T X, X X^T. rate (m,) -> (m, d)."""
    dim = x.shape[1]
    shift = np.zeros((len(rate), dim))
    for places, rows in alike(offsets, dim * dim):
        own, some = rate[places], rows[rate[places] > 0]
        penalty = (1.0 / own[own > 0])[:, None, None]
        across, left = x[some], residual[some][:, :, None]
        down = across.swapaxes(1, 2)
        if rows.shape[1] <= dim:
            moved = down @ np.linalg.solve(across @ down + penalty * np.eye(rows.shape[1]), left)
        else:
            moved = np.linalg.solve(down @ across + penalty * np.eye(dim), down @ left)
        shift[places[own > 0]] = moved[:, :, 0]
    return shift
