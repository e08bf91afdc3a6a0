"""Tiles: whole clients whose rows stay in the cache while something is done with them.

Shapes: n rows, c clients, E models.
"""

import numpy as np

from ...core.arrays import Array, Floats, Ints
from ...core.compile import compiled
from ...families import base

value = compiled(base.value)

_AT_ONCE = 8
"""Rows of a column that are written in one piece: a line of the cache in double precision."""
TILE = 500
"""Rows of a tile: with 32 features it takes half of a core's second cache at most."""


@compiled
def tiles(offsets: Ints) -> Ints:
    """Give the clients with whom tiles of whole clients begin, and how many clients there are.

    A large client is a tile of its own.
    """
    edges, count = np.zeros(len(offsets) + 1, np.int64), 0
    for i in range(1, len(offsets)):
        if offsets[i] - offsets[edges[count]] > TILE and i - 1 > edges[count]:
            count += 1
            edges[count] = i - 1
    edges[count + 1] = len(offsets) - 1
    return edges[: count + 2]


def most_rows(offsets: Ints, edges: Ints) -> int:
    """Give the rows of the largest tile."""
    return int(np.diff(offsets[edges]).max(initial=0))


@compiled
def tile_losses(code: int, y: Array, predicted: Array, offsets: Ints, out: Floats) -> None:
    """Loss of each client of a tile under each model. y (n,), predicted (n, E), offsets (c + 1,) -> out (c, E).

    Squares are in double precision: in single, small ones are 0 and large ones infinite.
    """
    for i in range(len(offsets) - 1):
        out[i] = 0.0
        for row in range(offsets[i] - offsets[0], offsets[i + 1] - offsets[0]):
            for j in range(predicted.shape[1]):
                out[i, j] += value(code, np.float64(y[row]), np.float64(predicted[row, j]))


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
def standardise_columns(
    phi: Array,
    y: Floats,
    begin: int,
    end: int,
    centre: Array,
    inverse_sd: Array,
    about: Floats,
    x: Array,
    target: Array,
) -> None:
    """Shift and scale rows ``begin:end`` of phi (., d) and y: columns x (D, n), those beyond d constant, target (n,).

    about (2,) is the centre and unit of the target. What n has beyond these rows is zeros.
    """
    count, dim = end - begin, phi.shape[1]
    whole = count // _AT_ONCE * _AT_ONCE
    for first in range(0, whole, _AT_ONCE):
        rows = phi[begin + first : begin + first + _AT_ONCE]
        for m in range(dim):
            column = x[m, first : first + _AT_ONCE]
            for row in range(_AT_ONCE):
                column[row] = (rows[row, m] - centre[m]) * inverse_sd[m]
    for row in range(whole, count):
        for m in range(dim):
            x[m, row] = (phi[begin + row, m] - centre[m]) * inverse_sd[m]
    for row in range(count):
        target[row] = (y[begin + row] - about[0]) / about[1]
        for m in range(dim, len(x)):
            x[m, row] = (1 - centre[m]) * inverse_sd[m]
    for row in range(count, x.shape[1]):
        target[row] = 0
        for m in range(len(x)):
            x[m, row] = 0
