"""Products of columns in compiled code, over tiles that stay in the cache.

Sums run along columns, of whose products the compiler takes as many at a time as fill a line of the cache, 64 bytes. So
columns are filled up to whole lines with zeros, and begin where a line begins, which halves the time. Sums are in the
precision of the columns over as many rows as a tile has, and beyond in that of the total.

Shapes: n rows, D columns, L others.
"""

import math
from typing import Any

import numpy as np

from ...core.arrays import Array, Floats
from ...core.compile import compiled, inlined

TOGETHER = 512
"""Rows whose products are summed in their own precision."""
LINE = 64
"""Bytes of a line of the cache."""


def lined(shape: tuple[int, ...], like: Array) -> Array:
    """Make room in the precision of another array: zeros, from where a line of the cache begins."""
    count = math.prod(shape)
    room = np.zeros(count + LINE // like.itemsize, like.dtype)
    skipped = -room.ctypes.data % LINE // like.itemsize
    return room[skipped : skipped + count].reshape(shape)


@compiled
def add_products(total: Floats, left: Array, right: Array) -> None:
    """Add left^T right to a total, as BLAS makes it of rows. left (n, L), right (n, D) -> total (L, D)."""
    for begin in range(0, len(left), TOGETHER):
        product = np.dot(left[begin : begin + TOGETHER].T, right[begin : begin + TOGETHER])
        for a in range(len(total)):
            for b in range(total.shape[1]):
                total[a, b] += product[a, b]


@inlined
def inner_product(left: Array, right: Array) -> Any:
    """Multiply two columns (n,). Slices are handed over, for the compiler knows that places from 0 on are inside."""
    product = left.dtype.type(0)
    for row in range(len(left)):
        product += left[row] * right[row]
    return product


@compiled
def add_inner_products(total: Floats, left: Array, right: Array) -> None:
    """Add the products of columns with columns to a total. left (L, n), right (D, n) -> total (L, D)."""
    for begin in range(0, left.shape[1], TOGETHER):
        end = begin + TOGETHER
        for a in range(len(left)):
            for b in range(len(right)):
                total[a, b] += inner_product(left[a, begin:end], right[b, begin:end])


@compiled
def add_second_moments(triangle: Floats, columns: Array, weight: Array, line: Array) -> None:
    """Add the sum over rows of weight x x^T. columns (D, n), weight (n,) -> lower triangle by rows (D (D + 1) / 2,).

    Of no more than 512 rows at a time, if they are in single precision. line (n or more,) is for use.
    """
    place, some = 0, line[: len(weight)]
    for a in range(len(columns)):
        for row in range(len(weight)):
            some[row] = weight[row] * columns[a, row]
        for b in range(a + 1):
            triangle[place + b] += inner_product(some, columns[b])
        place += a + 1
