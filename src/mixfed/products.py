"""Products of long, narrow matrices in compiled code: rows with models, and columns with columns.

BLAS copies what it multiplies into an order of its own, and with a few dozen columns that takes as long as the product.
Here a block of the result, six by eight numbers, stays in a core's registers while rows pass by as they lie: half the
time, and for a symmetric product only its lower triangle. What is read may go on beyond the end of a row, so arrays
have lanes to spare where it says so; such numbers are never used.
"""

from __future__ import annotations

import numpy as np

from .arrays import Array, Floats
from .compiled import compiled, inlined
from .lanes import LANES, read, write

_HIGH = 6
"""Rows of a block: with eight columns, as much as the registers of most processors hold."""
SPARE = _HIGH - 1
"""Rows that the result of `multiply` has to spare."""
_NEAR = 24_576
"""Bytes of rows that stay in a core's first cache."""


@compiled
def in_eights(models: Array) -> Array:
    """Copy models (D, L), and make their number one of whole eights (E) by models of zeros. -> (D, E)."""
    width, total = models.shape
    whole = np.zeros((width, (total + LANES - 1) // LANES * LANES), models.dtype)
    whole[:, :total] = models
    return whole


@compiled
def multiply(x: Array, models: Array, out: Array) -> None:
    """Write the product of rows (n, D) with models (D, E), `in_eights`, to out (n + SPARE, E), spare rows included."""
    n_rows, width = x.shape
    last = n_rows - 1
    for row in range(0, n_rows, _HIGH):
        r1, r2, r3, r4, r5 = (
            min(row + 1, last),
            min(row + 2, last),
            min(row + 3, last),
            min(row + 4, last),
            min(row + 5, last),
        )
        for j in range(0, models.shape[1], LANES):
            eight = read(models, 0, j)
            s0, s1, s2 = x[row, 0] * eight, x[r1, 0] * eight, x[r2, 0] * eight
            s3, s4, s5 = x[r3, 0] * eight, x[r4, 0] * eight, x[r5, 0] * eight
            for m in range(1, width):
                eight = read(models, m, j)
                s0 += x[row, m] * eight
                s1 += x[r1, m] * eight
                s2 += x[r2, m] * eight
                s3 += x[r3, m] * eight
                s4 += x[r4, m] * eight
                s5 += x[r5, m] * eight
            write(out, row, j, s0)
            write(out, row + 1, j, s1)
            write(out, row + 2, j, s2)
            write(out, row + 3, j, s3)
            write(out, row + 4, j, s4)
            write(out, row + 5, j, s5)


@inlined
def _block(left: Array, a: int, right: Array, b: int, begin: int, end: int, out: Array) -> None:
    """Write the products of six columns of left with eight of right, summed over rows ``begin:end``, to out (6, 8)."""
    eight = read(right, begin, b)
    s0, s1, s2 = left[begin, a] * eight, left[begin, a + 1] * eight, left[begin, a + 2] * eight
    s3, s4, s5 = left[begin, a + 3] * eight, left[begin, a + 4] * eight, left[begin, a + 5] * eight
    for row in range(begin + 1, end):
        eight = read(right, row, b)
        s0 += left[row, a] * eight
        s1 += left[row, a + 1] * eight
        s2 += left[row, a + 2] * eight
        s3 += left[row, a + 3] * eight
        s4 += left[row, a + 4] * eight
        s5 += left[row, a + 5] * eight
    write(out, 0, 0, s0)
    write(out, 1, 0, s1)
    write(out, 2, 0, s2)
    write(out, 3, 0, s3)
    write(out, 4, 0, s4)
    write(out, 5, 0, s5)


@compiled
def add_products(total: Floats, left: Array, right: Array, count: int) -> None:
    """Add left^T right, of the first ``count`` rows of left (n, L) and right (n, D), to a total (L, D).

    Both have lanes to spare behind these rows. Sums are in their precision, over as many rows as stay in a core's first
    cache, and in that of the total beyond.
    """
    high, wide = total.shape
    some = max(_NEAR // ((high + wide) * right.itemsize), 16)
    block = np.empty((_HIGH, LANES), right.dtype)
    for begin in range(0, count, some):
        end = min(begin + some, count)
        for b in range(0, wide, LANES):
            for a in range(0, high, _HIGH):
                _block(left, a, right, b, begin, end, block)
                for i in range(min(_HIGH, high - a)):
                    for lane in range(min(LANES, wide - b)):
                        total[a + i, b + lane] += block[i, lane]


@compiled
def add_squares(triangle: Floats, rows: Array, count: int, sign: float) -> None:
    """Add the products of all columns of the first ``count`` rows (n, D) to a triangle (D (D + 1) / 2,), or take away.

    Rows have lanes to spare behind these, and are summed as in `add_products`.
    """
    width = rows.shape[1]
    some = max(_NEAR // (width * rows.itemsize), 16)
    block = np.empty((_HIGH, LANES), rows.dtype)
    for begin in range(0, count, some):
        end = min(begin + some, count)
        for b in range(0, width, LANES):
            for a in range(b, width, _HIGH):
                _block(rows, a, rows, b, begin, end, block)
                for i in range(min(_HIGH, width - a)):
                    place = (a + i) * (a + i + 1) // 2 + b
                    for lane in range(min(LANES, a + i + 1 - b)):
                        triangle[place + lane] += sign * block[i, lane]
