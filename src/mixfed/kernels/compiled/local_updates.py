"""Local updates in compiled code: `plain.local_updates`, whose words are used here.

By Lemma 1 of the paper the shift of a client is, with r = y - X theta, that is X^T w,

    FedAvg:   w = rate sum_{l < s} (I - rate X X^T)^l r,
    FedProx:  w = (X X^T + I / rate)^-1 r.

So a client with few rows needs its features for X X^T and for X^T w only, and no local step looks at them again; with
another loss than the squared one, a step adds rate times the loss' slope at the predictions as X X^T w has moved them.

Shapes: n rows, c clients, k kinds, d features.
"""

import numpy as np

from ...core.arrays import Array, Floats, Ints
from ...core.compile import compiled, inlined
from ...families import base
from ..plain.local_updates import FEDPROX, NEGLIGIBLE, totals
from .small_matrices import solve_ridge
from .tiles import most_rows, tile_losses, tiles

slope = compiled(base.slope)

_DEEP = 2
"""FedAvg looks at X X^T if a client has at most so many rows for each local step; else steps themselves are cheaper."""


@compiled
def _tile_memberships(
    losses: Floats, offsets: Ints, log_weights: Floats, noise: Floats, hard: bool, out: Floats
) -> float:
    """Turn the losses (c, k) of a tile's clients into memberships out (c, k); give their log likelihood.

    Memberships are the posterior, or, if ``hard``, 1 for the model of least loss, the first of equals.
    """
    k = len(noise)
    log_noise, precision = np.log(noise), 1.0 / (noise * noise)
    likelihood = 0.0
    for i in range(len(out)):
        n_rows, top, best = offsets[i + 1] - offsets[i], -np.inf, 0
        for j in range(k):
            score = log_weights[j] - n_rows * log_noise[j] - losses[i, j] * precision[j]
            out[i, j] = score
            top = max(top, score)
            best = j if losses[i, j] < losses[i, best] else best
        whole = 1.0 if hard else 0.0
        for j in range(k):
            if hard:
                out[i, j] = 1.0 if j == best else 0.0
            else:
                out[i, j] = np.exp(out[i, j] - top)
                whole += out[i, j]
        for j in range(k):
            out[i, j] /= whole
        likelihood += top + np.log(whole)
    return likelihood


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
    """Do what the plain kernel does. theta (d, k) is in the precision of phi."""
    shift, edges = np.zeros(theta.T.shape), tiles(offsets)
    share, loss = np.empty((len(offsets) - 1, len(noise))), np.empty((len(offsets) - 1, len(noise)))
    mixture, moves = (theta, log_weights, noise, hard), (code, update, step, local_steps)
    likelihood = _move(phi, y, offsets, *mixture, *moves, edges, most_rows(offsets, edges), share, loss, shift)
    return shift, *totals(share, loss, np.diff(offsets)), likelihood


@compiled
def _move(
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
    edges: Ints,
    most: int,
    membership: Floats,
    losses: Floats,
    shift: Floats,
) -> float:
    """Give memberships and losses (m, k) in place, add n_i times the shifts (k, d); gives the log likelihood.

    Tiles end at ``edges``, and have at most so many rows.
    """
    predicted, likelihood = np.empty((most, len(noise)), phi.dtype), 0.0
    for place in range(len(edges) - 1):
        begin, end = edges[place], edges[place + 1]
        own, share = offsets[begin : end + 1], membership[begin:end]
        x, target = phi[own[0] : own[-1]], y[own[0] : own[-1]]
        np.dot(x, theta, predicted[: len(x)])
        tile_losses(code, target, predicted[: len(x)], own, losses[begin:end])
        likelihood += _tile_memberships(losses[begin:end], own, log_weights, noise, hard, share)
        if local_steps > 0:
            _add_shifts(code, update, step, local_steps, x, target, predicted, own, share, shift)
    return likelihood


@compiled
def _add_shifts(
    code: int,
    update: int,
    step: float,
    local_steps: int,
    x: Array,
    y: Floats,
    predicted: Array,
    offsets: Ints,
    membership: Floats,
    total: Floats,
) -> None:
    """Add n_i times the shifts of some clients to a total (k, d).

    x (n, d), y (n,) and predicted (n, k), by the server's models, are those of the clients one behind another, whose
    offsets (c + 1,) may begin with any number; membership (c, k).
    """
    dim, most = x.shape[1], np.max(offsets[1:] - offsets[:-1])
    side = min(most, dim if update == FEDPROX else _DEEP * local_steps)
    gram, weight, moved = np.empty((side, side)), np.empty(most), np.empty(most)
    gradient, shift = np.empty(dim), np.empty(dim)
    for i in range(len(membership)):
        begin, end = offsets[i] - offsets[0], offsets[i + 1] - offsets[0]
        rows, own_x, own_y = end - begin, x[begin:end], y[begin:end]
        for j in range(len(total)):
            if membership[i, j] <= NEGLIGIBLE:  # what is no number is not, so that it shows
                continue
            rate, now = step * membership[i, j] / rows, predicted[begin:end, j]
            if update == FEDPROX:
                _solve_proximal(rate, own_x, own_y, now, gram, weight[:rows], shift)
            elif local_steps == 1 or rows <= _DEEP * local_steps:
                _descend_by_rows(code, rate, local_steps, own_x, own_y, now, gram, weight, moved, shift)
            else:
                _descend(code, rate, local_steps, own_x, own_y, now, gradient, shift)
            for m in range(dim):
                total[j, m] += rows * shift[m]


@inlined
def _descend(
    code: int, rate: float, steps: int, x: Array, y: Floats, now: Array, gradient: Floats, shift: Floats
) -> None:
    """Take steps of FedAvg. x (n, d), y (n,), predictions now (n,) -> shift (d,)."""
    shift[:] = 0.0
    for _ in range(steps):
        gradient[:] = 0.0
        for row in range(len(x)):
            further = 0.0
            for m in range(len(shift)):
                further += x[row, m] * shift[m]
            fall = slope(code, y[row], now[row] + further)
            for m in range(len(shift)):
                gradient[m] -= fall * x[row, m]
        for m in range(len(shift)):
            shift[m] -= rate * gradient[m]


@inlined
def _descend_by_rows(
    code: int,
    rate: float,
    steps: int,
    x: Array,
    y: Floats,
    now: Array,
    gram: Floats,
    weight: Floats,
    moved: Floats,
    shift: Floats,
) -> None:
    """Take steps of FedAvg as `_descend` does, by what rows weigh in the shift: weight and moved (n or more,)."""
    rows = len(x)
    for a in range(rows):
        weight[a] = rate * slope(code, y[a], now[a])
    if steps > 1:
        _multiply_rows(x, gram)
    for _ in range(1, steps):
        for a in range(rows):
            further = 0.0
            for b in range(rows):
                further += gram[a, b] * weight[b]
            moved[a] = now[a] + further
        for a in range(rows):
            weight[a] += rate * slope(code, y[a], moved[a])
    _add_up(x, weight, shift)


@inlined
def _solve_proximal(rate: float, x: Array, y: Floats, now: Array, gram: Floats, weight: Floats, shift: Floats) -> None:
    """Take the proximal step of FedProx, by the smaller of X X^T and X^T X. weight (n,) -> shift (d,)."""
    rows, dim = x.shape
    for a in range(rows):
        weight[a] = y[a] - now[a]
    if rows <= dim:
        _multiply_rows(x, gram)
        solve_ridge(gram, 1.0 / rate, weight)
        _add_up(x, weight, shift)
        return
    _add_up(x, weight, shift)
    gram[:] = 0.0
    for row in range(rows):
        for a in range(dim):
            factor = np.float64(x[row, a])
            for b in range(a + 1):
                gram[a, b] += factor * x[row, b]
    solve_ridge(gram, 1.0 / rate, shift)


@inlined
def _multiply_rows(x: Array, gram: Floats) -> None:
    """Give X X^T. x (n, d) -> gram (n or more, n or more)."""
    for a in range(len(x)):
        for b in range(a + 1):
            product = 0.0
            for m in range(x.shape[1]):
                product += np.float64(x[a, m]) * x[b, m]
            gram[a, b] = gram[b, a] = product


@inlined
def _add_up(x: Array, weight: Floats, shift: Floats) -> None:
    """Give X^T w. x (n, d), weight (n or more,) -> shift (d,)."""
    shift[:] = 0.0
    for row in range(len(x)):
        for m in range(len(shift)):
            shift[m] += weight[row] * x[row, m]
