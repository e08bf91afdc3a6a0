"""Compiled mathematics of personal models: what one block of clients says about candidates with deviations.

A client with more rows than features is first turned into as many rows as features, by reflections, which leave out
nothing: so all work for a client is in min(n_i, w) rows. Then, for each kind, with V = s^2 I + X Psi X^T = K K^T,

    A = X^T V^-1 X,  u = X^T V^-1 r,  B = X^T V^-2 X,  w = X^T V^-2 r,

from which the derivatives of log N(r | 0, V) by theta, log s^2 and Psi are made. Nothing of size w^2 is made for a
client unless its information is asked: rows of K^-1 X, u and their like are piled up, by the root of the membership,
and BLAS multiplies the piles. Traces follow from the sums: s^2 tr V^-1 = n - tr Psi A, and s^4 tr V^-2 is less than
that by s^2 tr Psi B.

Shapes: n rows, m clients, C candidates, k kinds, L = C k models, w features, t = w (w + 1) / 2.
"""

import numpy as np

from ...core.arrays import Array, Floats, Ints
from ...core.compile import compiled
from ..plain.random_effects import NEGLIGIBLE, slopes
from .products import add_products
from .random_effects_information import add_pairs, observed_information, seat
from .small_matrices import factorise, householder_reduce, solve_back, solve_lower
from .tiles import scale_rows

_TILE, _NUMBERS, _HIGHER = 1024, 100_000, 4
"""Rows, and numbers in their products with all Psi, that are looked at together: they stay in the cache. Before rows
are reflected, there may be so many times as many."""
_PILE = 192
"""Clients who waver, of whose scores products are made together."""


@compiled
def _tiles(offsets: Ints, width: int, size: int, height: int) -> Ints:
    """Give the clients with whom tiles begin, and how many there are.

    A tile has ``size`` rows at most, and ``height`` before they are reflected.
    """
    edges, count, filled = np.zeros(len(offsets) + 1, np.int64), 0, 0
    for i in range(len(offsets) - 1):
        rows = min(offsets[i + 1] - offsets[i], width)
        if filled + rows > size or offsets[i + 1] - offsets[edges[count]] > height:
            count += 1
            edges[count], filled = i, 0
        filled += rows
    edges[count + 1] = len(offsets) - 1
    return edges[: count + 2]


@compiled
def _gather(
    phi: Array,
    y: Floats,
    offsets: Ints,
    centre: Floats,
    inverse_sd: Floats,
    slope: Floats,
    target: Floats,
    whiten: Floats,
    full: bool,
    raw: Floats,
    own_x: Floats,
    own_y: Floats,
    about: Floats,
) -> int:
    """Put the rows of a tile of clients, offsets (m + 1,), in standard units into own_x and own_y, reflected.

    raw (n or more, D) is for use. about (m + 1, 3) gets for each client where its rows begin, how many it had and the
    sum of squares that is left. Gives how many rows there are.
    """
    begin, end = offsets[0], offsets[-1]
    tile, width, top = end - begin, own_x.shape[1], 0
    scale_rows(phi, begin, end, centre, inverse_sd, raw)
    # Product and residual in one loop, here and below: as two, last bits depended on where arrays lie in memory.
    for row in range(tile):
        known = 0.0
        for a in range(len(slope)):
            known += raw[row, a] * slope[a]
        own_y[row] = (y[begin + row] - target[0] - known) / target[1]
    if full:
        np.dot(raw[:tile], whiten, own_x[:tile])
    else:
        for row in range(tile):
            for a in range(width):
                own_x[row, a] = raw[row, a]
    for i in range(len(offsets) - 1):
        first, after, rest = offsets[i] - begin, offsets[i + 1] - begin, 0.0
        n = min(after - first, width)
        if after - first > width:
            rest = householder_reduce(own_x[first:after], own_y[first:after])
        if top < first:
            for row in range(n):
                own_y[top + row] = own_y[first + row]
                for a in range(width):
                    own_x[top + row, a] = own_x[first + row, a]
        about[i, 0], about[i, 1], about[i, 2] = top, after - first, rest
        top += n
    about[len(offsets) - 1, 0] = top
    return top


@compiled
def _mix(x: Floats, psi: Floats, full: bool, out: Floats) -> None:
    """Give X Psi of all models. x (n, w), psi (L, w, w), or (L, 1, w) unless full -> out (L, n or more, w)."""
    n, width = x.shape
    for j in range(len(psi)):
        if full:
            np.dot(x, psi[j], out[j, :n])
            continue
        for row in range(n):
            for a in range(width):
                out[j, row, a] = x[row, a] * psi[j, 0, a]


@compiled
def _densities(
    x: Floats, about: Floats, mixed: Floats, log_variance: float, roots: Floats, errors: Floats, out: Floats
) -> None:
    """Give log N(r | 0, V) of each client of a tile under one model -> out (m,), K in roots and K^-1 r in errors.

    x (n, w), about (m + 1, 3) as of `_gather`, mixed (n, w), roots (n, w or less), errors (n,), which hold r.
    """
    variance, constant = np.exp(log_variance), np.log(2.0 * np.pi)
    for i in range(len(out)):
        first, after, size, rest = int(about[i, 0]), int(about[i + 1, 0]), about[i, 1], about[i, 2]
        value = factorise(x[first:after], mixed[first:after], variance, roots[first:after], errors[first:after])
        out[i] = -0.5 * (value + (size - (after - first)) * log_variance + size * constant + rest / variance)


@compiled
def _shares(logs: Floats, k: int, likelihood: Floats, overlap: Floats) -> None:
    """Turn log densities (L, m) into memberships, in place, and add to likelihood (C,) and overlap (C, k, k)."""
    for i in range(logs.shape[1]):
        for c in range(len(likelihood)):
            own = logs[c * k : (c + 1) * k, i]
            top, whole = own.max(), 0.0
            for j in range(k):
                own[j] = np.exp(own[j] - top)
                whole += own[j]
            likelihood[c] += top + np.log(whole)
            inverse = 1.0 / whole
            for j in range(k):
                own[j] *= inverse
            for j in range(k):
                for other in range(k):
                    overlap[c, j, other] += own[j] * own[other]


@compiled
def _derive(
    x: Floats,
    about: Floats,
    shares: Floats,
    variance: float,
    roots: Floats,
    errors: Floats,
    heap: Floats,
    pulls: Floats,
    kept: Ints,
    sums: Floats,
) -> int:
    """Pile up K^-1 X in heap and u in pulls, by the root of the membership, and add to sums as `slopes` takes them.

    x (n, w), about (m + 1, 3), shares (m,), roots and errors as of `_densities`; errors become V^-1 r. kept (m + 1, 2)
    gets the clients whose membership counts and where their rows begin in the heap. Gives how many these are.
    """
    width, top, count = x.shape[1], 0, 0
    for i in range(len(shares)):
        share, size = shares[i], about[i, 1]
        sums[0] += share
        sums[1] += share * size
        if share < NEGLIGIBLE:
            continue
        first, after = int(about[i, 0]), int(about[i + 1, 0])
        n, scale = after - first, np.sqrt(share)
        root, error, solved, u = roots[first:after], errors[first:after], heap[top : top + n], pulls[count]
        solve_lower(root, n, x[first:after], scale, solved)
        u[:] = 0.0
        for row in range(n):
            for a in range(width):
                u[a] += solved[row, a] * error[row]
        sums[2] += share * (solve_back(root, n, error, error) + about[i, 2] / (variance * variance))
        for a in range(width):
            sums[3 + a] += scale * u[a]
        kept[count, 0], kept[count, 1] = i, top
        top, count = top + n, count + 1
    kept[count, 1] = top
    return count


def random_effects_sums(
    phi: Array,
    y: Floats,
    offsets: Ints,
    centre: Floats,
    inverse_sd: Floats,
    slope: Floats,
    target: Floats,
    whiten: Floats,
    theta: Floats,
    psi: Floats,
    full: bool,
    log_variance: Floats,
    log_weight: Floats,
    informed: Ints,
    fisher: bool,
) -> tuple[Floats, ...]:
    """Do what the plain kernel does. Every array is in C order."""
    (count, k), (total, width), n_clients = log_weight.shape, theta.shape, len(offsets) - 1
    t, asked = width * (width + 1) // 2, np.argsort(informed)[np.count_nonzero(informed < 0) :]
    some, v = (asked[:, None] * k + np.arange(k)).ravel(), t if full else width
    tall, q, pairs = (t + width + (t if fisher else 0) if full else 2 + width), width + 2 + v, k * (k + 1) // 2
    longest = int(np.diff(offsets).max(initial=1))
    most = min(longest, width)
    size = max(most, min(_TILE, max(_NUMBERS // (total * width), 16)))
    height = max(longest, _HIGHER * size)
    likelihood, overlap = np.zeros(count), np.zeros((count, k, k))
    sums, squares = np.zeros((total, 3 + width)), np.zeros((total, 4, width, width))
    products, missing = np.zeros((len(some), tall, t)), np.zeros((len(asked), pairs, q, q))
    leaning, cubes = np.zeros((len(some), width)), np.zeros(len(some))
    rows = phi, y, offsets, centre, inverse_sd, slope, target, whiten
    mixture = theta, psi, full, log_variance.ravel(), log_weight
    edges = _tiles(offsets, width, size, height)
    room = edges, height, min(size, n_clients), size, most
    _add_tiles(*rows, *mixture, informed, *room, likelihood, overlap, sums, squares, products, leaning, cubes, missing)
    variance = np.exp(log_variance).ravel()
    gram, score, sides, traces = slopes(sums, squares, psi, full, variance, some, leaning, cubes)
    return likelihood, sums[:, 0], sums[:, 1], gram, score, overlap, products, sides, traces, missing


@compiled
def _add_tiles(
    phi: Array,
    y: Floats,
    offsets: Ints,
    centre: Floats,
    inverse_sd: Floats,
    slope: Floats,
    target: Floats,
    whiten: Floats,
    theta: Floats,
    psi: Floats,
    full: bool,
    log_v: Floats,
    log_weight: Floats,
    informed: Ints,
    edges: Ints,
    height: int,
    people: int,
    size: int,
    most: int,
    likelihood: Floats,
    overlap: Floats,
    sums: Floats,
    squares: Floats,
    products: Floats,
    leaning: Floats,
    cubes: Floats,
    missing: Floats,
) -> None:
    """Add what clients say, tile by tile, to the sums that `slopes` takes, likelihood (C,) and overlap (C, k, k).

    And to products and missing as `random_effects_sums` gives them. Tiles end at ``edges``: of ``people`` clients,
    ``size`` rows, and ``height`` before they are reflected, at most; ``most`` are the rows of a client that remain.
    """
    total, width = theta.shape
    k, some, tall, q = log_weight.shape[1], len(missing), products.shape[1], missing.shape[2]
    raw, own_x, own_y = np.empty((height, len(inverse_sd))), np.empty((height, width)), np.empty(height)
    about = np.empty((people + 1, 3))
    mixed, roots = np.empty((total, size, width)), np.empty((total, size, most))
    errors, shares = np.empty((total, size)), np.empty((total, people))
    pulls, kept = np.empty((people, width)), np.empty((people + 1, 2), np.int64)
    curved = people if some > 0 else 0
    twice, leans = np.empty((size if some > 0 else 0, width)), np.empty((curved, width))
    left, right = np.empty((curved, tall)), np.empty((curved, products.shape[2]))
    most_waiting = curved + _PILE if some > 0 else 0
    waiting, seats = np.zeros(some, np.int64), np.empty(curved, np.int64)
    unsure, scores = np.empty((some, k, most_waiting)), np.empty((some, k, most_waiting, q))
    ahead, behind = np.empty((most_waiting, q)), np.empty((most_waiting, q))
    prior = log_weight.ravel()
    for tile in range(len(edges) - 1):
        own, here = offsets[edges[tile] : edges[tile + 1] + 1], edges[tile + 1] - edges[tile]
        filled = _gather(phi, y, own, centre, inverse_sd, slope, target, whiten, full, raw, own_x, own_y, about)
        _mix(own_x[:filled], psi, full, mixed)
        for j in range(total):
            logs, error = shares[j, :here], errors[j, :filled]
            for row in range(filled):
                known = 0.0
                for a in range(width):
                    known += own_x[row, a] * theta[j, a]
                error[row] = own_y[row] - known
            _densities(own_x, about, mixed[j], log_v[j], roots[j], error, logs)
            logs += prior[j]
        _shares(shares[:, :here], k, likelihood, overlap)
        for j in range(total):
            asked, variance = informed[j // k], np.exp(log_v[j])
            mine, error, heap = shares[j, :here], errors[j, :filled], mixed[j]
            count = _derive(own_x, about, mine, variance, roots[j], error, heap, pulls, kept, sums[j])
            heap, who = heap[: kept[count, 1]], pulls[:count]
            add_products(squares[j, 0], heap, heap)
            add_products(squares[j, 1], who, who)
            if asked < 0:
                continue
            if j % k == 0:
                waiting[asked] = seat(shares[j : j + k, :here], waiting[asked], seats, unsure[asked])
            place = asked * k + j % k
            space, told = (twice, leans, left, right), (products[place], leaning[place], seats, scores[asked, j % k])
            cubes[place] += observed_information(
                heap, who, kept, mine, about, roots[j], error, variance, full, *space, *told
            )
            rows = twice[: len(heap)]
            add_products(squares[j, 2], rows, rows)
            add_products(squares[j, 3], who, leans[:count])
            if j % k == k - 1 and waiting[asked] >= _PILE:
                add_pairs(unsure[asked, :, : waiting[asked]], scores[asked], ahead, behind, missing[asked])
                waiting[asked] = 0
    for asked in range(some):
        add_pairs(unsure[asked, :, : waiting[asked]], scores[asked], ahead, behind, missing[asked])
