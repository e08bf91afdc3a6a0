"""Compiled mathematics of Phase 2 over packed clients: arrays in, arrays out, no input or output, no classes.

A kernel serves one block of clients: their rows phi (n, d), targets y (n,) and offsets (c + 1,). It takes the rows in
tiles that stay in the cache while memberships are found and local models move. Products are in the precision of phi,
sums over clients in float64.

Shapes: n rows, c clients, k clusters, d features.
"""

from __future__ import annotations

import numpy as np

from .arrays import Array, Floats, Ints
from .compiled import compiled, inlined
from .lanes import LANES, doubled, read, write, zeros
from .losses import slope, value
from .products import SPARE, in_eights, multiply

FEDAVG, FEDPROX = 0, 1
TILE = 512
"""Rows of a tile: with 32 features it takes half of a core's second cache at most."""


@compiled
def tile_end(offsets: Ints, begin: int) -> int:
    """Give the end of the tile of whole clients that begins with client ``begin``; a large client is a tile."""
    end = begin + 1
    while end < len(offsets) - 1 and offsets[end + 1] - offsets[begin] <= TILE:
        end += 1
    return end


@compiled
def most_rows(offsets: Ints) -> int:
    """Give the rows of the largest tile."""
    most = TILE
    for i in range(len(offsets) - 1):
        most = max(most, offsets[i + 1] - offsets[i])
    return most


@compiled
def tile_losses(code: int, y: Array, predicted: Array, offsets: Ints, begin: int, end: int, out: Array) -> None:
    """Loss of each client of a tile under each model. y (n,), predicted (n, k) -> out (c, k), both with lanes to spare.

    What is written beyond the k of a client is the next one's, which comes later.
    """
    first = offsets[begin]
    for i in range(end - begin):
        for j in range(0, predicted.shape[1], LANES):
            total = zeros()
            for row in range(offsets[begin + i] - first, offsets[begin + i + 1] - first):
                total += value(code, y[row], doubled(read(predicted, row, j)))
            write(out, i, j, total)


@compiled
def _tile_memberships(
    losses: Floats,
    offsets: Ints,
    begin: int,
    end: int,
    log_weights: Floats,
    noise: Floats,
    hard: bool,
    out: Floats,
    labels: Ints,
) -> float:
    """Turn the losses (c, k) of a tile's clients into memberships out (c, k); give their log likelihood.

    Soft: the posterior under mixing weights and noise. Hard: one at the least loss, the first of equals.
    """
    k = len(noise)
    log_noise, precision = np.log(noise), 1.0 / (noise * noise)
    likelihood = 0.0
    for i in range(end - begin):
        n_rows = offsets[begin + i + 1] - offsets[begin + i]
        best, least, top = 0, losses[i, 0], -np.inf
        for j in range(k):
            score = log_weights[j] - n_rows * log_noise[j] - losses[i, j] * precision[j]
            out[i, j] = score
            top = max(top, score)
            if losses[i, j] < least:
                best, least = j, losses[i, j]
        if hard:
            for j in range(k):
                out[i, j] = 0.0
            out[i, best] = 1.0
            labels[i] = best
            likelihood += top
            continue
        whole = 0.0
        for j in range(k):
            share = np.exp(out[i, j] - top)
            out[i, j] = share
            whole += share
        for j in range(k):
            out[i, j] /= whole
        likelihood += top + np.log(whole)
    return likelihood


@inlined
def _add_averaged(
    code: int,
    phi: Array,
    y: Array,
    predicted: Array,
    j: int,
    begin: int,
    end: int,
    rate: float,
    local_steps: int,
    gradient: Array,
    shift: Array,
    total: Array,
) -> None:
    """Take gradient steps on one client's copy of model j and add c times its shift to total (k, d).

    The client's are rows ``begin:end``, c of them, of phi (n, d), y (n,) and predicted (n, k); gradient (d,) and shift
    (d,) are to work with.
    """
    dim, none, n_rows = phi.shape[1], phi.dtype.type(0), phi.dtype.type(end - begin)
    for m in range(dim):
        shift[m] = 0
    for step in range(local_steps):
        for m in range(dim):
            gradient[m] = shift[m]
        for row in range(begin, end, 2):  # two at a time: half as often to the gradient and back
            other = min(row + 1, end - 1)
            first, second = predicted[row, j], predicted[other, j]
            if step > 0:
                for m in range(dim):
                    first += phi[row, m] * shift[m]
                    second += phi[other, m] * shift[m]
            fall = rate * slope(code, y[row], first)
            rest = rate * slope(code, y[other], second) if other > row else none
            for m in range(dim):
                gradient[m] += fall * phi[row, m] + rest * phi[other, m]
        for m in range(dim):
            shift[m] = gradient[m]
    for m in range(dim):
        total[j, m] += n_rows * shift[m]


@inlined
def _inner_products(phi: Array, begin: int, end: int, out: Array) -> int:
    """Write X X^T or X^T X of one client, whichever is smaller, in the lower half of a corner of out (d, d).

    phi (n, d). Gives the size of the corner.
    """
    n_rows, dim = end - begin, phi.shape[1]
    if n_rows > dim:
        np.dot(phi[begin:end].T, phi[begin:end], out)
        return int(dim)
    for row in range(begin, end, 2):  # two rows with two others: half as often to memory, and no wait for the last sum
        below = min(row + 1, end - 1)
        for other in range(begin, row + 1, 2):
            beside = min(other + 1, end - 1)
            first = second = third = fourth = out.dtype.type(0)
            for m in range(dim):
                first += phi[row, m] * phi[other, m]
                second += phi[row, m] * phi[beside, m]
                third += phi[below, m] * phi[other, m]
                fourth += phi[below, m] * phi[beside, m]
            out[row - begin, other - begin] = first
            out[row - begin, beside - begin] = second
            out[below - begin, other - begin] = third
            out[below - begin, beside - begin] = fourth
    return int(n_rows)


@inlined
def _add_proximal(
    phi: Array,
    y: Array,
    predicted: Array,
    j: int,
    begin: int,
    end: int,
    rate: float,
    products: Array,
    size: int,
    factor: Array,
    solution: Array,
    total: Array,
) -> None:
    """Take one proximal step on one client's copy of model j and add c times its shift to total (k, d).

    (I + rate X^T X)^-1 X^T = X^T (I + rate X X^T)^-1: the smaller of the two is solved. The client's are rows
    ``begin:end``, c of them, of phi (n, d), y (n,) and predicted (n, k), and a corner (size, size) of products (d, d);
    factor (d, d) and solution (d,) are to work with.
    """
    dim, n_rows = phi.shape[1], phi.dtype.type(end - begin)
    few = end - begin <= dim
    if few:
        for row in range(begin, end):
            solution[row - begin] = rate * (y[row] - predicted[row, j])
    else:
        solution[:] = 0
        for row in range(begin, end):
            residual = rate * (y[row] - predicted[row, j])
            for m in range(dim):
                solution[m] += residual * phi[row, m]
    _solve(products, size, rate, factor, solution)
    if few:
        for row in range(begin, end):
            weight = n_rows * solution[row - begin]
            for m in range(dim):
                total[j, m] += weight * phi[row, m]
    else:
        for m in range(dim):
            total[j, m] += n_rows * solution[m]


@inlined
def _solve(products: Array, size: int, rate: float, factor: Array, solution: Array) -> None:
    """Solve (I + rate products) x = solution in place, by Cholesky. products (n, n), lower half; solution (n,)."""
    one = products.dtype.type(1)
    for row in range(0, size, 2):  # two at a time, as above
        below = min(row + 1, size - 1)
        for other in range(row):
            upper, lower = rate * products[row, other], rate * products[below, other]
            for m in range(other):
                upper -= factor[row, m] * factor[other, m]
                lower -= factor[below, m] * factor[other, m]
            factor[row, other] = upper * factor[other, other]
            factor[below, other] = lower * factor[other, other]
        upper, lower = one + rate * products[row, row], one + rate * products[below, below]
        between = rate * products[below, row]
        for m in range(row):
            upper -= factor[row, m] * factor[row, m]
            between -= factor[row, m] * factor[below, m]
            lower -= factor[below, m] * factor[below, m]
        factor[row, row] = one / np.sqrt(upper)  # the diagonal is kept as its inverse
        if below > row:
            factor[below, row] = between * factor[row, row]
            factor[below, below] = one / np.sqrt(lower - factor[below, row] * factor[below, row])
    for row in range(size):
        total = solution[row]
        for m in range(row):
            total -= factor[row, m] * solution[m]
        solution[row] = total * factor[row, row]
    for row in range(size - 1, -1, -1):  # along rows of the factor, too: down its columns is slower
        own = solution[row] * factor[row, row]
        solution[row] = own
        for m in range(row):
            solution[m] -= factor[row, m] * own


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
    number, models = phi.dtype.type, in_eights(theta)
    shift, mass, clients, loss, likelihood = np.zeros((k, dim)), np.zeros(k), np.zeros(k), np.zeros(k), 0.0
    most = most_rows(offsets)
    predicted, targets = np.empty((most + SPARE, models.shape[1]), phi.dtype), np.empty(most, phi.dtype)
    losses, membership = np.empty((most + LANES, k)), np.empty((most, k))
    labels = np.zeros(most, np.int64)
    total, gradient, own = np.zeros((k, dim), phi.dtype), np.empty(dim, phi.dtype), np.empty(dim, phi.dtype)
    products, factor = np.empty((dim, dim), phi.dtype), np.empty((dim, dim), phi.dtype)
    begin, size = 0, 0
    while begin < len(offsets) - 1:
        end = tile_end(offsets, begin)
        first, rows = offsets[begin], offsets[end] - offsets[begin]
        x = phi[first : first + rows]
        multiply(x, models, predicted)
        for row in range(rows):
            targets[row] = y[first + row]
        tile_losses(code, targets, predicted, offsets, begin, end, losses)
        likelihood += _tile_memberships(losses, offsets, begin, end, log_weights, noise, hard, membership, labels)
        for i in range(end - begin):
            a, b = offsets[begin + i] - first, offsets[begin + i + 1] - first
            if update == FEDPROX:
                size = _inner_products(x, a, b, products)
            for j in range(labels[i] if hard else 0, labels[i] + 1 if hard else k):
                share = membership[i, j]
                if share == 0.0:
                    continue
                mass[j] += (b - a) * share
                clients[j] += share
                loss[j] += share * losses[i, j]
                rate = number(step * share / (b - a))
                if update == FEDPROX:
                    _add_proximal(x, targets, predicted, j, a, b, rate, products, size, factor, own, total)
                elif local_steps == 1:  # which is done before a call has begun
                    for row in range(a, b):
                        fall = number(step * share) * slope(code, targets[row], predicted[row, j])
                        for m in range(dim):
                            total[j, m] += fall * x[row, m]
                elif local_steps > 1:
                    _add_averaged(code, x, targets, predicted, j, a, b, rate, local_steps, gradient, own, total)
        for j in range(k):
            for m in range(dim):
                shift[j, m] += total[j, m]
                total[j, m] = 0
        begin = end
    return shift, mass, clients, loss, likelihood


@compiled
def memberships(
    phi: Array, y: Floats, offsets: Ints, theta: Array, log_weights: Floats, noise: Floats, hard: bool, code: int
) -> Floats:
    """Give the clients' memberships, (c, k). theta (d, k), in the precision of phi."""
    size, k, models = most_rows(offsets), theta.shape[1], in_eights(theta)
    predicted, losses = np.empty((size + SPARE, models.shape[1]), phi.dtype), np.empty((size + LANES, k))
    targets = np.empty(size, phi.dtype)
    out, labels = np.empty((len(offsets) - 1, k)), np.empty(size, np.int64)
    begin = 0
    while begin < len(offsets) - 1:
        end = tile_end(offsets, begin)
        first, rows = offsets[begin], offsets[end] - offsets[begin]
        multiply(phi[first : first + rows], models, predicted)
        targets[:rows] = y[first : first + rows]
        tile_losses(code, targets, predicted, offsets, begin, end, losses)
        _tile_memberships(losses, offsets, begin, end, log_weights, noise, hard, out[begin:end], labels)
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
    dim = phi.shape[1]
    number = phi.dtype.type
    own, targets = np.empty((len(offsets) - 1, dim)), y.astype(phi.dtype)
    total, gradient, spare = (
        np.zeros((theta.shape[1], dim), phi.dtype),
        np.empty(dim, phi.dtype),
        np.empty(dim, phi.dtype),
    )
    products, factor = np.empty((dim, dim), phi.dtype), np.empty((dim, dim), phi.dtype)
    predicted = np.dot(phi, theta)
    for i in range(len(own)):
        a, b = offsets[i], offsets[i + 1]
        j = int(np.argmax(membership[i]))
        rate = number(step * membership[i, j] / (b - a))
        if update == FEDPROX:
            size = _inner_products(phi, a, b, products)
            _add_proximal(phi, targets, predicted, j, a, b, rate, products, size, factor, spare, total)
        else:
            _add_averaged(code, phi, targets, predicted, j, a, b, rate, local_steps, gradient, spare, total)
        for m in range(dim):
            own[i, m] = theta[m, j] + total[j, m] / (b - a)
            total[j, m] = 0
    return own


@compiled
def peak(phi: Array, offsets: Ints) -> float:
    """Give the largest |X_i|^2 / n_i of any client, the norm being the spectral one."""
    dim = phi.shape[1]
    products = np.zeros((dim, dim), phi.dtype)
    most = 0.0
    for i in range(len(offsets) - 1):
        a, b = offsets[i], offsets[i + 1]
        size = _inner_products(phi, a, b, products)
        corner = np.ascontiguousarray(products[:size, :size])  # of which eigvalsh reads the lower half
        most = max(most, np.linalg.eigvalsh(corner)[-1] / (b - a))
    return most
