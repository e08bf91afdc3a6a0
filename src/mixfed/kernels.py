"""Compiled mathematics over packed clients: arrays in, arrays out, no input or output, no classes.

A kernel serves the clients ``begin:end``. Whoever calls it cuts the clients into blocks that depend on the data
alone (`blocks`) and adds the blocks' sums in order, so the result does not depend on the number of threads.

Shapes: n rows, c clients, k clusters, d features.
"""

from __future__ import annotations

import itertools

import numpy as np

from .arrays import Array, Floats, Ints
from .compiled import compiled
from .losses import slope, value

FEDAVG, FEDPROX = 0, 1
_ROWS_PER_BLOCK = 8192


def blocks(offsets: Ints) -> list[tuple[int, int]]:
    """Cut the clients into blocks of about equal rows. offsets (c + 1,) -> (begin, end) of each block."""
    n_rows, n_clients = int(offsets[-1]), len(offsets) - 1
    count = max(1, min(n_rows // _ROWS_PER_BLOCK, n_clients, 512))
    cuts = np.unique(np.searchsorted(offsets, np.linspace(0, n_rows, count + 1)[1:-1])).tolist()
    edges = [0, *(cut for cut in cuts if 0 < cut < n_clients), n_clients]
    return list(itertools.pairwise(edges))


@compiled
def _dot(a: Array, b: Array) -> float:
    total = 0.0
    for j in range(len(a)):
        total += a[j] * b[j]
    return total


@compiled
def _client_losses(code: int, phi: Array, y: Array, theta: Floats, out: Floats) -> None:
    """Loss of one client under each model. phi (r, d), y (r,), theta (k, d) -> out (k,)."""
    for j in range(len(theta)):
        total = 0.0
        for row in range(len(y)):
            total += value(code, y[row], _dot(phi[row], theta[j]))
        out[j] = total


@compiled
def _memberships(losses: Floats, rows: int, log_weights: Floats, noise: Floats, hard: bool, out: Floats) -> float:
    """Turn one client's losses (k,) into memberships out (k,); give the client's log likelihood.

    Soft: the posterior under mixing weights and noise. Hard: one at the least loss, the first of equals.
    """
    k = len(losses)
    if hard:
        out[:] = 0.0
        out[np.argmin(losses)] = 1.0
    top = -np.inf
    for j in range(k):
        score = log_weights[j] - rows * np.log(noise[j]) - losses[j] / (noise[j] * noise[j])
        top = max(top, score)
        if not hard:
            out[j] = score
    if hard:
        return top
    total = 0.0
    for j in range(k):
        out[j] = np.exp(out[j] - top)
        total += out[j]
    for j in range(k):
        out[j] /= total
    return float(top + np.log(total))


@compiled
def _local_shift(
    code: int,
    phi: Array,
    y: Array,
    theta: Floats,
    membership: float,
    update: int,
    step: float,
    local_steps: int,
    out: Floats,
) -> None:
    """Move one client's copy of one model and write by how much. phi (r, d), theta (d,) -> out (d,)."""
    n_rows, dim = phi.shape
    rate = step * membership / n_rows
    out[:] = 0.0
    if update == FEDAVG:
        gradient = np.empty(dim)
        for _ in range(local_steps):
            gradient[:] = 0.0
            for row in range(n_rows):
                fall = slope(code, y[row], _dot(phi[row], theta) + _dot(phi[row], out))
                for j in range(dim):
                    gradient[j] += fall * phi[row, j]
            for j in range(dim):
                out[j] += rate * gradient[j]
    elif n_rows <= dim:
        # (I + rate X^T X)^-1 X^T = X^T (I + rate X X^T)^-1: solve the smaller of the two.
        system = np.eye(n_rows)
        residual = np.empty(n_rows)
        for row in range(n_rows):
            residual[row] = y[row] - _dot(phi[row], theta)
            for other in range(n_rows):
                system[row, other] += rate * _dot(phi[row], phi[other])
        pull = np.linalg.solve(system, residual)
        for row in range(n_rows):
            for j in range(dim):
                out[j] += rate * pull[row] * phi[row, j]
    else:
        system = np.eye(dim)
        pull = np.zeros(dim)
        for row in range(n_rows):
            residual_ = y[row] - _dot(phi[row], theta)
            for j in range(dim):
                pull[j] += rate * residual_ * phi[row, j]
                for other in range(dim):
                    system[j, other] += rate * phi[row, j] * phi[row, other]
        out[:] = np.linalg.solve(system, pull)


@compiled
def refine(
    begin: int,
    end: int,
    phi: Array,
    y: Floats,
    offsets: Ints,
    theta: Floats,
    log_weights: Floats,
    noise: Floats,
    hard: bool,
    code: int,
    update: int,
    step: float,
    local_steps: int,
) -> tuple[Floats, Floats, Floats, Floats, float]:
    """Estimate memberships and move local models.

    Gives the sums over clients of n_i times the shift (k, d), n_i times the membership (k,), memberships (k,),
    membership times loss (k,), and log likelihood. ``local_steps=0`` leaves the models where they are.
    """
    k, dim = theta.shape
    shift, mass, clients, loss, likelihood = np.zeros((k, dim)), np.zeros(k), np.zeros(k), np.zeros(k), 0.0
    losses, membership, local = np.empty(k), np.empty(k), np.empty(dim)
    for i in range(begin, end):
        own, targets = phi[offsets[i] : offsets[i + 1]], y[offsets[i] : offsets[i + 1]]
        rows = len(targets)
        _client_losses(code, own, targets, theta, losses)
        likelihood += _memberships(losses, rows, log_weights, noise, hard, membership)
        for j in range(k):
            if membership[j] == 0.0:
                continue
            mass[j] += rows * membership[j]
            clients[j] += membership[j]
            loss[j] += membership[j] * losses[j]
            if local_steps > 0:
                _local_shift(code, own, targets, theta[j], membership[j], update, step, local_steps, local)
                for m in range(dim):
                    shift[j, m] += rows * local[m]
    return shift, mass, clients, loss, likelihood


@compiled
def own_models(
    begin: int,
    end: int,
    phi: Array,
    y: Floats,
    offsets: Ints,
    theta: Floats,
    membership: Floats,
    code: int,
    update: int,
    step: float,
    local_steps: int,
) -> Floats:
    """Give the clients' own copies of their kinds' models after a local update. membership (c, k) -> (c, d)."""
    own = np.empty((end - begin, theta.shape[1]))
    for i in range(begin, end):
        a, b = offsets[i], offsets[i + 1]
        j = np.argmax(membership[i])
        local = own[i - begin]
        _local_shift(code, phi[a:b], y[a:b], theta[j], membership[i, j], update, step, local_steps, local)
        local += theta[j]
    return own


@compiled
def memberships(
    begin: int,
    end: int,
    phi: Array,
    y: Floats,
    offsets: Ints,
    theta: Floats,
    log_weights: Floats,
    noise: Floats,
    hard: bool,
    code: int,
) -> Floats:
    """Give the clients' memberships, (end - begin, k)."""
    k = len(theta)
    out, losses = np.empty((end - begin, k)), np.empty(k)
    for i in range(begin, end):
        own, targets = phi[offsets[i] : offsets[i + 1]], y[offsets[i] : offsets[i + 1]]
        _client_losses(code, own, targets, theta, losses)
        _memberships(losses, len(targets), log_weights, noise, hard, out[i - begin])
    return out


@compiled
def peak(begin: int, end: int, phi: Array, offsets: Ints) -> float:
    """Give the largest |X_i|^2 / n_i of any client, the norm being the spectral one."""
    dim = phi.shape[1]
    most = 0.0
    for i in range(begin, end):
        own = phi[offsets[i] : offsets[i + 1]]
        rows = len(own)
        gram = np.zeros((min(rows, dim), min(rows, dim)))
        if rows <= dim:
            for a in range(rows):
                for b in range(rows):
                    gram[a, b] = _dot(own[a], own[b])
        else:
            for row in range(rows):
                for a in range(dim):
                    for b in range(dim):
                        gram[a, b] += own[row, a] * own[row, b]
        most = max(most, np.linalg.eigvalsh(gram)[-1] / rows)
    return most
