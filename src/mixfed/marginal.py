"""Compiled mathematics of personal models: what one block of clients says about candidates with deviations.

A client with more rows than features is first turned into as many rows as features, by reflections, which leave out
nothing: so all work for a client is in min(n_i, w) rows. Then, for each kind, with V = s^2 I + X Psi X^T = K K^T,

    A = X^T V^-1 X,  u = X^T V^-1 r,  B = X^T V^-2 X,  w = X^T V^-2 r,

from which the derivatives of log N(r | 0, V) by theta, log s^2 and Psi are made.

Shapes: n rows, m clients, C candidates, k kinds, L = C k models, w features, t = w (w + 1) / 2.
"""

from __future__ import annotations

import numpy as np

from .arrays import Floats, Ints
from .compiled import compiled
from .fewrows import factorise, inverse_lower, packed_moments, reflect, solve_lower

_NEGLIGIBLE, _CURVED = 1e-10, 1e-6
"""Memberships below the first do not count; below the second, they do not count in the information."""
_TILE, _NUMBERS = 512, 100_000
"""Rows, and numbers in their products with all Psi, that are looked at together: they stay in the cache."""
_WAVERING = 1e-5
"""A client with p_j (1 - p_j) below this misses no information about kind j worth the name."""
_PILE, _PAIRS = 64, 32
"""Clients of a kind, and of a pair of kinds, that are gathered before BLAS multiplies them."""


@compiled
def _spread_score(a_packed: Floats, u: Floats, full: bool, out: Floats) -> None:
    """Give the derivatives of log N by the numbers of Psi. -> out (v,)."""
    place = 0
    for a in range(len(u)):
        if full:
            for b in range(a):
                out[place + b] = u[a] * u[b] - a_packed[place + b]
            out[place + a] = 0.5 * (u[a] * u[a] - a_packed[place + a])
        else:
            out[a] = 0.5 * (u[a] * u[a] - a_packed[place + a])
        place += a + 1


@compiled
def _add_sides(a_packed: Floats, b_packed: Floats, u: Floats, w: Floats, share: float, sides: Floats) -> None:
    """Add what a client says of noise and Psi together, and of theta and noise. sides (3, t), by share."""
    place = 0
    for a in range(len(u)):
        for b in range(a + 1):
            sides[0, place + b] += share * b_packed[place + b]
            sides[1, place + b] += 0.5 * share * (u[a] * w[b] + u[b] * w[a])
        sides[2, a] += share * w[a]
        place += a + 1


@compiled
def _add_diagonal(a_packed: Floats, u: Floats, share: float, left: Floats, right: Floats, cross: Floats) -> None:
    """Add A_ab^2 to left (t,), u_a u_b A_ab to right (t,) and A_ab u_b to cross (w, w), by share."""
    place = 0
    for a in range(len(u)):
        for b in range(a + 1):
            value = share * a_packed[place + b]
            left[place + b] += value * a_packed[place + b]
            right[place + b] += value * u[a] * u[b]
            cross[a, b] += value * u[b]
            if b < a:
                cross[b, a] += value * u[a]
        place += a + 1


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
def _derive(
    x: Floats,
    root: Floats,
    error: Floats,
    variance: float,
    rest: float,
    extra: int,
    full: bool,
    inverse: Floats,
    solved: Floats,
    back: Floats,
    a_packed: Floats,
    u: Floats,
    out: Floats,
) -> None:
    """Give A (t,), u (w,) and the score (q,) of a client's log density, and on the way K^-1 X, K^-1 and V^-1 r.

    x (m, w), root K (m, m), error K^-1 r (m,).
    """
    n, width = x.shape
    solve_lower(root, n, x, solved)
    inverse_lower(root, n, inverse)
    packed_moments(solved, n, a_packed)
    trace, squares = extra / variance, rest / (variance * variance)
    for row in range(n):
        back[row] = 0.0
        for s in range(row, n):
            back[row] += inverse[s, row] * error[s]
            trace += inverse[s, row] * inverse[s, row]
        squares += back[row] * back[row]
    for a in range(width):
        u[a] = 0.0
    for row in range(n):
        for a in range(width):
            u[a] += solved[row, a] * error[row]
    for a in range(width):
        out[a] = u[a]
    out[width] = 0.5 * variance * (squares - trace)
    out[width + 1] = 1.0
    _spread_score(a_packed, u, full, out[width + 2 :])


@compiled
def _add_noise(
    n: int,
    inverse: Floats,
    solved: Floats,
    back: Floats,
    variance: float,
    rest: float,
    extra: int,
    twice: Floats,
    w: Floats,
    share: float,
    traces: Floats,
) -> None:
    """Give V^-1 X (m, w) and w = X^T V^-2 r (w,), and add tr V^-2 and r^T V^-3 r to traces (2,), by share."""
    width = len(w)
    for row in range(n):
        for a in range(width):
            twice[row, a] = 0.0
        for s in range(row, n):
            factor = inverse[s, row]
            for a in range(width):
                twice[row, a] += factor * solved[s, a]
    for a in range(width):
        w[a] = 0.0
    cubes, fourth = rest / (variance * variance * variance), extra / (variance * variance)
    for row in range(n):
        again = 0.0
        for a in range(width):
            w[a] += twice[row, a] * back[row]
        for s in range(row + 1):
            again += inverse[row, s] * back[s]
            value = 0.0
            for other in range(row, n):
                value += inverse[other, row] * inverse[other, s]
            fourth += value * value * (1.0 if s == row else 2.0)
        cubes += again * again
    traces[0] += share * fourth
    traces[1] += share * cubes


@compiled
def _pile_up(a_packed: Floats, u: Floats, share: float, left: Floats, right: Floats) -> None:
    """Make a row of a pile: by share u u^T - A / 2, u and, if there is room, A in left (t + w + t,); A in right."""
    t, width, spot = len(a_packed), len(u), 0
    for a in range(width):
        factor = share * u[a]
        for b in range(a + 1):
            left[spot + b] = factor * u[b] - 0.5 * share * a_packed[spot + b]
            right[spot + b] = a_packed[spot + b]
        left[t + a] = factor
        spot += a + 1
    for a in range(len(left) - t - width):
        left[t + width + a] = share * a_packed[a]


@compiled
def _add_pairs(
    shares: Floats, own: Floats, place: int, ahead: Floats, behind: Floats, waiting: Ints, missing: Floats
) -> None:
    """Pile up the scores, own (k, q), of pairs of kinds between which a client wavers, shares (k,)."""
    k, q = own.shape
    for j in range(k):
        if shares[j] * (1.0 - shares[j]) <= _WAVERING:
            continue
        for other in range(j, k):
            if shares[other] * (1.0 - shares[other]) <= _WAVERING:
                continue
            pair = (place * k + j) * k + other
            weight = shares[j] * (1.0 - shares[j] if j == other else -shares[other])
            top = waiting[pair]
            for a in range(q):
                ahead[pair, top, a] = weight * own[j, a]
                behind[pair, top, a] = own[other, a]
            waiting[pair] = top + 1
            if top + 1 == _PAIRS:
                _take_up(missing, place, j, other, ahead[pair], behind[pair])
                waiting[pair] = 0


@compiled
def _take_up(missing: Floats, place: int, j: int, other: int, ahead: Floats, behind: Floats) -> None:
    """Add a pile of pairs of scores (h, q) to the missing information (i, k q, k q)."""
    q, block = ahead.shape[1], np.dot(ahead.T, behind)
    missing[place, j * q : (j + 1) * q, other * q : (other + 1) * q] += block
    if other != j:
        missing[place, other * q : (other + 1) * q, j * q : (j + 1) * q] += block.T


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

    x (n, w), y (n,), theta (w, L), spread (w, L w) if full, else (1, L w), informed (C,): place of a candidate among
    the informed, or -1. Gives the sums over clients of log likelihood (C,), memberships (L,), n_i times memberships
    (L,), A (L, t), scores (L, w + 2 + v), products of memberships (C, k, k); for each kind of an informed candidate (I)
    products (I, t + w + t, t) of u u^T - A / 2, u and (if ``fisher``) A with A if full, else (I, 2 + w, t) of what
    `_add_diagonal` adds; sides (I, 3, t) of `_add_sides`; (I, 2): tr V^-2 and r^T V^-3 r; and
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
    left, right, height = np.empty((piles, _PILE, tall)), np.empty((piles, _PILE, t)), np.zeros(piles, np.int64)
    ahead, behind = np.empty((pairs, _PAIRS, q)), np.empty((pairs, _PAIRS, q))
    waiting = np.zeros(pairs, np.int64)

    longest = 1
    for i in range(n_clients):
        longest = max(longest, offsets[i + 1] - offsets[i])
    size, most = max(longest, min(_TILE, max(_NUMBERS // (total * width), 16))), min(longest, width)
    own_x, own_y, about = np.empty((size, width)), np.empty(size), np.empty((min(size, n_clients) + 1, 2))
    mixed, predicted = np.empty((size, total * width)), np.empty((size, total))
    solved, twice, inverse = np.empty((most, width)), np.empty((most, width)), np.zeros((most, most))
    roots, errors, back = np.zeros((total, most, most)), np.empty((total, most)), np.empty(most)
    shares, own = np.empty(total), np.zeros((total, q))
    a_packed, b_packed, u, w = np.empty(t), np.empty(t), np.empty(width), np.empty(width)
    log_v, prior = log_variance.ravel(), log_weight.ravel()
    variance = np.exp(log_v)
    begin = 0
    while begin < n_clients:
        end = _gather(x, y, offsets, begin, size, own_x, own_y, about)
        filled = int(about[end - begin, 0])
        np.dot(own_x[:filled], theta, predicted[:filled])
        if full:
            np.dot(own_x[:filled], spread, mixed[:filled])
        else:
            for row in range(filled):
                for a in range(total * width):
                    mixed[row, a] = own_x[row, a % width] * spread[0, a]
        for i in range(begin, end):
            first, rest = int(about[i - begin, 0]), about[i - begin, 1]
            n, size_i = int(about[i - begin + 1, 0]) - first, offsets[i + 1] - offsets[i]
            mine, extra = own_x[first : first + n], size_i - n
            for j in range(total):
                root, error = roots[j], errors[j]
                value = factorise(mine, mixed[first : first + n, j * width : (j + 1) * width], variance[j], root)
                value += extra * log_v[j] + size_i * np.log(2.0 * np.pi) + rest / variance[j]
                for row in range(n):
                    left_over = own_y[first + row] - predicted[first + row, j]
                    for s in range(row):
                        left_over -= root[row, s] * error[s]
                    error[row] = left_over / root[row, row]
                    value += error[row] * error[row]
                shares[j] = prior[j] - 0.5 * value
            _shares(shares, k, likelihood, overlap)
            for j in range(total):
                share, asked = shares[j], informed[j // k]
                clients[j] += share
                rows[j] += size_i * share
                if share < _NEGLIGIBLE:
                    continue
                _derive(
                    mine,
                    roots[j],
                    errors[j],
                    variance[j],
                    rest,
                    extra,
                    full,
                    inverse,
                    solved,
                    back,
                    a_packed,
                    u,
                    own[j],
                )
                for a in range(q):
                    score[j, a] += share * own[j, a]
                for a in range(t):
                    gram[j, a] += share * a_packed[a]
                if asked < 0 or share < _CURVED:
                    continue
                place = asked * k + j % k
                _add_noise(n, inverse, solved, back, variance[j], rest, extra, twice, w, share, traces[place])
                packed_moments(twice, n, b_packed)
                _add_sides(a_packed, b_packed, u, w, share, sides[place])
                if full:
                    _pile_up(a_packed, u, share, left[place, height[place]], right[place, height[place]])
                    height[place] += 1
                    if height[place] == _PILE:
                        products[place] += np.dot(left[place].T, right[place])
                        height[place] = 0
                else:
                    flat = products[place]
                    _add_diagonal(a_packed, u, share, flat[0], flat[1], flat[2:, :width])
            for c in range(count):
                if informed[c] >= 0 and k > 1:
                    kinds = slice(c * k, (c + 1) * k)
                    _add_pairs(shares[kinds], own[kinds], informed[c], ahead, behind, waiting, missing)
        begin = end
    for place in range(piles):
        top = height[place]
        products[place] += np.dot(left[place, :top].T, right[place, :top])
    for pair in range(pairs):
        top = waiting[pair]
        if top > 0:
            _take_up(missing, pair // (k * k), pair // k % k, pair % k, ahead[pair, :top], behind[pair, :top])
    return likelihood, clients, rows, gram, score, overlap, products, sides, traces, missing
