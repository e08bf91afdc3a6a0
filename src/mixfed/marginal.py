"""Compiled mathematics of personal models: what one block of clients says about candidates with deviations.

A client with more rows than features is first turned into as many rows as features, by reflections, which leave out
nothing: so all work for a client is in min(n_i, w) rows. Then, for each kind, with V = s^2 I + X Psi X^T = K K^T,

    A = X^T V^-1 X,  u = X^T V^-1 r,  B = X^T V^-2 X,  w = X^T V^-2 r,

from which the derivatives of log N(r | 0, V) by theta, log s^2 and Psi are made.

Shapes: n rows, m clients, C candidates, k kinds, L = C k models, w features, t = w (w + 1) / 2.
"""

from __future__ import annotations

import numpy as np

from .arrays import Array, Floats, Ints
from .compiled import compiled

_NEGLIGIBLE = 1e-13
"""Memberships below this do not count."""
_WAVERING = 1e-5
"""A client with p_j (1 - p_j) below this misses no information about kind j worth the name."""
_PILE, _PAIRS = 64, 32
"""Clients of a kind, and of a pair of kinds, that are gathered before BLAS multiplies them."""


@compiled
def reflect(x: Floats, y: Floats) -> float:
    """Turn rows x (n, w), y (n,) of which there are more than w into w rows and a rest, in place.

    Householder's reflections keep X^T X, X^T y and y^T y. Gives the sum of squares of what is left of y below.
    """
    n, width = x.shape
    for a in range(width):
        norm = 0.0
        for row in range(a, n):
            norm += x[row, a] * x[row, a]
        norm = np.sqrt(norm)
        if norm == 0.0:
            continue
        pivot = -norm if x[a, a] > 0 else norm
        head = x[a, a] - pivot
        x[a, a] = head
        # The vector is column a from row a on; its squared length is -2 pivot head.
        scale = -1.0 / (pivot * head)
        for b in range(a + 1, width):
            total = 0.0
            for row in range(a, n):
                total += x[row, a] * x[row, b]
            total *= scale
            for row in range(a, n):
                x[row, b] -= total * x[row, a]
        total = 0.0
        for row in range(a, n):
            total += x[row, a] * y[row]
        total *= scale
        for row in range(a, n):
            y[row] -= total * x[row, a]
        x[a, a] = pivot
        for row in range(a + 1, n):
            x[row, a] = 0.0
    rest = 0.0
    for row in range(width, n):
        rest += y[row] * y[row]
    return rest


@compiled
def factorise(x: Floats, spread: Floats, full: bool, variance: float, rows: Floats, root: Floats) -> float:
    """Factor V = variance I + X Psi X^T = K K^T, K in root (m, m). Gives log det V.

    x (m, w); spread (w, w) if full, else its diagonal in the first row; rows (m, w) is room.
    """
    n, width = x.shape
    if full:
        np.dot(x, spread, rows[:n])
    else:
        for i in range(n):
            for a in range(width):
                rows[i, a] = x[i, a] * spread[0, a]
    total = 0.0
    for i in range(n):
        for j in range(i + 1):
            value = variance if i == j else 0.0
            for a in range(width):
                value += rows[i, a] * x[j, a]
            for s in range(j):
                value -= root[i, s] * root[j, s]
            if i == j:
                # V is above variance I: less is rounding.
                root[i, i] = np.sqrt(max(value, 0.5 * variance))
                total += 2.0 * np.log(root[i, i])
            else:
                root[i, j] = value / root[j, j]
    return total


@compiled
def solve_lower(root: Floats, n: int, columns: Floats, out: Floats) -> None:
    """Give K^-1 columns. root (n, n) lower, columns (n, c) -> out (n, c)."""
    width = columns.shape[1]
    for i in range(n):
        for a in range(width):
            out[i, a] = columns[i, a]
        for s in range(i):
            factor = root[i, s]
            for a in range(width):
                out[i, a] -= factor * out[s, a]
        inverse = 1.0 / root[i, i]
        for a in range(width):
            out[i, a] *= inverse


@compiled
def _inverse_lower(root: Floats, n: int, out: Floats) -> None:
    """Give K^-1. root (n, n) lower -> out (n, n) lower."""
    for i in range(n):
        inverse = 1.0 / root[i, i]
        for j in range(i):
            total = 0.0
            for s in range(j, i):
                total -= root[i, s] * out[s, j]
            out[i, j] = total * inverse
        out[i, i] = inverse


@compiled
def _second_moments(x: Floats, n: int, out: Floats) -> None:
    """Give X^T X, its lower triangle row by row. x (n, w) -> out (t,)."""
    out[:] = 0.0
    for row in range(n):
        place = 0
        for a in range(x.shape[1]):
            factor = x[row, a]
            for b in range(a + 1):
                out[place + b] += factor * x[row, b]
            place += a + 1


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
def expect(
    x: Floats,
    y: Floats,
    offsets: Ints,
    theta: Floats,
    spread: Floats,
    full: bool,
    log_variance: Floats,
    log_weight: Floats,
    informed: Array,
) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats, Floats, Floats, Floats, Floats]:
    """Find memberships under every candidate and sum what they weigh.

    x (n, w), y (n,), theta (L, w), spread (L, w, w) or (L, 1, w), informed (C,): place of a candidate among the
    informed, or -1. Gives the sums over clients of log likelihood (C,), memberships (L,), n_i times memberships (L,),
    A (L, t), scores (L, w + 2 + v), products of memberships (C, k, k); for each kind of an informed candidate (I)
    products (I, 2 t + w, t) of A, u u^T and u with A if full, else (I, 2 + w, t) of what `_add_diagonal` adds; sides
    (I, 3, t) of `_add_sides`; (I, 2): tr V^-2 and r^T V^-3 r; and the missing information (i, k q, k q).
    """
    width, n_clients = x.shape[1], len(offsets) - 1
    count, k = log_weight.shape
    total, t = count * k, width * (width + 1) // 2
    v = t if full else width
    q = width + 2 + v
    some = informed.max() + 1
    likelihood, clients, rows = np.zeros(count), np.zeros(total), np.zeros(total)
    gram, score, overlap = np.zeros((total, t)), np.zeros((total, q)), np.zeros((count, k, k))
    tall = 2 * t + width if full else 2 + width
    products, sides, traces = np.zeros((some * k, tall, t)), np.zeros((some * k, 3, t)), np.zeros((some * k, 2))
    missing = np.zeros((some, k * q, k * q))
    piles = some * k if full else 0
    left, right = np.empty((piles, _PILE, tall)), np.empty((piles, _PILE, t))
    height = np.zeros(piles, np.int64)
    pairs = some * k * k
    ahead, behind = np.empty((pairs, _PAIRS, q)), np.empty((pairs, _PAIRS, q))
    waiting = np.zeros(pairs, np.int64)

    longest = 1
    for i in range(n_clients):
        longest = max(longest, offsets[i + 1] - offsets[i])
    most = min(longest, width)
    own_x, own_y = np.empty((longest, width)), np.empty(longest)
    room, solved, twice = np.empty((most, width)), np.empty((most, width)), np.empty((most, width))
    roots, errors = np.zeros((total, most, most)), np.empty((total, most))
    inverse, precision = np.zeros((most, most)), np.empty((most, most))
    logs, shares, own = np.empty(total), np.empty(total), np.zeros((total, q))
    a_packed, b_packed, u, w = np.empty(t), np.empty(t), np.empty(width), np.empty(width)
    back, again = np.empty(most), np.empty(most)
    variance = np.exp(log_variance).ravel()
    flat_variance, flat_weight = log_variance.ravel(), log_weight.ravel()
    for i in range(n_clients):
        first, size = offsets[i], offsets[i + 1] - offsets[i]
        own_x[:size] = x[first : first + size]
        own_y[:size] = y[first : first + size]
        rest, n, extra = 0.0, size, 0
        if size > width:
            rest = reflect(own_x[:size], own_y[:size])
            n, extra = width, size - width
        mine = own_x[:n]
        for j in range(total):
            spread_log = factorise(mine, spread[j], full, variance[j], room, roots[j])
            quadratic = rest / variance[j]
            for row in range(n):
                value = own_y[row]
                for a in range(width):
                    value -= mine[row, a] * theta[j, a]
                for s in range(row):
                    value -= roots[j, row, s] * errors[j, s]
                errors[j, row] = value / roots[j, row, row]
                quadratic += errors[j, row] * errors[j, row]
            spread_log += extra * flat_variance[j] + size * np.log(2.0 * np.pi)
            logs[j] = flat_weight[j] - 0.5 * (spread_log + quadratic)
        for c in range(count):
            top = logs[c * k : (c + 1) * k].max()
            whole = 0.0
            for j in range(c * k, (c + 1) * k):
                shares[j] = np.exp(logs[j] - top)
                whole += shares[j]
            likelihood[c] += top + np.log(whole)
            for j in range(c * k, (c + 1) * k):
                shares[j] /= whole
            for j in range(k):
                for other in range(k):
                    overlap[c, j, other] += shares[c * k + j] * shares[c * k + other]
        for j in range(total):
            share, kind = shares[j], j % k
            clients[j] += share
            rows[j] += size * share
            if share < _NEGLIGIBLE:
                continue
            asked = informed[j // k]
            solve_lower(roots[j], n, mine, solved)
            _inverse_lower(roots[j], n, inverse)
            _second_moments(solved, n, a_packed)
            trace, squares = extra / variance[j], rest / (variance[j] * variance[j])
            for row in range(n):
                back[row] = 0.0
                for s in range(row, n):
                    back[row] += inverse[s, row] * errors[j, s]
                    trace += inverse[s, row] * inverse[s, row]
                squares += back[row] * back[row]
            for a in range(width):
                u[a] = 0.0
            for row in range(n):
                for a in range(width):
                    u[a] += solved[row, a] * errors[j, row]
            mark = own[j]
            for a in range(width):
                mark[a] = u[a]
            mark[width] = 0.5 * variance[j] * (squares - trace)
            mark[width + 1] = 1.0
            _spread_score(a_packed, u, full, mark[width + 2 :])
            for a in range(q):
                score[j, a] += share * mark[a]
            for a in range(t):
                gram[j, a] += share * a_packed[a]
            if asked < 0:
                continue
            place = asked * k + kind
            # twice = V^-1 X, back = V^-1 r, precision = V^-1
            for row in range(n):
                for a in range(width):
                    twice[row, a] = 0.0
                for s in range(row, n):
                    for a in range(width):
                        twice[row, a] += inverse[s, row] * solved[s, a]
            for a in range(width):
                w[a] = 0.0
            cubes = rest / (variance[j] * variance[j] * variance[j])
            fourth = extra / (variance[j] * variance[j])
            for row in range(n):
                for a in range(width):
                    w[a] += twice[row, a] * back[row]
                again[row] = 0.0
                for s in range(row + 1):
                    again[row] += inverse[row, s] * back[s]
                    value = 0.0
                    for other in range(row, n):
                        value += inverse[other, row] * inverse[other, s]
                    fourth += value * value * (1.0 if s == row else 2.0)
                cubes += again[row] * again[row]
            _second_moments(twice, n, b_packed)
            _add_sides(a_packed, b_packed, u, w, share, sides[place])
            traces[place, 0] += share * fourth
            traces[place, 1] += share * cubes
            if full:
                top = height[place]
                spot = 0
                for a in range(width):
                    for b in range(a + 1):
                        left[place, top, spot + b] = share * a_packed[spot + b]
                        left[place, top, t + spot + b] = share * u[a] * u[b]
                        right[place, top, spot + b] = a_packed[spot + b]
                    left[place, top, 2 * t + a] = share * u[a]
                    spot += a + 1
                height[place] = top + 1
                if top + 1 == _PILE:
                    products[place] += np.dot(left[place].T, right[place])
                    height[place] = 0
            else:
                flat = products[place]
                _add_diagonal(a_packed, u, share, flat[0], flat[1], flat[2:, :width])
        for c in range(count):
            if informed[c] < 0 or k == 1:
                continue
            for j in range(k):
                mine_share = shares[c * k + j]
                if mine_share * (1.0 - mine_share) <= _WAVERING:
                    continue
                for other in range(j, k):
                    their_share = shares[c * k + other]
                    if their_share * (1.0 - their_share) <= _WAVERING:
                        continue
                    pair = (informed[c] * k + j) * k + other
                    weight = mine_share * (1.0 - mine_share if j == other else -their_share)
                    top = waiting[pair]
                    for a in range(q):
                        ahead[pair, top, a] = weight * own[c * k + j, a]
                        behind[pair, top, a] = own[c * k + other, a]
                    waiting[pair] = top + 1
                    if top + 1 == _PAIRS:
                        _take_up(missing, informed[c], j, other, ahead[pair], behind[pair], q)
                        waiting[pair] = 0
    for place in range(piles):
        h = height[place]
        products[place] += np.dot(left[place, :h].T, right[place, :h])
    for pair in range(pairs):
        h = waiting[pair]
        if h > 0:
            j, other = pair // k % k, pair % k
            _take_up(missing, pair // (k * k), j, other, ahead[pair, :h], behind[pair, :h], q)
    return likelihood, clients, rows, gram, score, overlap, products, sides, traces, missing


@compiled
def _take_up(missing: Floats, place: int, j: int, other: int, ahead: Floats, behind: Floats, q: int) -> None:
    """Add a pile of pairs of scores (h, q) to the missing information (i, k q, k q)."""
    block = np.dot(ahead.T, behind)
    missing[place, j * q : (j + 1) * q, other * q : (other + 1) * q] += block
    if other != j:
        missing[place, other * q : (other + 1) * q, j * q : (j + 1) * q] += block.T
