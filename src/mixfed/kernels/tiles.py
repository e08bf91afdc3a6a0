"""Compiled mathematics of Phase 2 over packed clients: arrays in, arrays out, no input or output, no classes.

A kernel serves one block of clients: their rows phi (n, d), targets y (n,) and offsets (c + 1,). It takes the rows in
tiles that stay in the cache while memberships are found and local models move. Products are in the precision of phi,
sums over clients in float64.

Shapes: n rows, c clients, k clusters, d features.
"""

from __future__ import annotations

import numpy as np

from ..core.arrays import Array, Floats, Ints
from ..core.compile import compiled
from ..families.base import value
from ..lanes import LANES, doubled, read, write, zeros
from .local_updates import FEDPROX, move, room_to_move
from .products import in_words, lined, multiply, room_for, with_room

TILE = 512
"""Rows of a tile: with 32 features it takes half of a core's second cache at most."""
_LARGE_TILE = 8192
"""Bytes of a column in a tile that is not copied: so many rows that clients find others with as many."""
_NEGLIGIBLE = 1e-17
"""Memberships below this move no model by more than rounding does."""
_SORTED = 64
"""Clients of more rows are not put in order."""


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
def by_rows(offsets: Ints, begin: int, end: int, who: Ints, starts: Ints, sizes: Ints) -> None:
    """Put the clients ``begin:end`` of a tile in the order of how many rows they have, all with many as equals.

    Gives their places in the tile, where their rows start there, and how many these are, (c,) each.
    """
    places = np.zeros(_SORTED + 2, np.int64)
    for i in range(begin, end):
        places[min(offsets[i + 1] - offsets[i], _SORTED) + 1] += 1
    for rows in range(1, _SORTED + 1):
        places[rows] += places[rows - 1]
    for i in range(begin, end):
        rows = offsets[i + 1] - offsets[i]
        place = places[min(rows, _SORTED)]
        places[min(rows, _SORTED)] = place + 1
        who[place], starts[place], sizes[place] = i - begin, offsets[i] - offsets[begin], rows


@compiled
def tile_losses(code: int, y: Array, predicted: Array, starts: Ints, sizes: Ints, out: Array) -> None:
    """Loss of each client of a tile under each model. y (1, n), predicted (n, E) -> out (c, E).

    If out has fewer columns, what is written beyond them is the next client's, which comes later.
    """
    for i in range(len(sizes)):
        for j in range(0, predicted.shape[1], LANES):
            total = zeros()
            for row in range(starts[i], starts[i] + sizes[i]):
                total += value(code, y[0, row], doubled(read(predicted, row, j)))
            write(out, i, j, total)


@compiled
def _tile_labels(losses: Floats, sizes: Ints, log_weights: Floats, noise: Floats, labels: Ints) -> float:
    """Find the model of least loss for each client of a tile, the first of equals; give their log likelihood.

    losses (c, E) -> labels (c,).
    """
    k = len(noise)
    log_noise, precision = np.log(noise), 1.0 / (noise * noise)
    likelihood = 0.0
    for i in range(len(sizes)):
        n_rows = sizes[i]
        best, least, top = 0, losses[i, 0], log_weights[0] - n_rows * log_noise[0] - losses[i, 0] * precision[0]
        for j in range(1, k):
            best = j if losses[i, j] < least else best
            least = min(least, losses[i, j])
            top = max(top, log_weights[j] - n_rows * log_noise[j] - losses[i, j] * precision[j])
        labels[i] = best
        likelihood += top
    return likelihood


@compiled
def _tile_memberships(losses: Floats, sizes: Ints, log_weights: Floats, noise: Floats, out: Floats) -> float:
    """Turn the losses (c, E) of a tile's clients into the posterior out (c, E); give their log likelihood."""
    k = len(noise)
    log_noise, precision = np.log(noise), 1.0 / (noise * noise)
    likelihood = 0.0
    for i in range(len(sizes)):
        n_rows = sizes[i]
        top = -np.inf
        for j in range(k):
            score = log_weights[j] - n_rows * log_noise[j] - losses[i, j] * precision[j]
            out[i, j] = score
            top = max(top, score)
        whole = 0.0
        for j in range(k):
            share = np.exp(out[i, j] - top)
            out[i, j] = share
            whole += share
        for j in range(k):
            out[i, j] /= whole
        likelihood += top + np.log(whole)
    return likelihood


@compiled
def _members(
    membership: Floats, j: int, starts: Ints, sizes: Ints, count: int, labels: Ints, shares: Floats
) -> tuple[tuple[Ints, Ints], int]:
    """Keep those of a tile's clients whose memberships (c, k) in kind j count, with their labels and shares.

    Gives where their rows start and how many these are, and the number of clients.
    """
    own, some = (np.empty_like(starts), np.empty_like(sizes)), 0
    for i in range(count):  # without a jump that cannot be foreseen
        own[0][some], own[1][some], labels[some], shares[some] = starts[i], sizes[i], j, membership[i, j]
        some += not membership[i, j] <= _NEGLIGIBLE  # what is no number counts, too, so that it shows
    return own, some


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
    tile = _LARGE_TILE // phi.itemsize
    size, models = most_rows(offsets, tile), in_words(theta)
    predicted, targets = room_for(size, models), np.zeros((1, size + LANES), phi.dtype)
    losses, membership = np.empty((size, predicted.shape[1])), np.empty((0 if hard else size, k))
    total, shares = lined(k, dim, phi), np.ones(size)
    total[:] = 0.0
    room = room_to_move(update, size if local_steps > 0 else 0, dim, k, phi)
    who, starts, sizes, labels = (
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
    )
    begin = 0
    while begin < len(offsets) - 1:
        end = tile_end(offsets, begin, tile)
        first, rows, count = offsets[begin], offsets[end] - offsets[begin], end - begin
        if update == FEDPROX or local_steps > 1:
            by_rows(offsets, begin, end, who, starts, sizes)
        else:
            for i in range(count):
                starts[i], sizes[i] = offsets[begin + i] - first, offsets[begin + i + 1] - offsets[begin + i]
        x = with_room(phi, first, first + rows)
        for row in range(rows):
            targets[0, row] = y[first + row]
        multiply(x, rows, models, predicted)
        tile_losses(code, targets, predicted, starts[:count], sizes[:count], losses)
        if hard:
            likelihood += _tile_labels(losses, sizes[:count], log_weights, noise, labels)
            for i in range(count):
                j = labels[i]
                mass[j] += sizes[i]
                clients[j] += 1.0
                loss[j] += losses[i, j]
        else:
            likelihood += _tile_memberships(losses, sizes[:count], log_weights, noise, membership)
            for i in range(count):
                for j in range(k):
                    mass[j] += sizes[i] * membership[i, j]
                    clients[j] += membership[i, j]
                    if membership[i, j] != 0.0:  # whose loss may be infinite
                        loss[j] += membership[i, j] * losses[i, j]
        for turn in range(0 if local_steps == 0 else 1 if hard else k):
            own, some = (starts, sizes), count
            if not hard:
                own, some = _members(membership, turn, starts, sizes, count, labels, shares)
            move(
                code,
                update,
                step,
                local_steps,
                x,
                targets,
                predicted,
                own[0][:some],
                own[1][:some],
                labels,
                shares,
                labels,
                total,
                room,
            )
        for j in range(k):
            for m in range(dim):
                shift[j, m] += total[j, m]
            total[j] = 0.0
        begin = end
    return shift, mass, clients, loss, likelihood


@compiled
def memberships(
    phi: Array, y: Floats, offsets: Ints, theta: Array, log_weights: Floats, noise: Floats, hard: bool, code: int
) -> Floats:
    """Give the clients' memberships, (c, k). theta (d, k), in the precision of phi."""
    size, k, models = most_rows(offsets), theta.shape[1], in_words(theta)
    predicted, targets = room_for(size, models), np.empty((1, size), phi.dtype)
    losses, labels = np.empty((size, predicted.shape[1])), np.empty(size, np.int64)
    out = np.zeros((len(offsets) - 1, k))
    begin = 0
    while begin < len(offsets) - 1:
        end = tile_end(offsets, begin)
        first, rows = offsets[begin], offsets[end] - offsets[begin]
        starts, sizes = offsets[begin:end] - first, offsets[begin + 1 : end + 1] - offsets[begin:end]
        multiply(with_room(phi, first, first + rows), rows, models, predicted)
        for row in range(rows):
            targets[0, row] = y[first + row]
        tile_losses(code, targets, predicted, starts, sizes, losses)
        if hard:
            _tile_labels(losses, sizes, log_weights, noise, labels)
            for i in range(begin, end):
                out[i, labels[i - begin]] = 1.0
        else:
            _tile_memberships(losses, sizes, log_weights, noise, out[begin:end])
        begin = end
    return out


@compiled
def own_models(
    phi: Array,
    y: Floats,
    offsets: Ints,
    theta: Array,
    membership: Floats,
    code: int,
    update: int,
    step: float,
    local_steps: int,
) -> Floats:
    """Give the clients' own copies of their kinds' models after a local update. membership (c, k) -> (c, d)."""
    dim, n_clients, models = phi.shape[1], len(offsets) - 1, in_words(theta)
    x = with_room(phi, 0, len(phi))
    predicted = room_for(len(phi), models)
    targets = np.zeros((1, len(phi) + LANES), phi.dtype)
    for row in range(len(phi)):
        targets[0, row] = y[row]
    multiply(x, len(phi), models, predicted)
    who, starts, sizes = np.empty(n_clients, np.int64), np.empty(n_clients, np.int64), np.empty(n_clients, np.int64)
    by_rows(offsets, 0, n_clients, who, starts, sizes)
    labels, shares = np.empty(n_clients, np.int64), np.empty(n_clients)
    for i in range(n_clients):
        labels[i] = np.argmax(membership[who[i]])
        shares[i] = membership[who[i], labels[i]]
    shift, room = lined(n_clients, dim, phi), room_to_move(update, len(phi), dim, n_clients, phi)
    shift[:] = 0.0
    move(code, update, step, local_steps, x, targets, predicted, starts, sizes, labels, shares, who, shift, room)
    own = np.empty((n_clients, dim))
    for i in range(n_clients):
        for m in range(dim):
            own[who[i], m] = theta[m, labels[i]] + shift[who[i], m] / sizes[i]
    return own


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
