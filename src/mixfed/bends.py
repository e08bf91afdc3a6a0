"""Compiled mathematics of personal models: what one client says of the curvature of the likelihood, for one kind.

See `marginal`, whose sums these are part of.

Shapes: m rows, k kinds, w features, t = w (w + 1) / 2, q numbers of a kind, h clients in a pile.
"""

from __future__ import annotations

import numpy as np

from .arrays import Floats, Ints
from .compiled import compiled
from .fewrows import inverse_lower

_WAVERING = 1e-5
"""A client with p_j (1 - p_j) below this misses no information about kind j worth the name."""
PILE, PAIRS = 64, 32
"""Clients of a kind, and of a pair of kinds, that are gathered before BLAS multiplies them."""


@compiled
def noise_bends(root: Floats, solved: Floats, back: Floats, scale: float, twice: Floats, w: Floats) -> float:
    """Give V^-1 X -> twice (m, w) and w = X^T V^-2 r -> (w,), both times scale, and r^T V^-3 r.

    root (m, m), solved = K^-1 X (m, w), back = V^-1 r (m,).
    """
    n, width = solved.shape
    again, cubes = np.empty(n), 0.0
    for a in range(width):
        w[a] = 0.0
    for row in range(n - 1, -1, -1):
        for a in range(width):
            twice[row, a] = scale * solved[row, a]
        for s in range(row + 1, n):
            factor = root[s, row]
            for a in range(width):
                twice[row, a] -= factor * twice[s, a]
        for a in range(width):
            twice[row, a] *= root[row, row]
            w[a] += twice[row, a] * back[row]
    for row in range(n):
        value = back[row]
        for s in range(row):
            value -= root[row, s] * again[s]
        again[row] = value * root[row, row]
        cubes += again[row] * again[row]
    return cubes


@compiled
def wavers(share: float) -> bool:
    """Say whether a membership leaves a client's kind open."""
    return share * (1.0 - share) > _WAVERING


@compiled
def client_score(
    root: Floats,
    n: int,
    a_packed: Floats,
    u: Floats,
    squares: float,
    variance: float,
    extra: int,
    full: bool,
    inverse: Floats,
    out: Floats,
) -> None:
    """Give the derivatives of a client's log density -> out (q,). squares = r^T V^-2 r, inverse (m, m) is for use."""
    width, trace = len(u), extra / variance
    inverse_lower(root, n, inverse)
    for row in range(n):
        for s in range(row + 1):
            trace += inverse[row, s] * inverse[row, s]
    for a in range(width):
        out[a] = u[a]
    out[width] = 0.5 * variance * (squares - trace)
    out[width + 1] = 1.0
    _spread_score(a_packed, u, full, out[width + 2 :])


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
def add_diagonal(a_packed: Floats, u: Floats, share: float, left: Floats, right: Floats, cross: Floats) -> None:
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
def pile_up(a_packed: Floats, u: Floats, share: float, left: Floats, right: Floats) -> None:
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
def add_pairs(
    shares: Floats, own: Floats, place: int, ahead: Floats, behind: Floats, waiting: Ints, missing: Floats
) -> None:
    """Pile up the scores, own (k, q), of pairs of kinds between which a client wavers, shares (k,)."""
    k, q = own.shape
    for j in range(k):
        if not wavers(shares[j]):
            continue
        for other in range(j, k):
            if not wavers(shares[other]):
                continue
            pair = (place * k + j) * k + other
            weight = shares[j] * (1.0 - shares[j] if j == other else -shares[other])
            top = waiting[pair]
            for a in range(q):
                ahead[pair, top, a] = weight * own[j, a]
                behind[pair, top, a] = own[other, a]
            waiting[pair] = top + 1
            if top + 1 == PAIRS:
                take_up(missing, place, j, other, ahead[pair], behind[pair])
                waiting[pair] = 0


@compiled
def take_up(missing: Floats, place: int, j: int, other: int, ahead: Floats, behind: Floats) -> None:
    """Add a pile of pairs of scores (h, q) to the missing information (i, k q, k q)."""
    q, block = ahead.shape[1], np.dot(ahead.T, behind)
    missing[place, j * q : (j + 1) * q, other * q : (other + 1) * q] += block
    if other != j:
        missing[place, other * q : (other + 1) * q, j * q : (j + 1) * q] += block.T
