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

from __future__ import annotations

import numpy as np

from .arrays import Floats, Ints
from .bends import PAIRS, PILE, add_diagonal, add_pairs, client_score, noise_bends, pile_up, take_up, wavers
from .compiled import compiled
from .fewrows import factorise, packed_moments, reflect, solve_back, solve_lower

_NEGLIGIBLE, _CURVED = 1e-10, 1e-6
"""Memberships below the first do not count; below the second, they do not count in the information."""
_TILE, _NUMBERS = 512, 100_000
"""Rows, and numbers in their products with all Psi, that are looked at together: they stay in the cache."""
_HEIGHT = 256
"""Rows of a pile."""


@compiled
def _gather(
    x: Floats, y: Floats, offsets: Ints, begin: int, most: int, own_x: Floats, own_y: Floats, about: Floats
) -> int:
    """Put the rows of the next clients, ``most`` of them or those of one client, into own_x and own_y, reflected.

    about (m + 1, 2) gets for each client where its rows begin and the sum of squares that is left. Gives the client
    after the last.
    """
    width, top, i = x.shape[1], 0, begin
    while i < len(offsets) - 1:
        first, size = offsets[i], offsets[i + 1] - offsets[i]
        if i > begin and top + size > most:
            break
        for row in range(size):
            own_y[top + row] = y[first + row]
            for a in range(width):
                own_x[top + row, a] = x[first + row, a]
        about[i - begin, 0], about[i - begin, 1] = top, 0.0
        if size > width:
            about[i - begin, 1] = reflect(own_x[top : top + size], own_y[top : top + size])
            size = width
        top += size
        i += 1
    about[i - begin, 0] = top
    return i


@compiled
def _shares(logs: Floats, k: int, likelihood: Floats, overlap: Floats) -> None:
    """Turn log densities (L,) into memberships, in place, and add to likelihood (C,) and overlap (C, k, k)."""
    for c in range(len(likelihood)):
        own = logs[c * k : (c + 1) * k]
        top, whole = own.max(), 0.0
        for j in range(k):
            own[j] = np.exp(own[j] - top)
            whole += own[j]
        likelihood[c] += top + np.log(whole)
        for j in range(k):
            own[j] /= whole
        for j in range(k):
            for other in range(k):
                overlap[c, j, other] += own[j] * own[other]


@compiled
def _mix(x: Floats, spread: Floats, full: bool, out: Floats) -> None:
    """Give X Psi of all models. x (n, w), spread (L, w, w), or (L, 1, w) unless full -> out (L, n or more, w)."""
    n, width = x.shape
    for j in range(len(spread)):
        if full:
            np.dot(x, spread[j], out[j, :n])
            continue
        for row in range(n):
            for a in range(width):
                out[j, row, a] = x[row, a] * spread[j, 0, a]


@compiled
def _log_density(
    x: Floats, y: Floats, predicted: Floats, mixed: Floats, variance: float, root: Floats, error: Floats
) -> float:
    """Give -2 log N(r | 0, V) without its constant, K in root (m, m) and K^-1 r in error (m,)."""
    value = factorise(x, mixed, variance, root)
    for row in range(len(x)):
        left_over = y[row] - predicted[row]
        for s in range(row):
            left_over -= root[row, s] * error[s]
        error[row] = left_over * root[row, row]
        value += error[row] * error[row]
    return value


@compiled
def _derive(
    x: Floats,
    root: Floats,
    error: Floats,
    rest: float,
    share: float,
    size: int,
    solved: Floats,
    u: Floats,
    back: Floats,
    sums: Floats,
) -> float:
    """Give K^-1 X (m, w), u (w,) and V^-1 r (m,), add them to sums (3 + w,) as `_slopes` takes them; gives r^T V^-2 r.

    x (m, w), root K (m, m), error K^-1 r (m,), rest: what r^T V^-2 r has beyond the m rows, of ``size``.
    """
    n, width = x.shape
    solve_lower(root, n, x, solved)
    squares = rest + solve_back(root, n, error, back)
    for a in range(width):
        u[a] = 0.0
    for row in range(n):
        for a in range(width):
            u[a] += solved[row, a] * error[row]
    sums[0] += share
    sums[1] += share * size
    sums[2] += share * squares
    for a in range(width):
        sums[3 + a] += share * u[a]
    return float(squares)


@compiled
def _level(heaps: Floats, pulls: Floats, steep: bool, height: Ints, squares: Floats) -> None:
    """Multiply the piles of a model, heaps and pulls (2, h, w) of height (2,), and add to squares (4, w, w).

    These are A and u u^T, and if ``steep`` B and u w^T.
    """
    rows, people = heaps[0, : height[0]], pulls[0, : height[1]]
    squares[0] += np.dot(rows.T, rows)
    squares[1] += np.dot(people.T, people)
    if steep:
        twice = heaps[1, : height[0]]
        squares[2] += np.dot(twice.T, twice)
        squares[3] += np.dot(people.T, pulls[1, : height[1]])
    height[:] = 0


@compiled
def _slopes(
    squares: Floats, about: Floats, variance: float, spread: Floats, full: bool, gram: Floats, score: Floats
) -> float:
    """Turn sums of a model into gram (t,) and score (q,), and give s^4 tr V^-2.

    squares (4, w, w) as of `_level`; about (3 + w,): memberships, n_i times them, r^T V^-2 r, u; spread (w, w), or
    (1, w) unless full.
    """
    width, place, explained, twice = squares.shape[1], 0, 0.0, 0.0
    for a in range(width):
        score[a] = about[3 + a]
        for b in range(width):
            if full or a == b:
                psi = spread[a if full else 0, b]
                explained += psi * squares[0, a, b]
                twice += psi * squares[2, a, b]
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
    """Turn sums of a model (4, w, w), as of `_level`, into sides (3, t): B, and u w^T made symmetric."""
    place = 0
    for a in range(squares.shape[1]):
        for b in range(a + 1):
            sides[0, place + b] = squares[2, a, b]
            sides[1, place + b] = 0.5 * (squares[3, a, b] + squares[3, b, a])
        place += a + 1


@compiled
def expect(
    x: Floats,
    y: Floats,
    offsets: Ints,
    theta: Floats,
    spread: Floats,
    full: bool,
    log_variance: Floats,
    log_weight: Floats,
    informed: Ints,
    fisher: bool,
) -> tuple[Floats, ...]:
    """Find memberships under every candidate and sum what they weigh.

    x (n, w), y (n,), theta (w, L), spread (L, w, w) if full, else (L, 1, w), informed (C,): place of a candidate among
    the informed, or -1. Gives the sums over clients of log likelihood (C,), memberships (L,), n_i times memberships
    (L,), A (L, t), scores (L, w + 2 + v), products of memberships (C, k, k); for each kind of an informed candidate (I)
    products (I, t + w + t, t) of u u^T - A / 2, u and (if ``fisher``) A with A if full, else (I, 2 + w, t) of what
    `add_diagonal` adds; sides (I, 3, t): B, u w^T made symmetric, and w; (I, 2): s^4 tr V^-2 and r^T V^-3 r; and
    the missing information (i, k q, k q).
    """
    width, n_clients = x.shape[1], len(offsets) - 1
    count, k = log_weight.shape
    total, t = count * k, width * (width + 1) // 2
    q = width + 2 + (t if full else width)
    some = informed.max() + 1
    likelihood, clients, rows = np.zeros(count), np.zeros(total), np.zeros(total)
    gram, score, overlap = np.zeros((total, t)), np.zeros((total, q)), np.zeros((count, k, k))
    tall = t + width + (t if fisher else 0) if full else 2 + width
    products, sides, traces = np.zeros((some * k, tall, t)), np.zeros((some * k, 3, t)), np.zeros((some * k, 2))
    missing = np.zeros((some, k * q, k * q))
    piles, pairs = some * k if full else 0, some * k * k
    left, right, height = np.empty((piles, PILE, tall)), np.empty((piles, PILE, t)), np.zeros(piles, np.int64)
    ahead, behind = np.empty((pairs, PAIRS, q)), np.empty((pairs, PAIRS, q))
    waiting = np.zeros(pairs, np.int64)

    longest = 1
    for i in range(n_clients):
        longest = max(longest, offsets[i + 1] - offsets[i])
    size, most = max(longest, min(_TILE, max(_NUMBERS // (total * width), 16))), min(longest, width)
    own_x, own_y, about = np.empty((size, width)), np.empty(size), np.empty((min(size, n_clients) + 1, 2))
    mixed, predicted = np.empty((total, size, width)), np.empty((size, total))
    inverse, roots, errors, back = (
        np.zeros((most, most)),
        np.zeros((total, most, most)),
        np.empty((total, most)),
        np.empty(most),
    )
    shares, own, a_packed = np.empty(total), np.zeros((total, q)), np.empty(t)
    tops = max(_HEIGHT, width)
    heaps, pulls = np.zeros((total, 2, tops, width)), np.zeros((total, 2, tops, width))
    heights, squares, sums = (
        np.zeros((total, 2), np.int64),
        np.zeros((total, 4, width, width)),
        np.zeros((total, 3 + width)),
    )
    log_v, prior = log_variance.ravel(), log_weight.ravel()
    variance = np.exp(log_v)
    begin = 0
    while begin < n_clients:
        end = _gather(x, y, offsets, begin, size, own_x, own_y, about)
        filled = int(about[end - begin, 0])
        np.dot(own_x[:filled], theta, predicted[:filled])
        _mix(own_x[:filled], spread, full, mixed)
        for i in range(begin, end):
            first, rest = int(about[i - begin, 0]), about[i - begin, 1]
            after, size_i = int(about[i - begin + 1, 0]), offsets[i + 1] - offsets[i]
            n = after - first
            mine, extra = own_x[first:after], size_i - n
            for j in range(total):
                near = mixed[j, first:after]
                value = _log_density(
                    mine, own_y[first:after], predicted[first:after, j], near, variance[j], roots[j], errors[j]
                )
                value += extra * log_v[j] + size_i * np.log(2.0 * np.pi) + rest / variance[j]
                shares[j] = prior[j] - 0.5 * value
            _shares(shares, k, likelihood, overlap)
            for j in range(total):
                share, asked, root, error = shares[j], informed[j // k], roots[j], errors[j]
                clients[j] += share
                rows[j] += size_i * share
                if share < _NEGLIGIBLE:
                    continue
                if heights[j, 0] + n > heaps.shape[2]:
                    _level(heaps[j], pulls[j], asked >= 0, heights[j], squares[j])
                low, spot, scale = heights[j, 0], heights[j, 1], np.sqrt(share)
                heights[j, 0], heights[j, 1] = low + n, spot + 1
                solved, u = heaps[j, 0, low : low + n], pulls[j, 0, spot]
                beyond = rest / (variance[j] * variance[j])
                square = _derive(mine, root, error, beyond, share, size_i, solved, u, back, sums[j])
                if asked >= 0:
                    place, twice, w = asked * k + j % k, heaps[j, 1, low : low + n], pulls[j, 1, spot]
                    if share < _CURVED:
                        twice[:], w[:] = 0.0, 0.0
                    else:
                        cubes = noise_bends(root, solved, back, scale, twice, w) + beyond / variance[j]
                        traces[place, 1] += share * cubes
                        for a in range(width):
                            sides[place, 2, a] += scale * w[a]
                        packed_moments(solved, n, a_packed)
                        if wavers(share):
                            client_score(root, n, a_packed, u, square, variance[j], extra, full, inverse, own[j])
                        if full:
                            top = height[place]
                            pile_up(a_packed, u, share, left[place, top], right[place, top])
                            height[place] = top + 1
                            if top + 1 == PILE:
                                products[place] += np.dot(left[place].T, right[place])
                                height[place] = 0
                        else:
                            flat = products[place]
                            add_diagonal(a_packed, u, share, flat[0], flat[1], flat[2:, :width])
                for a in range(width):
                    u[a] *= scale
                    for row in range(n):
                        solved[row, a] *= scale
            for c in range(count):
                if informed[c] >= 0 and k > 1:
                    kinds = slice(c * k, (c + 1) * k)
                    add_pairs(shares[kinds], own[kinds], informed[c], ahead, behind, waiting, missing)
        begin = end
    for j in range(total):
        asked = informed[j // k]
        _level(heaps[j], pulls[j], asked >= 0, heights[j], squares[j])
        trace = _slopes(squares[j], sums[j], variance[j], spread[j], full, gram[j], score[j])
        if asked >= 0:
            traces[asked * k + j % k, 0] = trace
            _pack_sides(squares[j], sides[asked * k + j % k])
    for place in range(piles):
        top = height[place]
        products[place] += np.dot(left[place, :top].T, right[place, :top])
    for pair in range(pairs):
        top = waiting[pair]
        if top > 0:
            take_up(missing, pair // (k * k), pair // k % k, pair % k, ahead[pair, :top], behind[pair, :top])
    return likelihood, clients, rows, gram, score, overlap, products, sides, traces, missing
