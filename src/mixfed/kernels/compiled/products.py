"""Products of long, narrow matrices in compiled code: columns with columns, over tiles that stay in the cache.

BLAS makes them, which for tiles of some hundred rows is as quick as anything written by hand. Products are in the
precision of the rows; over more rows than a tile has they are summed in that of the total.

Shapes: n rows, D columns, L others, m models.
"""

import numpy as np

from ...core.arrays import Array, Floats
from ...core.compile import compiled

_TOGETHER = 512
"""Rows whose products are summed in their own precision."""


@compiled
def add_products(total: Floats, left: Array, right: Array) -> None:
    """Add left^T right to a total. left (n, L), right (n, D) -> total (L, D)."""
    for begin in range(0, len(left), _TOGETHER):
        product = np.dot(left[begin : begin + _TOGETHER].T, right[begin : begin + _TOGETHER])
        for a in range(len(total)):
            for b in range(total.shape[1]):
                total[a, b] += product[a, b]


@compiled
def add_squares(triangle: Floats, rows: Array, sign: float) -> None:
    """Add rows^T rows to a triangle, or take it away. rows (n, D) -> lower triangle, row by row, (D (D + 1) / 2,)."""
    for begin in range(0, len(rows), _TOGETHER):
        some = rows[begin : begin + _TOGETHER]
        product = np.dot(some.T, some)
        place = 0
        for a in range(rows.shape[1]):
            for b in range(a + 1):
                triangle[place + b] += sign * product[a, b]
            place += a + 1


@compiled
def gather(x: Array, begin: int, end: int, factor: float, pile: Array, height: int) -> None:
    """Put rows ``begin:end`` of x (n, D), each times a factor, into a pile (., D) from a height on."""
    for row in range(begin, end):
        for m in range(x.shape[1]):
            pile[height + row - begin, m] = factor * x[row, m]
