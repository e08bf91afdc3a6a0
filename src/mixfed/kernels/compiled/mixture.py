"""What one block of clients says about candidates, in compiled code: `plain.mixture`, whose words are used here.

Rows are taken in tiles that stay in the cache, column by column: shifted and scaled (x), multiplied with all models at
once, turned into residuals and memberships, and summed into scores and normal equations. Products are in the precision
of phi, sums over tiles in float64.

Shapes: n rows, m clients, C candidates, k kinds, L = C k models, D columns with the intercept.
"""

import numpy as np

from ...core.arrays import Array, Floats, Ints
from ...core.compile import compiled
from ..plain.mixture import NEGLIGIBLE, NEGLIGIBLE_SINGLE, WAVERING, in_rows
from .products import LINE, TOGETHER, add_inner_products, add_second_moments, lined
from .tiles import most_rows, standardise_columns, tiles

_FAR = -40.0
"""exp of less is below rounding."""


def _whole(rows: int, like: Array) -> int:
    """Give the least number from ``rows`` on of which a column takes whole lines of the cache."""
    return rows + -rows % (LINE // like.itemsize)


@compiled
def exponentials(values: Floats) -> None:
    """Replace numbers (n,) that are not above 0 by their exponentials, to 1e-14 of each; below -40 they are 0.

    exp(v) = exp(v / 128)^128, by a polynomial and seven squarings: the compiler does many of them at once.
    """
    for i in range(len(values)):
        t = values[i] / 128.0
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
        values[i] = 0.0 if values[i] <= _FAR else p  # what is no number stays so


@compiled
def _posterior(
    losses: Floats,
    rows: Array,
    log_variance: Floats,
    log_weight: Floats,
    hard: bool,
    membership: Floats,
    likelihood: Floats,
) -> None:
    """Turn losses, half the squared residuals (m, C, k), into memberships (m, C, k); add to log likelihoods (C,).

    Of the sums over kinds, products are taken before logarithms: these take long, and one does for many clients.
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
            likelihood[c] += best
            for j in range(c * k, (c + 1) * k):
                flat[i, j] -= best
            if hard:
                own = c * k
                while own < (c + 1) * k - 1 and flat[i, own] < 0.0:
                    own += 1
                for j in range(c * k, (c + 1) * k):
                    flat[i, j] = 0.0 if j == own else 2.0 * _FAR
    exponentials(flat.ravel())
    if hard:
        return
    for c in range(count):
        product = 1.0
        for i in range(clients):
            total = 0.0
            for j in range(c * k, (c + 1) * k):
                total += flat[i, j]
            product *= total
            if product > 1e100:
                likelihood[c] += np.log(product)
                product = 1.0
            inverse = 1.0 / total
            for j in range(c * k, (c + 1) * k):
                flat[i, j] *= inverse
        likelihood[c] += np.log(product)


@compiled
def _predict(models: Array, x: Array, target: Array, residual: Array) -> None:
    """Subtract what models (L, D) say of columns x (D, n) from the target (n,). -> residual (L, n)."""
    for j in range(len(models)):
        left = residual[j]
        for row in range(len(left)):
            left[row] = target[row]
        for m in range(len(x)):
            factor, column = models[j, m], x[m]
            for row in range(len(left)):
                left[row] -= factor * column[row]


@compiled
def _add_missing_information(
    phi: Array,
    offsets: Ints,
    centre: Array,
    inverse_sd: Array,
    residual: Array,
    membership: Floats,
    losses: Floats,
    precision: Floats,
    score: Floats,
    total: Floats,
) -> None:
    """Add the covariance of clients' complete scores over the kinds, by pairs of these, to a total.

    offsets (m + 1,) of the clients of a tile, their residuals (k, n), memberships (m, k), losses (m, k), half the
    squared residuals -> total (k (k + 1) / 2, q, Q), q = D + 2, of which Q - q columns make lines whole. A client that
    is sure of its kind has none, and most others waver between two. score (k, Q) is for use.
    """
    (k, _), dim = score.shape, len(centre)
    for i in range(len(membership)):
        begin, end = offsets[i], offsets[i + 1]
        for j in range(k):
            if membership[i, j] * (1.0 - membership[i, j]) <= WAVERING:
                continue
            own = score[j]
            own[:] = 0.0
            for row in range(begin, end):
                factor, x = precision[j] * residual[j, row - offsets[0]], phi[row]
                for m in range(len(x)):
                    own[m] += factor * ((x[m] - centre[m]) * inverse_sd[m])
                for m in range(len(x), dim):
                    own[m] += factor * ((1 - centre[m]) * inverse_sd[m])
            own[dim], own[dim + 1] = losses[i, j] * precision[j] - 0.5 * (end - begin), 1.0
            pair = j
            for other in range(j + 1):  # whose scores are there by now
                if membership[i, other] * (1.0 - membership[i, other]) > WAVERING:
                    weight = membership[i, j] * (1.0 - membership[i, j] if other == j else -membership[i, other])
                    for a in range(dim + 2):
                        factor, line = weight * score[other, a], total[pair, a]
                        for b in range(len(line)):
                            line[b] += factor * own[b]
                pair += k - 1 - other


@compiled
def _block_sums(
    phi: Array,
    y: Floats,
    offsets: Ints,
    centre: Array,
    inverse_sd: Array,
    about: Floats,
    models: Array,
    log_variance: Floats,
    log_weight: Floats,
    hard: bool,
    curvature: bool,
    informed: Ints,
    before: Floats,
    edges: Ints,
    columns: Array,
    fitted: Array,
    picked: Array,
    room: Array,
    score_of: Floats,
    membership: Floats,
    losses: Floats,
    missing: Floats,
) -> tuple[Floats, Floats, Floats]:
    """Sum log likelihoods (C,), scores (L, D) and, with ``curvature``, second moments (L, D (D + 1) / 2).

    models (L, D). Memberships (m, L) and losses (m, L), half the squared residuals, are filled in; what memberships
    miss is added to ``missing`` (i, ., ., .). Tiles end at ``edges``; columns, fitted, and room (D, L and 3 times
    the rows of the largest, in whole lines), picked (D times 512) and score_of (k, Q) are for use.
    """
    total, width = models.shape
    count, k = log_weight.shape
    most, lane = len(room) // 3, LINE // phi.itemsize
    target, weight, product = room[:most], room[most : 2 * most], room[2 * most :]
    owner, which = np.zeros(most, np.uint32), np.zeros(most, np.uint32)
    likelihood, score = np.zeros(count), np.zeros((total, width))
    gram = np.zeros((total if curvature else 0, width * (width + 1) // 2))
    negligible = NEGLIGIBLE if phi.itemsize == 8 else NEGLIGIBLE_SINGLE
    precision, known = np.exp(-log_variance), len(before) > 0
    for place in range(len(edges) - 1):
        begin, end = edges[place], edges[place + 1]
        own = offsets[begin : end + 1] - offsets[begin]
        n = own[-1] + -own[-1] % lane
        x, residual = columns[: width * n].reshape(width, n), fitted[: total * n].reshape(total, n)
        standardise_columns(phi, y, offsets[begin], offsets[end], centre, inverse_sd, about, x, target)
        _predict(models, x, target, residual)
        for i in range(end - begin):
            for row in range(own[i], own[i + 1]):
                owner[row] = begin + i
        for row in range(own[-1]):
            for j in range(total):
                losses[owner[row], j] += 0.5 * np.float64(residual[j, row]) ** 2
        shape = (end - begin, count, k)
        left, shares = losses[begin:end].reshape(shape), membership[begin:end].reshape(shape)
        _posterior(left, own[1:] - own[:-1], log_variance, log_weight, hard, shares, likelihood)
        for i in range(len(informed)):
            c = informed[i]
            rows, mixture = (
                (phi, offsets[begin : end + 1], centre, inverse_sd),
                (shares[:, c], left[:, c], precision[c]),
            )
            _add_missing_information(*rows, residual[c * k : (c + 1) * k], *mixture, score_of, missing[i])
        for row in range(own[-1]):
            for j in range(total):
                residual[j, row] *= membership[owner[row], j]
        add_inner_products(score, residual, x)
        for j in range(total if curvature else 0):
            picks = 0
            for row in range(own[-1]):  # without jumps that cannot be foreseen
                share = membership[owner[row], j]
                moved = (share - before[owner[row], j]) if known else share
                which[picks], weight[picks] = row, moved
                picks += abs(moved) > negligible
            filled = picks + -picks % lane
            for row in range(picks, filled):
                which[row], weight[row] = 0, 0.0
            for first in range(0, filled, TOGETHER):
                n = min(TOGETHER, filled - first)
                some = picked[: width * n].reshape(width, n)
                for m in range(width):
                    for row in range(n):
                        some[m, row] = x[m, which[first + row]]
                add_second_moments(gram[j], some, weight[first : first + n], product)
    return likelihood, score, gram


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
    """Do what the plain kernel does. models (D, L) are in the precision of phi.

    If memberships ``before`` (m, L) are given, only clients whose membership has moved are looked at for second
    moments.
    """
    (width, total), k, edges = models.shape, log_weight.shape[1], tiles(offsets)
    most, wide = _whole(most_rows(offsets, edges), phi), _whole(width + 2, y)
    rows = phi, y, offsets, centre, inverse_sd, np.array([target_centre, target_unit])
    mixture = np.ascontiguousarray(models.T), log_variance, log_weight
    columns, fitted, others = (lined((high * most,), phi) for high in (width, total, 3))
    picked = lined((width * TOGETHER,), phi)
    score, missing = lined((k, wide), y), lined((len(informed), k * (k + 1) // 2, width + 2, wide), y)
    membership, loss = np.empty((len(offsets) - 1, total)), np.zeros((len(offsets) - 1, total))
    room = columns, fitted, picked, others, score
    found = membership, loss, missing
    sums = _block_sums(*rows, *mixture, hard, curvature, informed, before, edges, *room, *found)
    likelihood, scores, gram = sums
    numbers = in_rows(likelihood, membership, loss, np.diff(offsets), scores, *([gram] if curvature else []))
    return numbers, missing[..., : width + 2], membership
