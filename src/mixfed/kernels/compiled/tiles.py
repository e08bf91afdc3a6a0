"""Tiles: whole clients whose rows stay in the cache while something is done with them.

Shapes: n rows, c clients, E models.
"""

import numpy as np

from ...core.arrays import Array, Floats, Ints
from ...core.compile import compiled
from ...families import base

value = compiled(base.value)

TILE = 512
"""Rows of a tile: with 32 features it takes half of a core's second cache at most."""


@compiled
def tile_end(offsets: Ints, begin: int, tile: int = TILE) -> int:
    """Give the end of the tile of whole clients that begins with client ``begin``; a large client is a tile."""
    end = begin + 1
    while end < len(offsets) - 1 and offsets[end + 1] - offsets[begin] <= tile:
        end += 1
    return end


@compiled
def most_rows(offsets: Ints, tile: int = TILE) -> int:
    """Give the rows of the largest tile."""
    most = int(min(tile, offsets[-1] - offsets[0]))
    for i in range(len(offsets) - 1):
        most = max(most, offsets[i + 1] - offsets[i])
    return most


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
