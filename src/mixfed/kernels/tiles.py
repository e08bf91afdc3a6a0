"""Compiled mathematics of Phase 2 over packed clients: arrays in, arrays out, no input or output, no classes.

A kernel serves one block of clients: their rows phi (n, d), targets y (n,) and offsets (c + 1,). It takes the rows in
tiles that stay in the cache while memberships are found and local models move. Predictions are in the precision of phi,
sums over clients in float64.

Shapes: n rows, c clients, k clusters, d features.
"""

from __future__ import annotations

import numpy as np

from ..core.arrays import Array, Floats, Ints
from ..core.compile import compiled
from ..families.base import value
from .local_updates import add_shifts

TILE = 512
"""Rows of a tile: with 32 features it takes half of a core's second cache at most."""


@compiled
def tile_end(offsets: Ints, begin: int, tile: int = TILE) -> int:
    """Give the end of the tile of whole clients that begins with client ``begin``; a large client is a tile."""
    end = begin + 1
    while end < len(offsets) - 1 and offsets[end + 1] - offsets[begin] <= tile:
        end += 1
    return end


@compiled
def most_rows(offsets: Ints, tile: int = TILE) -> int:
    """Give the rows of the largest tile."""
    most = int(min(tile, offsets[-1] - offsets[0]))
    for i in range(len(offsets) - 1):
        most = max(most, offsets[i + 1] - offsets[i])
    return most


@compiled
def tile_losses(code: int, y: Array, predicted: Array, offsets: Ints, out: Floats) -> None:
    """Loss of each client of a tile under each model. y (n,), predicted (n, E), offsets (c + 1,) -> out (c, E).

    Squares are in double precision: in single, small ones are 0 and large ones infinite.
    """
    for i in range(len(offsets) - 1):
        out[i] = 0.0
        for row in range(offsets[i] - offsets[0], offsets[i + 1] - offsets[0]):
            for j in range(predicted.shape[1]):
                out[i, j] += value(code, np.float64(y[row]), np.float64(predicted[row, j]))


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


@compiled
def refine(
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
    """Estimate memberships and move local models. theta (d, k), in the precision of phi.

    Gives the sums over clients of n_i times the shift (k, d), n_i times the membership (k,), memberships (k,),
    membership times loss (k,), and log likelihood. ``local_steps=0`` leaves the models where they are.
    """
    dim, k = theta.shape
    shift, mass, clients, loss, likelihood = np.zeros((k, dim)), np.zeros(k), np.zeros(k), np.zeros(k), 0.0
    size = most_rows(offsets)
    predicted, losses, membership = np.empty((size, k), phi.dtype), np.empty((size, k)), np.empty((size, k))
    begin = 0
    while begin < len(offsets) - 1:
        end = tile_end(offsets, begin)
        edges, count = offsets[begin : end + 1], end - begin
        x, target = phi[edges[0] : edges[-1]], y[edges[0] : edges[-1]]
        np.dot(x, theta, predicted[: len(x)])
        tile_losses(code, target, predicted[: len(x)], edges, losses)
        likelihood += _tile_memberships(losses, edges, log_weights, noise, hard, membership[:count])
        for i in range(count):
            for j in range(k):
                mass[j] += (edges[i + 1] - edges[i]) * membership[i, j]
                clients[j] += membership[i, j]
                if membership[i, j] != 0.0:  # whose loss may be infinite
                    loss[j] += membership[i, j] * losses[i, j]
        if local_steps > 0:
            add_shifts(code, update, step, local_steps, x, target, predicted, edges, membership[:count], shift)
        begin = end
    return shift, mass, clients, loss, likelihood


@compiled
def memberships(
    phi: Array, y: Floats, offsets: Ints, theta: Array, log_weights: Floats, noise: Floats, hard: bool, code: int
) -> Floats:
    """Give the clients' memberships, (c, k). theta (d, k), in the precision of phi."""
    size, k = most_rows(offsets), theta.shape[1]
    predicted, losses, out = np.empty((size, k), phi.dtype), np.empty((size, k)), np.empty((len(offsets) - 1, k))
    begin = 0
    while begin < len(out):
        end = tile_end(offsets, begin)
        edges = offsets[begin : end + 1]
        x, target = phi[edges[0] : edges[-1]], y[edges[0] : edges[-1]]
        np.dot(x, theta, predicted[: len(x)])
        tile_losses(code, target, predicted[: len(x)], edges, losses)
        _tile_memberships(losses, edges, log_weights, noise, hard, out[begin:end])
        begin = end
    return out


@compiled
def peak(phi: Array, offsets: Ints) -> float:
    """Give the largest |X_i|^2 / n_i of any client, the norm being the spectral one."""
    dim = phi.shape[1]
    most = 0.0
    for i in range(len(offsets) - 1):
        a, b = offsets[i], offsets[i + 1]
        own = phi[a:b]
        products = np.dot(own, own.T) if b - a <= dim else np.dot(own.T, own)
        most = max(most, np.linalg.eigvalsh(products)[-1] / (b - a))
    return most
