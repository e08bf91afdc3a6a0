"""Local updates: what FedAvg and FedProx make of the models at single clients, in compiled code.

A client moves its copy of a kind's model by X^T w, w (n,) one number for each of its rows. By Lemma 1 of the paper,

    FedAvg:   w = rate sum_{l < s} (I - rate X X^T)^l r      (s local steps),
    FedProx:  w = rate (I + rate X X^T)^-1 r,

with r the residuals and rate = eta lambda / n. So all that a client with few rows needs is X X^T, and no local step
looks at features again; with another loss than the squared one, a step adds rate times the loss' slope at the
predictions as X X^T w has moved them. Eight clients of about as many rows take their steps side by side; rows that one
has not have the rate 0. A client with many rows moves its model itself (FedAvg), and solves with the smaller of X X^T
and X^T X (FedProx).

Shapes: n rows of a tile, c clients, E models, t turns: each client moves the model of its own kind, or all in turn.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from .arrays import Array, Floats, Ints
from .compiled import compiled, inlined
from .lanes import LANES, LINE, inverse, number, read, read_line, write, write_line
from .losses import slope
from .products import add_rows, add_squares, last_half, inner_products, lined, products_along

FEDAVG, FEDPROX = 0, 1
_FEW = 32
"""Rows that a client has at most to take its steps beside others."""
Room: TypeAlias = tuple[tuple[Array, ...], tuple[Array, ...]]


@compiled
def room_to_update(size: int, width: int, like: Array) -> Room:
    """Make room to work in for `row_weights`: for eight clients side by side, and for one of ``size`` rows."""
    packed, side = (_FEW + 1) * (_FEW + 2) // 2, min(size, width)
    eight = (
        np.zeros((packed, LANES), like.dtype),
        np.zeros((packed, LANES), like.dtype),
        np.zeros((_FEW, LANES), like.dtype),
        np.zeros((_FEW, LANES), like.dtype),
        np.zeros((_FEW, LANES), like.dtype),
        np.zeros((_FEW, LANES), like.dtype),
        np.zeros((_FEW, LANES), like.dtype),
    )
    one = (
        lined(side, side + 1, like),
        np.zeros(width * (width + 1) // 2 if size > width else 0),
        lined(1, width, like),
        np.zeros((1, size + LANES), like.dtype),
        np.zeros((1, size + LANES), like.dtype),
        np.arange(size),
    )
    return eight, one


@inlined
def row_weights(
    code: int,
    update: int,
    step: float,
    local_steps: int,
    x: Array,
    targets: Array,
    predicted: Array,
    starts: Ints,
    sizes: Ints,
    labels: Ints,
    membership: Floats,
    weight: Array,
    total: Array,
    owner: Ints,
    room: Room,
) -> None:
    """Write what each row weighs in n_i times its client's shift. -> weight (t, n).

    x (n, d), targets (1, n) and predicted (n, E), all with room behind them, are those of a tile, in which
    client i has ``sizes[i]`` rows from ``starts[i]`` on; sizes do not fall. If there is one turn, it is with the model
    ``labels[i]``, else there is one with each. What is easier said of the model than of rows is added to row
    ``owner[i]`` of the total, or to that of the turn if there are several, and the rows weigh nothing.
    """
    if update == FEDAVG and local_steps == 1:
        _first_step(code, step, targets, predicted, starts, sizes, labels, membership, weight)
        return
    few = 0
    most = _FEW if update == FEDPROX else min(_FEW, 2 * local_steps)
    while few < len(sizes) and sizes[few] <= most:
        few += 1
    _side_by_side(
        code,
        update,
        step,
        local_steps,
        x,
        targets,
        predicted,
        starts[:few],
        sizes[:few],
        labels,
        membership,
        weight,
        *room[0],
    )
    for i in range(few, len(sizes)):
        begin, end = starts[i], starts[i] + sizes[i]
        for turn in range(len(weight)):
            j, into = (labels[i], owner[i]) if len(weight) == 1 else (turn, turn)
            rate = x.dtype.type(step * membership[i, j] / sizes[i])
            if update == FEDPROX:
                _solve_one(x, targets, predicted, j, begin, end, rate, weight, turn, total, into, *room[1])
            else:
                _descend_one(
                    code, x, targets, predicted, j, begin, end, rate, local_steps, weight, turn, *room[1]
                )


@inlined
def _first_step(
    code: int,
    step: float,
    targets: Array,
    predicted: Array,
    starts: Ints,
    sizes: Ints,
    labels: Ints,
    membership: Floats,
    weight: Array,
) -> None:
    """Do what `row_weights` does if there is but one local step: then n_i does not matter."""
    for turn in range(len(weight)):
        for i in range(len(sizes)):
            j = labels[i] if len(weight) == 1 else turn
            rate = weight.dtype.type(step * membership[i, j])
            for row in range(starts[i], starts[i] + sizes[i]):
                weight[turn, row] = rate * slope(code, targets[0, row], predicted[row, j])


@inlined
def _place(row: int, column: int) -> int:
    """Find a number of a packed lower triangle."""
    return row * (row + 1) // 2 + column


@inlined
def _side_by_side(
    code: int,
    update: int,
    step: float,
    local_steps: int,
    x: Array,
    targets: Array,
    predicted: Array,
    starts: Ints,
    sizes: Ints,
    labels: Ints,
    membership: Floats,
    weight: Array,
    gram: Array,
    factor: Array,
    y: Array,
    start: Array,
    rates: Array,
    found: Array,
    fall: Array,
) -> None:
    """Do what `row_weights` does for clients of few rows, by eights."""
    turns = len(weight)
    last, inside = last_half(x)
    for begin in range(0, len(sizes), LANES):
        count = min(LANES, len(sizes) - begin)
        size = sizes[begin + count - 1]
        for lane in range(count):
            first, rows = starts[begin + lane], sizes[begin + lane]
            for a in range(0, rows, 2):
                for b in range(0, a + 1, 2):
                    four = inner_products(x, first + a, first + b, last, inside)
                    gram[_place(a, b), lane] = number(four, 0)
                    if b < a:
                        gram[_place(a, b + 1), lane] = number(four, 1)
                    gram[_place(a + 1, b), lane] = number(four, 2)
                    gram[_place(a + 1, b + 1), lane] = number(four, 3)
        for turn in range(turns):
            for lane in range(LANES):
                i = begin + min(lane, count - 1)
                j, rows = labels[i] if turns == 1 else turn, sizes[i]
                rate = step * membership[i, j] / rows if lane < count else 0.0
                for a in range(size):
                    row = starts[i] + min(a, rows - 1)
                    y[a, lane], start[a, lane] = targets[0, row], predicted[row, j]
                    rates[a, lane] = rate if a < rows else 0.0
            if update == FEDPROX:
                _solve(gram, rates, y, start, size, factor, found)
            else:
                _descend(code, gram, rates, y, start, size, local_steps, fall, found)
            for lane in range(count):
                rows = sizes[begin + lane]
                for a in range(rows):
                    weight[turn, starts[begin + lane] + a] = rows * found[a, lane]


@inlined
def _descend(
    code: int, gram: Array, rates: Array, y: Array, start: Array, size: int, steps: int, fall: Array, found: Array
) -> None:
    """Take local steps with eight clients. gram (., 8), packed; rates, y, start (n, 8) -> found (n, 8)."""
    for a in range(size):
        write(found, a, 0, read(rates, a, 0) * slope(code, read(y, a, 0), read(start, a, 0)))
    for _ in range(1, steps):
        for a in range(size):
            moved = read(start, a, 0)
            for b in range(a):
                moved += read(gram, _place(a, b), 0) * read(found, b, 0)
            for b in range(a, size):
                moved += read(gram, _place(b, a), 0) * read(found, b, 0)
            write(fall, a, 0, read(rates, a, 0) * slope(code, read(y, a, 0), moved))
        for a in range(size):
            write(found, a, 0, read(found, a, 0) + read(fall, a, 0))


@inlined
def _solve(gram: Array, rates: Array, y: Array, start: Array, size: int, factor: Array, found: Array) -> None:
    """Solve (I + rate gram) found = rate (y - start) for eight clients, by L D L^T.

    gram (., 8), packed; rates, y, start (n, 8) -> found (n, 8). factor (., 8) is to work with: it gets L, and the
    inverse of D in its diagonal.
    """
    for a in range(size):
        rate, line = read(rates, a, 0), _place(a, 0)
        for b in range(a):
            entry = rate * read(gram, line + b, 0)
            for c in range(b):
                entry -= read(factor, line + c, 0) * read(factor, _place(b, c), 0)
            write(factor, line + b, 0, entry)
        pivot, rest = 1.0 + rate * read(gram, line + a, 0), rate * (read(y, a, 0) - read(start, a, 0))
        for b in range(a):
            entry = read(factor, line + b, 0)
            lower = entry * read(factor, _place(b, b), 0)
            pivot -= entry * lower
            rest -= lower * read(found, b, 0)
            write(factor, line + b, 0, lower)
        write(factor, line + a, 0, inverse(pivot))
        write(found, a, 0, rest)
    for a in range(size - 1, -1, -1):
        own = read(found, a, 0) * read(factor, _place(a, a), 0)
        for b in range(a + 1, size):
            own -= read(factor, _place(b, a), 0) * read(found, b, 0)
        write(found, a, 0, own)


@inlined
def _descend_one(
    code: int,
    x: Array,
    targets: Array,
    predicted: Array,
    j: int,
    begin: int,
    end: int,
    rate: float,
    steps: int,
    weight: Array,
    turn: int,
    _matrix: Array,
    _triangle: Floats,
    shift: Array,
    start: Array,
    fall: Array,
    order: Ints,
) -> None:
    """Take local steps with one client, whose rows are ``begin:end``, on its copy of model j."""
    rows, last = end - begin, last_half(x)[0]
    shift[0] = 0.0
    for row in range(rows):
        start[0, row] = predicted[begin + row, j]
        weight[turn, begin + row] = 0.0
    for step in range(steps):
        for row in range(0, rows, LANES):
            moved = read(start, 0, row)
            if step > 0:
                moved += products_along(x, begin + row, last, shift)
            write(fall, 0, begin + row, rate * slope(code, read(targets, 0, begin + row), moved))
        for row in range(begin, end):
            weight[turn, row] += rows * fall[0, row]
        if step + 1 < steps:
            add_rows(shift, 0, x, order, fall, 0, begin, end)
            shift[0, x.shape[1] :] = 0.0  # where rows were read beyond their ends


@inlined
def _solve_one(
    x: Array,
    targets: Array,
    predicted: Array,
    j: int,
    begin: int,
    end: int,
    rate: float,
    weight: Array,
    turn: int,
    total: Array,
    into: int,
    matrix: Array,
    triangle: Floats,
    shift: Array,
    solution: Array,
    fall: Array,
    order: Ints,
) -> None:
    """Take a proximal step with one client, whose rows are ``begin:end``, on its copy of model j.

    (I + rate X^T X)^-1 X^T = X^T (I + rate X X^T)^-1: the smaller of the two is solved. The larger would give a weight
    for each row, but as a difference that loses digits if the rate is large, so the shift itself is added.
    """
    rows, width = end - begin, x.shape[1]
    last, inside = last_half(x)
    for row in range(begin, end):
        fall[0, row] = rate * (targets[0, row] - predicted[row, j])
    if rows <= width:
        for a in range(0, rows, 2):
            for b in range(0, a + 1, 2):
                four = inner_products(x, begin + a, begin + b, last, inside)
                matrix[b, a], matrix[b + 1, a] = rate * number(four, 0), rate * number(four, 1)
                matrix[b, a + 1], matrix[b + 1, a + 1] = rate * number(four, 2), rate * number(four, 3)
        for row in range(rows):
            matrix[row, rows] = fall[0, begin + row]
        _eliminate(matrix, rows, solution)
        for row in range(rows):
            weight[turn, begin + row] = rows * solution[0, row]
        return
    triangle[:] = 0.0
    add_squares(triangle, x[begin:], width, rows, 1.0)
    for a in range(width):
        for b in range(a + 1):
            matrix[b, a] = rate * triangle[_place(a, b)]
    shift[0] = 0.0
    add_rows(shift, 0, x, order, fall, 0, begin, end)
    for m in range(width):
        matrix[m, width] = shift[0, m]
    _eliminate(matrix, width, solution)
    for m in range(width):
        total[into, m] += rows * solution[0, m]
    for row in range(begin, end):
        weight[turn, row] = 0.0


@inlined
def _eliminate(matrix: Array, size: int, solution: Array) -> None:
    """Solve (I + matrix) x = b. matrix (n, .), `lined`, upper half, with b in column n, is lost. -> solution (1, n)."""
    lanes = LINE // matrix.itemsize
    for c in range(size):
        pivot = 1.0 / (1.0 + matrix[c, c])
        matrix[c, c] = pivot
        for row in range(c + 1, size):
            solution[0, row] = pivot * matrix[c, row]
        for line in range((c + 1) // lanes, size // lanes + 1):
            own = read_line(matrix, c, line)
            for row in range(c + 1, min(size, lanes * (line + 1))):
                write_line(matrix, row, line, read_line(matrix, row, line) - solution[0, row] * own)
    for c in range(size - 1, -1, -1):
        solution[0, c] = matrix[c, size] * matrix[c, c]
        for row in range(c):
            matrix[row, size] -= matrix[row, c] * solution[0, c]
