"""What one block of clients says about candidates, in compiled code: `plain.mixture`, whose words are used here.

Rows are taken in tiles that stay in the cache: shifted and scaled (x), multiplied with all models at once, turned into
memberships, and summed into scores and normal equations. Products are in the precision of phi, sums over tiles in
float64.

Shapes: n rows, m clients, C candidates, k kinds, L = C k models, D columns with the intercept.
"""

import numpy as np

from ...core.arrays import Array, Floats, Ints
from ...core.compile import compiled
from ...families.base import SQUARED
from ..plain.mixture import NEGLIGIBLE, NEGLIGIBLE_SINGLE, WAVERING
from .products import add_products, add_squares, gather
from .tiles import most_rows, scale_rows, tile_end, tile_losses

_PILE = 768
"""Bytes of a column of rows of a kind that are gathered before they are multiplied: with 32 features they stay in a
core's first cache, and all piles in its second."""
_PAIRS = 64
"""Clients of a pair of kinds are gathered by so many."""
_FAR = -40.0
"""exp of less is below rounding."""
_CODE = SQUARED.code


@compiled
def exponentials(values: Floats) -> None:
    """Replace numbers (n,) that are not above 0 by their exponentials, to 1e-14 of each.

    exp(v) = exp(v / 128)^128, by a polynomial and seven squarings: the compiler does many of them at once.
    """
    for i in range(len(values)):
        t = max(values[i], _FAR) / 128.0
        p = 1.0 / 479001600.0
        p = p * t + 1.0 / 39916800.0
        p = p * t + 1.0 / 3628800.0
        p = p * t + 1.0 / 362880.0
        p = p * t + 1.0 / 40320.0
        p = p * t + 1.0 / 5040.0
        p = p * t + 1.0 / 720.0
        p = p * t + 1.0 / 120.0
        p = p * t + 1.0 / 24.0
        p = p * t + 1.0 / 6.0
        p = p * t + 0.5
        p = p * t + 1.0
        p = p * t + 1.0
        p *= p
        p *= p
        p *= p
        p *= p
        p *= p
        p *= p
        p *= p
        values[i] = p if values[i] > _FAR else 0.0


@compiled
def _posterior(
    losses: Floats,
    rows: Array,
    log_variance: Floats,
    log_weight: Floats,
    hard: bool,
    membership: Floats,
    top: Floats,
    whole: Floats,
) -> None:
    """Turn losses, half the squared residuals (m, C, k), into memberships (m, C, k). All are in C order.

    A client's log likelihood is top + log(whole), (m, C) each, top being the largest of its kinds': logarithms take
    long, and one of a product does for many clients.
    """
    clients, count, k = losses.shape
    half_spread = (0.5 * (np.log(2.0 * np.pi) + log_variance)).ravel()
    precision, prior = np.exp(-log_variance).ravel(), log_weight.ravel()
    flat, loss = membership.reshape(clients, count * k), losses.reshape(clients, count * k)
    for i in range(clients):
        for j in range(count * k):
            flat[i, j] = prior[j] - rows[i] * half_spread[j] - loss[i, j] * precision[j]
    for i in range(clients):
        for c in range(count):
            best = flat[i, c * k]
            for j in range(c * k + 1, (c + 1) * k):
                best = max(best, flat[i, j])  # without a jump that cannot be foreseen
            top[i, c], whole[i, c] = best, 1.0
            for j in range(c * k, (c + 1) * k):
                flat[i, j] -= best
            if hard:
                own = c * k
                while flat[i, own] < 0.0:
                    own += 1
                for j in range(c * k, (c + 1) * k):
                    flat[i, j] = 0.0 if j == own else 2.0 * _FAR
    exponentials(flat.ravel())
    if hard:
        return
    for i in range(clients):
        for c in range(count):
            total = 0.0
            for j in range(c * k, (c + 1) * k):
                total += flat[i, j]
            whole[i, c] = total
            inverse = 1.0 / total
            for j in range(c * k, (c + 1) * k):
                flat[i, j] *= inverse


@compiled
def log_likelihood(top: Floats, whole: Floats, out: Floats) -> None:
    """Add up the log likelihoods of clients as `posterior` gives them, (m, C) each. -> out (C,)."""
    for c in range(len(out)):
        total, product = 0.0, 1.0
        for i in range(len(top)):
            total += top[i, c]
            product *= whole[i, c]
            if product > 1e100:
                total, product = total + np.log(product), 1.0
        out[c] += total + np.log(product)


@compiled
def _add_shares(membership: Floats, losses: Floats, offsets: Ints, clients: Floats, rows: Floats, loss: Floats) -> None:
    """Add the memberships (m, L) of some clients to ``clients`` (L,), and times their rows and losses to the others."""
    for i in range(len(membership)):
        n_rows = offsets[i + 1] - offsets[i]
        for j in range(len(clients)):
            clients[j] += membership[i, j]
            rows[j] += n_rows * membership[i, j]
            loss[j] += membership[i, j] * losses[i, j]


@compiled
def _take_up(gram: Floats, pile: Array, p: int) -> None:
    """Add the second moments of pile p to those of its kind (L, D (D + 1) / 2), or take them away."""
    if p < len(gram):
        add_squares(gram[p], pile, 1.0)
    else:
        add_squares(gram[p - len(gram)], pile, -1.0)


@compiled
def _add_missing_information(
    phi: Array,
    y: Floats,
    offsets: Ints,
    centre: Array,
    inverse_sd: Array,
    target_centre: float,
    target_unit: float,
    models: Array,
    membership: Floats,
    losses: Floats,
    precision: Floats,
    total: Floats,
) -> None:
    """Add the covariance of clients' complete scores over the kinds, by pairs of these, to a total.

    models (D, k), membership (m, k), losses (m, k), half the squared residuals -> total (k (k + 1) / 2, q, q). The
    score s_j of kind j is that of (theta_j, log variance_j, log weight_j), q = D + 2, and the covariance has blocks
    w_j (1 - w_j) s_j s_j^T and - w_j w_l s_j s_l^T, of which those with j < l are given. A client that is sure of its
    kind has none, and most others waver between two: so the pairs of kinds are gathered, not the clients.
    """
    width, k = models.shape
    q, size, pairs = width + 2, most_rows(offsets), k * (k + 1) // 2
    x, predicted = np.empty((size, width), phi.dtype), np.empty((size, k), phi.dtype)
    score, active = np.zeros((k, q)), np.empty(k, np.int64)
    left, right = np.empty((pairs, _PAIRS, q)), np.empty((pairs, _PAIRS, q))
    height = np.zeros(pairs, np.int64)
    for i in range(len(offsets) - 1):
        count = 0
        for j in range(k):
            if membership[i, j] * (1.0 - membership[i, j]) > WAVERING:
                active[count] = j
                count += 1
        if count == 0:
            continue
        n_rows = offsets[i + 1] - offsets[i]
        scale_rows(phi, offsets[i], offsets[i + 1], centre, inverse_sd, x)
        np.dot(x[:n_rows], models, predicted[:n_rows])
        for j in active[:count]:
            own = score[j]
            own[:] = 0.0
            for row in range(n_rows):
                residual = precision[j] * ((y[offsets[i] + row] - target_centre) / target_unit - predicted[row, j])
                for m in range(width):
                    own[m] += residual * x[row, m]
            own[width] = losses[i, j] * precision[j] - 0.5 * n_rows
            own[width + 1] = 1.0
        for a in active[:count]:
            for b in active[:count]:
                if b < a:
                    continue
                weight = membership[i, a] * (1.0 - membership[i, a] if a == b else -membership[i, b])
                pair = a * (2 * k - a - 1) // 2 + b
                h = height[pair]
                for m in range(q):
                    left[pair, h, m] = weight * score[a, m]
                    right[pair, h, m] = score[b, m]
                height[pair] = h + 1
                if h + 1 == _PAIRS:
                    add_products(total[pair], left[pair], right[pair])
                    height[pair] = 0
    for pair in range(pairs):
        if height[pair] > 0:
            add_products(total[pair], left[pair, : height[pair]], right[pair, : height[pair]])


@compiled
def _put(values: Floats, out: Floats, row: int, place: int) -> int:
    """Write values into a row from a place on, and give the place behind them."""
    for i in range(len(values)):
        out[row, place + i] = values[i]
    return place + len(values)


@compiled
def mixture_sums(
    phi: Array,
    y: Floats,
    offsets: Ints,
    centre: Array,
    inverse_sd: Array,
    target_centre: float,
    target_unit: float,
    models: Array,
    log_variance: Floats,
    log_weight: Floats,
    hard: bool,
    curvature: bool,
    informed: Ints,
    before: Floats,
) -> tuple[Floats, Floats, Floats]:
    """Find memberships under every candidate and sum what they weigh. models (D, L), in the precision of phi.

    If memberships ``before`` (m, L) are given, second moments are summed as differences from those with them, which
    only touches clients whose membership has moved; else ``before`` is (0, L).

    Gives for each candidate the sums over clients of log likelihood, memberships (k,), n_i times memberships (k,),
    weighted squared residuals (k,), products of memberships (k, k), scores x r (k, D) and, with ``curvature``, packed
    second moments of x (k, D (D + 1) / 2), all in a row; then, for each ``informed`` candidate, the covariance of
    clients' scores (k (k + 1) / 2, D + 2, D + 2); and the memberships of each client (m, L).
    """
    width, total = models.shape
    count, k = log_weight.shape
    n_clients, size = len(offsets) - 1, most_rows(offsets)
    x, predicted = np.empty((size, width), phi.dtype), np.empty((size, total), phi.dtype)
    target, weights = np.empty(size, phi.dtype), np.empty(total, phi.dtype)
    losses, membership = np.empty((n_clients, total)), np.empty((n_clients, total))
    top, whole, likelihood = np.empty((size, count)), np.empty((size, count)), np.zeros(count)
    active = np.empty(total + 1, np.int64)
    clients, rows, loss = np.zeros(total), np.zeros(total), np.zeros(total)
    score = np.zeros((total, width))
    gram = np.zeros((total if curvature else 0, width * (width + 1) // 2))
    known = len(before) > 0
    # What is gained is gathered first, what is lost in a second half.
    piles = 2 * total if known else total
    room, negligible = _PILE // phi.itemsize, NEGLIGIBLE if phi.itemsize == 8 else NEGLIGIBLE_SINGLE
    pile, height = np.empty((piles, room, width), phi.dtype), np.zeros(piles, np.int64)
    sizes = offsets[1:] - offsets[:-1]
    begin = 0
    while begin < n_clients:
        end = tile_end(offsets, begin)
        first, tile = offsets[begin], offsets[end] - offsets[begin]
        scale_rows(phi, first, first + tile, centre, inverse_sd, x)
        for row in range(tile):
            target[row] = (y[first + row] - target_centre) / target_unit
        np.dot(x[:tile], models, predicted[:tile])
        tile_losses(_CODE, target, predicted[:tile], offsets[begin : end + 1], losses[begin:end])
        shape = (end - begin, count, k)
        left, shares = losses[begin:end].reshape(shape), membership[begin:end].reshape(shape)
        _posterior(left, sizes[begin:end], log_variance, log_weight, hard, shares, top, whole)
        log_likelihood(top[: end - begin], whole, likelihood)
        _add_shares(membership[begin:end], losses[begin:end], offsets[begin : end + 1], clients, rows, loss)
        for i in range(begin, end):
            a, b = offsets[i] - first, offsets[i + 1] - first
            moving = 0
            for j in range(total):  # without a jump that cannot be foreseen
                weights[j] = membership[i, j]
                active[moving] = j
                moving += abs(membership[i, j] - (before[i, j] if known else 0.0)) > negligible
            for j in active[: moving if curvature else 0]:
                moved = membership[i, j] - (before[i, j] if known else 0.0)
                root, p = phi.dtype.type(np.sqrt(abs(moved))), j if moved > 0 else total + j
                row = a
                while row < b:
                    if height[p] == room:
                        _take_up(gram, pile[p], p)
                        height[p] = 0
                    some = min(b - row, room - height[p])
                    gather(x, row, row + some, root, pile[p], height[p])
                    height[p] += some
                    row += some
            for row in range(a, b):
                for j in range(total):
                    predicted[row, j] = weights[j] * (target[row] - predicted[row, j])
        add_products(score, predicted[:tile], x[:tile])
        begin = end
    for p in range(piles if curvature else 0):
        if height[p] > 0:
            _take_up(gram, pile[p, : height[p]], p)
    numbers = np.empty((count, 1 + k * (3 + k + width + gram.shape[1] * curvature)))
    for c in range(count):
        own = np.ascontiguousarray(membership[:, c * k : (c + 1) * k])
        numbers[c, 0], end = likelihood[c], 1
        for part in (clients, rows, 2.0 * loss):  # squared residuals
            end = _put(part[c * k : (c + 1) * k], numbers, c, end)
        end = _put(np.dot(own.T, own).ravel(), numbers, c, end)
        for table in (score, gram):
            end = _put(table[c * k : (c + 1) * k].ravel(), numbers, c, end)
    missing = np.zeros((len(informed), k * (k + 1) // 2, width + 2, width + 2))
    for i in range(len(informed)):
        c = informed[i]
        own, mine, lost = (
            models[:, c * k : (c + 1) * k].copy(),
            membership[:, c * k : (c + 1) * k],
            losses[:, c * k : (c + 1) * k],
        )
        units = (centre, inverse_sd, target_centre, target_unit)
        _add_missing_information(phi, y, offsets, *units, own, mine, lost, np.exp(-log_variance[c]), missing[i])
    return numbers, missing, membership
