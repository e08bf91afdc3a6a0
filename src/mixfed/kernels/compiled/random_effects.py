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
from ..plain.random_effects import NEGLIGIBLE
from .random_effects_information import add_pairs, observed_information, seat
from .small_matrices import factorise, householder_reduce, solve_back, solve_lower
from .tiles import scale_rows

_TILE, _NUMBERS, _HIGHER = 1024, 100_000, 4
"""Rows, and numbers in their products with all Psi, that are looked at together: they stay in the cache. Before rows
are reflected, there may be so many times as many."""
_PILE = 192
"""Clients who waver, of whose scores products are made together."""


@compiled
def _tile_end(offsets: Ints, begin: int, width: int, size: int, height: int) -> int:
    """Give the client after the last of a tile: one of ``size`` rows and, before they are reflected, ``height``."""
    end, filled = begin, 0
    while end < len(offsets) - 1:
        filled += min(offsets[end + 1] - offsets[end], width)
        if filled > size or offsets[end + 1] - offsets[begin] > height:
            break
        end += 1
    return end


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
    """Pile up K^-1 X in heap and u in pulls, by the root of the membership, and add to sums as `_slopes` takes them.

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


@compiled
def _slopes(
    squares: Floats, about: Floats, variance: float, psi: Floats, full: bool, gram: Floats, score: Floats
) -> float:
    """Turn sums of a model into gram (t,) and score (q,), and give s^4 tr V^-2.

    squares (4, w, w): A, u u^T, B and u w^T; about (3 + w,): memberships, n_i times them, r^T V^-2 r, u; psi (w, w),
    or (1, w) unless full.
    """
    width, place, explained, twice = squares.shape[1], 0, 0.0, 0.0
    for a in range(width):
        score[a] = about[3 + a]
        for b in range(width):
            if full or a == b:
                number = psi[a if full else 0, b]
                explained += number * squares[0, a, b]
                twice += number * squares[2, a, b]
        for b in range(a + 1):
            gram[place + b] = squares[0, a, b]
            slope = (squares[1, a, b] - squares[0, a, b]) * (0.5 if a == b else 1.0)
            if full:
                score[width + 2 + place + b] = slope
            elif a == b:
                score[width + 2 + a] = slope
        place += a + 1
    score[width] = 0.5 * (variance * about[2] - (about[1] - explained))
    score[width + 1] = about[0]
    return float(about[1] - explained - variance * twice)


@compiled
def _pack_sides(squares: Floats, sides: Floats) -> None:
    """Turn sums of a model (4, w, w), as in `_slopes`, into sides (3, t): B, and u w^T made symmetric."""
    place = 0
    for a in range(squares.shape[1]):
        for b in range(a + 1):
            sides[0, place + b] = squares[2, a, b]
            sides[1, place + b] = 0.5 * (squares[3, a, b] + squares[3, b, a])
        place += a + 1


@compiled
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
    """Find memberships under every candidate and sum what they weigh.

    phi (n, D or one less), y (n,), centre to whiten as in `StandardUnits`, target (2,) being its centre and scale,
    theta (L, w), psi (L, w, w) if full, else (L, 1, w), informed (C,): place of a candidate among the informed,
    or -1. Gives the sums over clients of log likelihood (C,), memberships (L,), n_i times memberships (L,), A (L,
    t), scores (L, w + 2 + v), products of memberships (C, k, k); for each kind of an informed candidate (I)
    products (I, t + w + t, t) of u u^T - A / 2, u and (if ``fisher``) A with A if full, else (I, 2 + w, t) of what
    `add_diagonal` adds; sides (I, 3, t): B, u w^T made symmetric, and w; (I, 2): s^4 tr V^-2 and r^T V^-3 r; and
    the missing information for each pair of kinds, (i, k (k + 1) / 2, q, q).
    """
    width, n_clients = theta.shape[1], len(offsets) - 1
    total, t = log_weight.size, width * (width + 1) // 2
    k, q = log_weight.shape[1], width + 2 + (t if full else width)
    some = informed.max() + 1
    likelihood, gram, score = np.zeros(len(log_weight)), np.zeros((total, t)), np.zeros((total, q))
    overlap = np.zeros((len(log_weight), k, k))
    tall = t + width + (t if fisher else 0) if full else 2 + width
    products, sides, traces = np.zeros((some * k, tall, t)), np.zeros((some * k, 3, t)), np.zeros((some * k, 2))
    missing = np.zeros((some, k * (k + 1) // 2, q, q))
    squares, sums = np.zeros((total, 4, width, width)), np.zeros((total, 3 + width))

    longest = 1
    for i in range(n_clients):
        longest = max(longest, offsets[i + 1] - offsets[i])
    most = min(longest, width)
    size = max(most, min(_TILE, max(_NUMBERS // (total * width), 16)))
    height, people = max(longest, _HIGHER * size), min(size, n_clients)
    raw, own_x, own_y = np.empty((height, len(inverse_sd))), np.empty((height, width)), np.empty(height)
    about = np.empty((people + 1, 3))
    mixed, roots = np.empty((total, size, width)), np.empty((total, size, most))
    errors, shares = np.empty((total, size)), np.empty((total, people))
    pulls, kept = np.empty((people, width)), np.empty((people + 1, 2), np.int64)
    curved = people if some > 0 else 0
    twice, leans = np.empty((size if some > 0 else 0, width)), np.empty((curved, width))
    left, right = np.empty((curved, tall)), np.empty((curved, t))
    most_waiting = curved + _PILE if some > 0 else 0
    waiting, seats = np.zeros(some, np.int64), np.empty(curved, np.int64)
    unsure, slopes = np.empty((some, k, most_waiting)), np.empty((some, k, most_waiting, q))
    ahead, behind, product = np.empty((most_waiting, q)), np.empty((most_waiting, q)), np.empty((q, q))
    log_v, prior = log_variance.ravel(), log_weight.ravel()
    begin = 0
    while begin < n_clients:
        end = _tile_end(offsets, begin, width, size, height)
        own, people = offsets[begin : end + 1], end - begin
        filled = _gather(phi, y, own, centre, inverse_sd, slope, target, whiten, full, raw, own_x, own_y, about)
        _mix(own_x[:filled], psi, full, mixed)
        for j in range(total):
            logs, error = shares[j, :people], errors[j, :filled]
            for row in range(filled):
                known = 0.0
                for a in range(width):
                    known += own_x[row, a] * theta[j, a]
                error[row] = own_y[row] - known
            _densities(own_x, about, mixed[j], log_v[j], roots[j], error, logs)
            logs += prior[j]
        _shares(shares[:, :people], k, likelihood, overlap)
        for j in range(total):
            asked, variance = informed[j // k], np.exp(log_v[j])
            mine, error, heap = shares[j, :people], errors[j, :filled], mixed[j]
            count = _derive(own_x, about, mine, variance, roots[j], error, heap, pulls, kept, sums[j])
            heap, who = heap[: kept[count, 1]], pulls[:count]
            squares[j, 0] += np.dot(heap.T, heap)
            squares[j, 1] += np.dot(who.T, who)
            if asked < 0:
                continue
            if j % k == 0:
                waiting[asked] = seat(shares[j : j + k, :people], waiting[asked], seats, unsure[asked])
            place = asked * k + j % k
            room, told = (twice, leans, left, right), (products[place], sides[place, 2], seats, slopes[asked, j % k])
            traces[place, 1] += observed_information(
                heap, who, kept, mine, about, roots[j], error, variance, full, *room, *told
            )
            rows, pushes = twice[: len(heap)], leans[:count]
            squares[j, 2] += np.dot(rows.T, rows)
            squares[j, 3] += np.dot(who.T, pushes)
            if j % k == k - 1 and waiting[asked] >= _PILE:
                add_pairs(unsure[asked, :, : waiting[asked]], slopes[asked], ahead, behind, product, missing[asked])
                waiting[asked] = 0
        begin = end
    for j in range(total):
        asked = informed[j // k]
        trace = _slopes(squares[j], sums[j], np.exp(log_v[j]), psi[j], full, gram[j], score[j])
        if asked >= 0:
            traces[asked * k + j % k, 0] = trace
            _pack_sides(squares[j], sides[asked * k + j % k])
    for asked in range(some):
        add_pairs(unsure[asked, :, : waiting[asked]], slopes[asked], ahead, behind, product, missing[asked])
    return likelihood, sums[:, 0].copy(), sums[:, 1].copy(), gram, score, overlap, products, sides, traces, missing
