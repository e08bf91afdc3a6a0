"""Compiled mathematics of personal models: what clients say of the curvature of the likelihood.

See `random_effects`, whose sums these are part of.

Shapes: m rows, k kinds, w features, t = w (w + 1) / 2, q numbers of a kind.
"""

import numpy as np

from ...core.arrays import Floats, Ints
from ...core.compile import compiled
from ..plain.random_effects import CURVED, WAVERING
from .products import add_products
from .small_matrices import inverse_lower, packed_moments


@compiled
def observed_information(
    heap: Floats,
    pulls: Floats,
    kept: Ints,
    shares: Floats,
    about: Floats,
    roots: Floats,
    backs: Floats,
    variance: float,
    full: bool,
    twice: Floats,
    leans: Floats,
    left: Floats,
    right: Floats,
    products: Floats,
    side: Floats,
    seats: Ints,
    own: Floats,
) -> float:
    """Add what the clients of a tile say of the curvature to products (tall, t) and side (w,); gives r^T V^-3 r.

    heap (h, w), pulls (p, w), kept (p + 1, 2), backs (n,) as `random_effects` makes them for one model. twice (h or
    more, w) gets V^-1 X, leans (p or more, w) gets w, both by the root of the membership, and own (o, q) the scores of
    clients who waver, at their seats (m,); left (m, tall) and right (m, t) are for use.
    """
    cubes, top = 0.0, 0
    most, width = roots.shape[1], heap.shape[1]
    inverse, again, line = np.empty((most, most)), np.empty(most), np.empty(width)
    for spot in range(len(pulls)):
        i, low, high = kept[spot, 0], kept[spot, 1], kept[spot + 1, 1]
        share, first, n, w = shares[i], int(about[i, 0]), high - low, leans[spot]
        if share < CURVED:
            twice[low:high], w[:] = 0.0, 0.0
            continue
        solved, u, root, back = heap[low:high], pulls[spot], roots[first : first + n], backs[first : first + n]
        rest, scale = about[i, 2] / (variance * variance), np.sqrt(share)
        cubes += share * (noise_information(root, solved, back, again, twice[low:high], w) + rest / variance)
        for a in range(width):
            side[a] += scale * w[a]
        a_packed = right[top]
        packed_moments(solved, n, line, a_packed)
        if full:
            pile_up(a_packed, u, scale, left[top])
        a_packed /= share
        if not full:
            add_diagonal(a_packed, u, share, products[0], products[1], products[2:, :width])
        if wavers(share):
            squares, extra = rest, about[i, 1] - n
            for row in range(n):
                squares += back[row] * back[row]
            client_score(root, n, a_packed, u, scale, squares, variance, extra, full, inverse, own[seats[i]])
        top += 1
    if full:
        add_products(products, left[:top], right[:top])
    return cubes


@compiled
def noise_information(root: Floats, solved: Floats, back: Floats, again: Floats, twice: Floats, w: Floats) -> float:
    """Give K^-T solved -> twice (m, w) and its product with V^-1 r -> w (w,), and r^T V^-3 r.

    root (m, m), solved = K^-1 X (m, w), back = V^-1 r (m,); again (m or more,) is for use.
    """
    (n, width), cubes = solved.shape, 0.0
    for a in range(width):
        w[a] = 0.0
    for row in range(n - 1, -1, -1):
        for a in range(width):
            twice[row, a] = solved[row, a]
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
    return share * (1.0 - share) > WAVERING


@compiled
def client_score(
    root: Floats,
    n: int,
    a_packed: Floats,
    u: Floats,
    scale: float,
    squares: float,
    variance: float,
    extra: float,
    full: bool,
    inverse: Floats,
    out: Floats,
) -> None:
    """Give the derivatives of a client's log density -> out (q,).

    u (w,) is scale times its own, squares = r^T V^-2 r, inverse (m, m) is for use.
    """
    width, trace = len(u), extra / variance
    inverse_lower(root, n, inverse)
    for row in range(n):
        for s in range(row + 1):
            trace += inverse[row, s] * inverse[row, s]
    for a in range(width):
        out[a] = u[a] / scale
    out[width] = 0.5 * variance * (squares - trace)
    out[width + 1] = 1.0
    _psi_score(a_packed, out[:width], full, out[width + 2 :])


@compiled
def _psi_score(a_packed: Floats, u: Floats, full: bool, out: Floats) -> None:
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
    """Add A_ab^2 to left (t,), u_a u_b A_ab to right (t,) and A_ab u_b to cross (w, w), by share.

    u (w,) is times the root of the share.
    """
    place, scale = 0, np.sqrt(share)
    for a in range(len(u)):
        for b in range(a + 1):
            value = a_packed[place + b]
            left[place + b] += share * value * value
            right[place + b] += value * u[a] * u[b]
            cross[a, b] += scale * value * u[b]
            if b < a:
                cross[b, a] += scale * value * u[a]
        place += a + 1


@compiled
def pile_up(a_packed: Floats, u: Floats, scale: float, left: Floats) -> None:
    """Make a row of a pile: u u^T - A / 2, scale u and, if there is room, A in left (t + w + t,)."""
    t, width, spot = len(a_packed), len(u), 0
    for a in range(width):
        factor = u[a]
        # As in `packed_moments`, the next row overwrites what is beyond the diagonal.
        for b in range(width):
            left[spot + b] = factor * u[b] - 0.5 * a_packed[spot + b]
        left[t + a] = scale * factor
        spot += a + 1
    for a in range(len(left) - t - width):
        left[t + width + a] = a_packed[a]


@compiled
def seat(shares: Floats, taken: int, seats: Ints, kept: Floats) -> int:
    """Give those of a tile's clients who waver seats (m,) behind those that are taken; says how many are, then.

    shares (k, m) go to the same places of kept (k, o).
    """
    k, count = shares.shape
    for i in range(count):
        unsure = False
        for j in range(k):
            unsure = unsure or wavers(shares[j, i])
        if unsure:
            seats[i] = taken
            for j in range(k):
                kept[j, taken] = shares[j, i]
            taken += 1
    return taken


@compiled
def add_pairs(shares: Floats, own: Floats, ahead: Floats, behind: Floats, missing: Floats) -> None:
    """Add the products of scores, own (k, o, q), of kinds between which clients waver, shares (k, o), to missing.

    missing (k (k + 1) / 2, q, q) has the pairs of kinds, the first before the second. ahead and behind (o, q)
    are for use.
    """
    (k, count), q, pair = shares.shape, own.shape[2], 0
    for j in range(k):
        for other in range(j, k):
            top = 0
            for i in range(count):
                if not (wavers(shares[j, i]) and wavers(shares[other, i])):
                    continue
                weight = shares[j, i] * (1.0 - shares[j, i] if j == other else -shares[other, i])
                for a in range(q):
                    ahead[top, a] = weight * own[j, i, a]
                    behind[top, a] = own[other, i, a]
                top += 1
            add_products(missing[pair], ahead[:top], behind[:top])
            pair += 1
