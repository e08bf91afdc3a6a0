"""Products of long, narrow matrices in compiled code: rows with models, columns with columns, rows with each other.

BLAS copies what it multiplies into an order of its own, and with a few dozen columns that takes as long as the product.
Here a block of the result stays in a core's registers while rows pass by as they lie: half the time, and for a
symmetric product only its lower triangle. Rows are read by whole lines, beyond their ends if need be, so arrays have
ROOM rows to spare behind those that count; such numbers are never used, or meet zeros. Rows of our own are `lined`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.arrays import Array, Floats, Ints
from ..core.compile import compiled, inlined
from ..lanes import (
    LANES,
    LINE,
    as_mutable,
    line_of_zeros,
    read_half,
    read_line,
    spread,
    sums_of_eight,
    sums_of_four,
    write,
    write_folded,
    write_line,
)

_HIGH = 6
"""Rows of a block: with a line each, as much as the registers of most processors hold."""
ROOM = 32
"""Rows that arrays have to spare behind those that count."""
_NEAR = 24_576
"""Bytes of rows that stay in a core's first cache."""


@compiled
def lined(rows: int, width: int, like: Array) -> Array:
    """Make room for rows in the precision of another array: (rows + ROOM, whole lines), from a line's begin.

    What fills a row to whole lines is zeros.
    """
    line = LINE // like.itemsize
    wide = (width + line - 1) // line * line
    flat = np.empty((rows + ROOM) * wide + line, like.dtype)
    skipped = -flat.ctypes.data % LINE // like.itemsize
    out = flat[skipped : skipped + (rows + ROOM) * wide].reshape(rows + ROOM, wide)
    for row in range(rows + ROOM if wide > width else 0):
        for m in range(width, wide):
            out[row, m] = 0.0
    return out


@inlined
def with_room(phi: Array, begin: int, end: int) -> Array:
    """Give rows ``begin:end`` of phi (n, d) with ROOM others behind: as they lie, or at the end of phi as a copy."""
    if end + ROOM <= len(phi):
        rows: Array = as_mutable(phi[begin : end + ROOM])
        return rows
    held = np.zeros((end - begin + ROOM, phi.shape[1]), phi.dtype)
    for row in range(begin, end):
        for m in range(phi.shape[1]):
            held[row - begin, m] = phi[row, m]
    return held


@compiled
def in_words(models: Array) -> Array:
    """Put models (D, L) in the order in which `multiply` takes them, eight and eight. -> (words, lines).

    A row has one feature of all models in double precision and in single two, side by side for each model.
    """
    width, total = models.shape
    word = 8 // models.itemsize
    eights = (total + LANES - 1) // LANES
    out = np.zeros(((width + word - 1) // word, eights * LANES * word), models.dtype)
    for m in range(width):
        for j in range(total):
            out[m // word, j * word + m % word] = models[m, j]
    return out


@compiled
def room_for(rows: int, models: Array) -> Array:
    """Make room for the products of rows with models `in_words`. -> (rows + ROOM, E), whole eights."""
    return np.empty((rows + ROOM, models.shape[1] * models.itemsize // 8), models.dtype)


@compiled
def multiply(x: Array, count: int, models: Array, out: Array) -> None:
    """Write the products of the first ``count`` rows of x (n, D) with models, `in_words`, to `room_for` them."""
    words = len(models)
    for row in range(0, count, _HIGH):
        for eight in range(out.shape[1] // LANES):
            line = read_line(models, 0, eight)
            s0, s1, s2 = spread(x, row, 0) * line, spread(x, row + 1, 0) * line, spread(x, row + 2, 0) * line
            s3, s4, s5 = spread(x, row + 3, 0) * line, spread(x, row + 4, 0) * line, spread(x, row + 5, 0) * line
            for m in range(1, words):
                line = read_line(models, m, eight)
                s0 += spread(x, row, m) * line
                s1 += spread(x, row + 1, m) * line
                s2 += spread(x, row + 2, m) * line
                s3 += spread(x, row + 3, m) * line
                s4 += spread(x, row + 4, m) * line
                s5 += spread(x, row + 5, m) * line
            j = LANES * eight
            write_folded(out, row, j, s0, s1)
            write_folded(out, row + 2, j, s2, s3)
            write_folded(out, row + 4, j, s4, s5)


@inlined
def _block(left: Array, a: int, right: Array, b: int, begin: int, end: int, out: Array) -> None:
    """Write the products of six columns of left with a line of right, summed over rows ``begin:end``, to out (6, .)."""
    line = read_line(right, begin, b)
    s0, s1, s2 = left[begin, a] * line, left[begin, a + 1] * line, left[begin, a + 2] * line
    s3, s4, s5 = left[begin, a + 3] * line, left[begin, a + 4] * line, left[begin, a + 5] * line
    for row in range(begin + 1, end):
        line = read_line(right, row, b)
        s0 += left[row, a] * line
        s1 += left[row, a + 1] * line
        s2 += left[row, a + 2] * line
        s3 += left[row, a + 3] * line
        s4 += left[row, a + 4] * line
        s5 += left[row, a + 5] * line
    write(out, 0, 0, s0)
    write(out, 1, 0, s1)
    write(out, 2, 0, s2)
    write(out, 3, 0, s3)
    write(out, 4, 0, s4)
    write(out, 5, 0, s5)


@compiled
def add_products(total: Floats, left: Array, right: Array, count: int) -> None:
    """Add left^T right, of the first ``count`` rows of left (n, L) and right (n, D), to a total (L, D).

    Both have rows to spare. Sums are in their precision, over as many rows as stay in a core's first cache, and in that
    of the total beyond.
    """
    high, wide = total.shape
    lanes = LINE // right.itemsize
    some = max(_NEAR // ((high + wide) * right.itemsize), 16)
    block = np.empty((_HIGH, lanes), right.dtype)
    for begin in range(0, count, some):
        end = min(begin + some, count)
        for line in range((wide + lanes - 1) // lanes):
            b = lanes * line
            for a in range(0, high, _HIGH):
                _block(left, a, right, line, begin, end, block)
                for i in range(min(_HIGH, high - a)):
                    for lane in range(min(lanes, wide - b)):
                        total[a + i, b + lane] += block[i, lane]


@compiled
def add_squares(triangle: Floats, rows: Array, width: int, count: int, sign: float) -> None:
    """Add the products of the first ``width`` columns (D) of the first ``count`` rows to a triangle, or take them away.

    The triangle is (D (D + 1) / 2,). Rows are summed as in `add_products`.
    """
    lanes = LINE // rows.itemsize
    some = max(_NEAR // (width * rows.itemsize), 16)
    block = np.empty((_HIGH, lanes), rows.dtype)
    for begin in range(0, count, some):
        end = min(begin + some, count)
        for line in range((width + lanes - 1) // lanes):
            b = lanes * line
            for a in range(b, width, _HIGH):
                _block(rows, a, rows, line, begin, end, block)
                for i in range(min(_HIGH, width - a)):
                    place = (a + i) * (a + i + 1) // 2 + b
                    for lane in range(min(lanes, a + i + 1 - b)):
                        triangle[place + lane] += sign * block[i, lane]


@compiled
def last_line(x: Array) -> tuple[int, Array]:
    """Find the last line in a row of x (n, d): its place, and which of its numbers are the row's, (1, line)."""
    lanes = LINE // x.itemsize
    last, inside = (x.shape[1] - 1) // lanes, np.zeros((1, lanes), x.dtype)
    inside[0, : x.shape[1] - last * lanes] = 1.0
    return last, inside


@inlined
def inner_products(x: Array, first: int, second: int, last: int, inside: Array) -> Any:
    """Give the products of two neighbours among rows of x (n, d) with two others; ``last`` and ``inside``: `last_line`.

    Four numbers: those of row ``first`` with ``second`` and ``second + 1``, then those of ``first + 1``.
    """
    m, own, other = 2 * last, read_half(inside, 0, 0), read_half(inside, 0, 1)
    a, b = read_half(x, first, m) * own, read_half(x, first + 1, m) * own
    c, d = read_half(x, second, m), read_half(x, second + 1, m)
    ac, ad, bc, bd = a * c, a * d, b * c, b * d
    a, b = read_half(x, first, m + 1) * other, read_half(x, first + 1, m + 1) * other
    c, d = read_half(x, second, m + 1), read_half(x, second + 1, m + 1)
    ac += a * c
    ad += a * d
    bc += b * c
    bd += b * d
    for m in range(0, 2 * last, 2):  # two halves at a time, which the compiler would not do with so few
        a, b = read_half(x, first, m), read_half(x, first + 1, m)
        c, d = read_half(x, second, m), read_half(x, second + 1, m)
        ac += a * c
        ad += a * d
        bc += b * c
        bd += b * d
        a, b = read_half(x, first, m + 1), read_half(x, first + 1, m + 1)
        c, d = read_half(x, second, m + 1), read_half(x, second + 1, m + 1)
        ac += a * c
        ad += a * d
        bc += b * c
        bd += b * d
    return sums_of_four(ac, ad, bc, bd)


@inlined
def products_along(x: Array, row: int, vector: Array) -> Any:
    """Give the products of eight rows of x (n, d), from ``row`` on, with one vector (1, .), `lined`."""
    v = read_half(vector, 0, 0)
    s0, s1 = read_half(x, row, 0) * v, read_half(x, row + 1, 0) * v
    s2, s3 = read_half(x, row + 2, 0) * v, read_half(x, row + 3, 0) * v
    s4, s5 = read_half(x, row + 4, 0) * v, read_half(x, row + 5, 0) * v
    s6, s7 = read_half(x, row + 6, 0) * v, read_half(x, row + 7, 0) * v
    for m in range(1, vector.shape[1] * vector.itemsize // (LINE // 2)):
        v = read_half(vector, 0, m)
        s0 += read_half(x, row, m) * v
        s1 += read_half(x, row + 1, m) * v
        s2 += read_half(x, row + 2, m) * v
        s3 += read_half(x, row + 3, m) * v
        s4 += read_half(x, row + 4, m) * v
        s5 += read_half(x, row + 5, m) * v
        s6 += read_half(x, row + 6, m) * v
        s7 += read_half(x, row + 7, m) * v
    return sums_of_eight(s0, s1, s2, s3, s4, s5, s6, s7)


@inlined
def add_rows(total: Array, j: int, x: Array, order: Ints, weight: Array, begin: int, end: int) -> None:
    """Add rows of x (n, d), each times its weight (1, n), to row j of a total, `lined`.

    The rows are ``order[begin:end]``, or ``begin:end`` if there is no order (0,).
    """
    listed = len(order) > 0
    lines = total.shape[1] * total.itemsize // LINE
    for line in range(0, lines, 2):  # two lines and two rows at a time: none waits for the sum before
        other = min(line + 1, lines - 1)
        s0, s1 = read_line(total, j, line), read_line(total, j, other)
        t0, t1 = line_of_zeros(x), line_of_zeros(x)
        for t in range(begin, end - 1, 2):
            row, next_row = (order[t], order[t + 1]) if listed else (t, t + 1)
            s0 += weight[0, row] * read_line(x, row, line)
            s1 += weight[0, row] * read_line(x, row, other)
            t0 += weight[0, next_row] * read_line(x, next_row, line)
            t1 += weight[0, next_row] * read_line(x, next_row, other)
        if (end - begin) % 2 == 1:
            row = order[end - 1] if listed else end - 1
            s0 += weight[0, row] * read_line(x, row, line)
            s1 += weight[0, row] * read_line(x, row, other)
        write_line(total, j, line, s0 + t0)
        write_line(total, j, other, s1 + t1)
