"""Compiled sums of the survey of the tuning-free recipe, over one block of clients: a census, and moments of rows.

Rows are shifted and scaled (x) in tiles that stay in the cache. Nothing is whitened row by row: whoever asks turns the
sums into standard units, which costs d times less.

Shapes: n rows, m clients, k models, D columns with the intercept, r columns of a basis.
"""

from __future__ import annotations

import math

import numpy as np

from ..core.arrays import Array, Bools, Floats, Ints
from ..core.compile import compiled
from .products import add_squares
from .tiles import TILE, most_rows, tile_end

_LARGEST = float(np.finfo(np.float64).max)
_NEGLIGIBLE = 1e-14
"""Clients with less weight would not change the sums."""


@compiled
def round_down(value: float) -> float:
    """Give the next number of three bits that is not larger."""
    mantissa, exponent = math.frexp(value)
    return max(math.ldexp(np.floor(8.0 * mantissa) / 8.0, exponent), -_LARGEST)


@compiled
def round_up(value: float) -> float:
    """Give the next number of three bits that is not smaller."""
    return -round_down(-value)


@compiled
def census(phi: Array, y: Floats, width: int) -> tuple[Floats, Floats, Bools, Floats, Floats, float, float, float]:
    """Look at all columns and at the target in one pass; columns beyond those of phi are the constant 1.

    Gives for each column (D,) its range in round numbers, whether it has the same value in all rows, that value or 0,
    and its sum; then the sum and the range of the target. Ranges are wider than they need be, for an extreme is a value
    in somebody's row, and nobody's are to be told. Rounding keeps the order, so the range of all is that of the ranges.
    """
    dim = phi.shape[1]
    low, high, total = np.ones(width), np.ones(width), np.full(width, float(len(phi)))
    low[:dim], high[:dim], total[:dim] = np.inf, -np.inf, 0.0
    target_low, target_high, target = np.inf, -np.inf, 0.0
    for row in range(len(phi)):
        for m in range(dim):
            low[m] = min(low[m], phi[row, m])
            high[m] = max(high[m], phi[row, m])
            total[m] += phi[row, m]
        target_low, target_high = min(target_low, y[row]), max(target_high, y[row])
        target += y[row]
    steady, value = low == high, np.zeros(width)
    for m in range(width):
        value[m] = low[m] if steady[m] else 0.0
        low[m], high[m] = round_down(low[m]), round_up(high[m])
    return low, high, steady, value, total, target, round_down(target_low), round_up(target_high)


@compiled
def scale_rows(phi: Array, begin: int, end: int, centre: Array, inverse_sd: Array, out: Array) -> None:
    """Shift and scale rows (n, d) to the beginning of out; columns beyond those of phi are the constant 1."""
    width = phi.shape[1]
    for row in range(end - begin):
        for m in range(width):
            out[row, m] = (phi[begin + row, m] - centre[m]) * inverse_sd[m]
        for m in range(width, len(inverse_sd)):
            out[row, m] = (1 - centre[m]) * inverse_sd[m]


@compiled
def second_moments(
    phi: Array, y: Floats, centre: Array, inverse_sd: Array, target_centre: float, target_unit: float
) -> tuple[Floats, Floats, float]:
    """Sum x x^T, packed (D (D + 1) / 2,), x t (D,) and t^2 over rows, t being the shifted and scaled target."""
    width = len(inverse_sd)
    gram, cross, square = np.zeros(width * (width + 1) // 2), np.zeros(width), 0.0
    # In double precision: columns may be nearly combinations.
    x, target = np.empty((TILE, width)), np.empty(TILE)
    for begin in range(0, len(phi), TILE):
        rows = min(TILE, len(phi) - begin)
        scale_rows(phi, begin, begin + rows, centre, inverse_sd, x)
        add_squares(gram, x[:rows], 1.0)
        for row in range(rows):
            target[row] = (y[begin + row] - target_centre) / target_unit
            square += target[row] * target[row]
            for m in range(width):
                cross[m] += target[row] * x[row, m]
    return gram, cross, square


@compiled
def pair_moments(
    phi: Array,
    y: Floats,
    offsets: Ints,
    centre: Array,
    inverse_sd: Array,
    target_centre: float,
    target_unit: float,
    models: Array,
    weight: Floats,
) -> Floats:
    """Sum w_ij [(sum e)(sum e)^T - sum e e^T] / (n_i - 1) with e = residual of model j times x.

    models (D, k), weight (m, k) -> packed (k, D (D + 1) / 2). Clients of one row have no pairs.
    """
    width, k = models.shape
    size = most_rows(offsets)
    moments = np.zeros((k, width * (width + 1) // 2))
    x, predicted = np.empty((size, width), phi.dtype), np.empty((size, k), phi.dtype)
    e, whole = np.empty_like(x), np.empty_like(x)
    begin = 0
    while begin < len(offsets) - 1:
        end = tile_end(offsets, begin)
        first, tile = offsets[begin], offsets[end] - offsets[begin]
        scale_rows(phi, first, first + tile, centre, inverse_sd, x)
        np.dot(x[:tile], models, predicted[:tile])
        for j in range(k):
            rows = clients = 0
            for i in range(begin, end):
                n_rows = offsets[i + 1] - offsets[i]
                if n_rows < 2 or weight[i, j] <= _NEGLIGIBLE:
                    continue
                root = np.sqrt(weight[i, j] / (n_rows - 1))
                total = whole[clients]
                total[:] = 0
                for row in range(offsets[i] - first, offsets[i + 1] - first):
                    factor = root * ((y[first + row] - target_centre) / target_unit - predicted[row, j])
                    for m in range(width):
                        e[rows, m] = factor * x[row, m]
                        total[m] += e[rows, m]
                    rows += 1
                clients += 1
            if clients > 0:
                add_squares(moments[j], whole[:clients], 1.0)
                add_squares(moments[j], e[:rows], -1.0)
        begin = end
    return moments


@compiled
def project(
    phi: Array,
    y: Floats,
    offsets: Ints,
    centre: Array,
    inverse_sd: Array,
    target_centre: float,
    target_unit: float,
    model: Array,
    basis: Array,
) -> tuple[Floats, Floats, Floats]:
    """Give each client's normal equations in a basis (D, r), for the residuals of one model (D, 1).

    Squares (m,), cross products (m, r), second moments, packed (m, r (r + 1) / 2).
    """
    n_clients, width = len(offsets) - 1, basis.shape[1]
    square, cross = np.zeros(n_clients), np.zeros((n_clients, width))
    gram = np.zeros((n_clients, width * (width + 1) // 2))
    x = np.empty((len(phi), len(inverse_sd)), phi.dtype)
    scale_rows(phi, 0, len(phi), centre, inverse_sd, x)
    z, predicted = np.dot(x, basis), np.dot(x, model)
    for i in range(n_clients):
        for row in range(offsets[i], offsets[i + 1]):
            residual = (y[row] - target_centre) / target_unit - predicted[row, 0]
            square[i] += residual * residual
            place = 0
            for a in range(width):
                cross[i, a] += residual * z[row, a]
                for b in range(a + 1):
                    gram[i, place] += z[row, a] * z[row, b]
                    place += 1
    return square, cross, gram
