"""Local updates: what FedAvg and FedProx make of the models at single clients, in compiled code.

A client moves its copy of a kind's model by X^T w, w (n,) one number for each of its rows. By Lemma 1 of the paper,

    FedAvg:   w = rate sum_{l < s} (I - rate X X^T)^l r      (s local steps),
    FedProx:  w = rate (I + rate X X^T)^-1 r,

with r the residuals and rate = eta lambda / n. So all that a client with few rows needs is X X^T, and no local step
looks at features again; with another loss than the squared one, a step adds rate times the loss' slope at the
predictions as X X^T w has moved them. A client with many rows moves its model itself (FedAvg), or finds its shift as
(I + rate X^T X)^-1 rate X^T r, where X^T X is the smaller (FedProx). What is small is done for a line of clients of
about the same size, side by side. Proximal steps that single precision cannot take are taken in double, one by one.

Shapes: n rows of a tile, c clients, E models, q owners of sums.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from ..beside import descend, eliminate, place, solve, sum_of_traces
from ..core.arrays import Array, Floats, Ints
from ..core.compile import compiled, inlined
from ..families.base import slope
from ..lanes import LANES, LINE, number, read, write
from .products import add_rows, add_squares, inner_products, last_line, lined, products_along
from .small_matrices import solve_ridge

FEDAVG, FEDPROX = 0, 1
FEW = 32
"""Rows that a client has at most to take its steps beside others."""
_DEEP = 2
"""FedAvg looks at X X^T if a client has at most so many rows for each local step; else steps themselves are cheaper."""
_STEEP = 1e4
"""If the trace of rate X X^T is larger, FedProx' I + rate X X^T loses its I, and most digits, in single precision."""
Room: TypeAlias = tuple[tuple[Array, ...], tuple[Array, ...], tuple[Array, Ints, Ints]]


@compiled
def room_to_move(update: int, size: int, width: int, owners: int, like: Array) -> Room:
    """Make room for `move` to work in: tiles of ``size`` rows with ``width`` features."""
    line, packed = LINE // like.itemsize, (FEW + 1) * (FEW + 2) // 2
    side = min(size, width) if update == FEDPROX and width > FEW else 0
    beside = (
        np.zeros((packed, line), like.dtype),
        np.zeros((packed, line), like.dtype),
        np.zeros((FEW, line), like.dtype),
        np.zeros((FEW, line), like.dtype),
        np.zeros((FEW, line), like.dtype),
        np.zeros((FEW, line), like.dtype),
        np.zeros((FEW, line), like.dtype),
    )
    alone = (
        lined(side, side + 1, like),
        np.zeros(width * (width + 1) // 2 if update == FEDPROX and size > width else 0),
        lined(1, width, like),
        np.zeros((1, size + LANES), like.dtype),
        np.zeros((1, size + LANES), like.dtype),
        np.empty(0, np.int64),
    )
    return beside, alone, (np.zeros((1, size), like.dtype), np.zeros(size, np.int64), np.zeros(owners + 2, np.int64))


@compiled
def move(
    code: int,
    update: int,
    step: float,
    local_steps: int,
    x: Array,
    targets: Array,
    predicted: Array,
    starts: Ints,
    sizes: Ints,
    models: Ints,
    shares: Floats,
    owners: Ints,
    total: Array,
    room: Room,
) -> None:
    """Add n_i times each client's shift to the row of its owner in a total (q, .), `lined`.

    x (n, d), targets (1, n) and predicted (n, E), all with room behind them, are those of a tile, in which client i has
    ``sizes[i]`` rows from ``starts[i]`` on, and moves its copy of model ``models[i]`` with membership ``shares[i]``.
    Sizes do not fall, unless there is one local step.
    """
    weight, order, begins = room[2]
    dim, one_step = x.shape[1], update == FEDAVG and local_steps == 1
    most = min(FEW, dim if update == FEDPROX else _DEEP * local_steps)
    few = len(sizes) if one_step else 0
    while few < len(sizes) and sizes[few] <= most:
        few += 1
    beside = len(sizes) if one_step or (update == FEDPROX and dim <= FEW) else few
    if not one_step:
        _side_by_side(
            code,
            update,
            step,
            local_steps,
            x,
            targets,
            predicted,
            starts,
            sizes,
            models,
            shares,
            owners,
            few,
            beside,
            weight,
            total,
            room[0],
            room[1],
        )
    begins[:] = 0
    for i in range(few):
        begins[owners[i] + 2] += sizes[i]
    for j in range(2, len(begins)):
        begins[j] += begins[j - 1]
    for i in range(few):
        ahead, j, rate = begins[owners[i] + 1] - starts[i], models[i], x.dtype.type(step * shares[i])
        for row in range(starts[i], starts[i] + sizes[i]):
            order[ahead + row] = row
            if one_step:
                weight[0, row] = rate * slope(code, targets[0, row], predicted[row, j])
        begins[owners[i] + 1] += sizes[i]
    for j in range(len(begins) - 2):
        if begins[j + 1] > begins[j]:
            add_rows(total, j, x, order, weight, begins[j], begins[j + 1])
    for i in range(beside, len(sizes)):
        begin, end, own_step = starts[i], starts[i] + sizes[i], step * shares[i]
        if update == FEDPROX:
            _solve_alone(x, targets, predicted, models[i], begin, end, own_step, owners[i], total, *room[1])
        else:
            rate = x.dtype.type(own_step / sizes[i])
            _descend_alone(
                code, x, targets, predicted, models[i], begin, end, rate, local_steps, owners[i], total, *room[1]
            )


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
    models: Ints,
    shares: Floats,
    owners: Ints,
    few: int,
    beside: int,
    weight: Array,
    total: Array,
    room: tuple[Array, ...],
    alone: tuple[Array, ...],
) -> None:
    """Update the first ``beside`` clients, a line at a time.

    Of the first ``few`` it finds what their rows weigh in n_i times their shifts, (1, n); those of the others, who have
    more rows than features, it adds to the total.
    """
    gram, factor, y, start, found, fall, rates = room
    dim, line = x.shape[1], gram.shape[1]
    last, inside = last_line(x)
    for begin in range(0, beside, line):
        count = min(line, beside - begin)
        size = min(sizes[begin + count - 1], dim) if update == FEDPROX else sizes[begin + count - 1]
        rates[: size + size % 2] = 0.0  # a row that is not there moves nobody
        for lane in range(count):
            i = begin + lane
            first, rows, j = starts[i], sizes[i], models[i]
            rate = step * shares[i] / rows
            for a in range(min(rows, size)):
                rates[a, lane] = rate
            if i < few:
                for a in range(0, rows, 2):
                    for b in range(0, a + 1, 2):
                        four = inner_products(x, first + a, first + b, last, inside)
                        gram[place(a, b), lane] = number(four, 0)
                        if b < a:
                            gram[place(a, b + 1), lane] = number(four, 1)
                        gram[place(a + 1, b), lane] = number(four, 2)
                        gram[place(a + 1, b + 1), lane] = number(four, 3)
                for a in range(rows):
                    y[a, lane], start[a, lane] = targets[0, first + a], predicted[first + a, j]
            else:
                _, triangle, gradient, _, residual, no_order = alone
                for row in range(first, first + rows):
                    residual[0, row] = targets[0, row] - predicted[row, j]
                _normal_equations(x, first, rows, residual, no_order, triangle, gradient)
                for a in range(dim):
                    y[a, lane], start[a, lane] = gradient[0, a], 0.0
                for a in range(len(triangle)):
                    gram[a, lane] = triangle[a]
        if update == FEDPROX:
            solve(gram, rates, y, start, size, factor, found)
            if x.itemsize < 8 and not sum_of_traces(gram, rates, size, fall) <= _STEEP:
                for lane in range(count):
                    i = begin + lane
                    if _is_steep(x, starts[i], sizes[i], step * shares[i]):
                        found[:size, lane] = 0.0
                        _solve_in_double(
                            x, targets, predicted, models[i], starts[i], sizes[i], step * shares[i], owners[i], total
                        )
        else:
            descend(code, gram, rates, y, start, size, local_steps, fall, found)
        for lane in range(count):
            first, rows, owner = starts[begin + lane], sizes[begin + lane], owners[begin + lane]
            if begin + lane < few:
                for a in range(rows):
                    weight[0, first + a] = rows * found[a, lane]
            else:
                for m in range(dim):
                    total[owner, m] += rows * found[m, lane]


@compiled
def _normal_equations(
    x: Array, first: int, rows: int, residual: Array, no_order: Ints, triangle: Floats, gradient: Array
) -> None:
    """Write X^T X, packed, and X^T r of the client whose rows begin with ``first``. residual (1, n)."""
    triangle[:] = 0.0
    add_squares(triangle, x[first:], x.shape[1], rows, 1.0)
    gradient[0] = 0.0
    add_rows(gradient, 0, x, no_order, residual, first, first + rows)


@inlined
def _descend_alone(
    code: int,
    x: Array,
    targets: Array,
    predicted: Array,
    model: int,
    begin: int,
    end: int,
    rate: float,
    steps: int,
    owner: int,
    total: Array,
    _matrix: Array,
    _triangle: Floats,
    shift: Array,
    start: Array,
    fall: Array,
    no_order: Ints,
) -> None:
    """Take local steps with one client, whose rows are ``begin:end``, and add its shift."""
    rows, dim = end - begin, x.shape[1]
    shift[0] = 0.0
    for row in range(rows):
        start[0, row] = predicted[begin + row, model]
    for step in range(steps):
        for row in range(0, rows, LANES):
            moved = read(start, 0, row)
            if step > 0:
                moved += products_along(x, begin + row, shift)
            write(fall, 0, begin + row, rate * slope(code, read(targets, 0, begin + row), moved))
        add_rows(shift, 0, x, no_order, fall, begin, end)
        shift[0, dim:] = 0.0  # where rows were read beyond their ends
    for m in range(dim):
        total[owner, m] += rows * shift[0, m]


@inlined
def _solve_alone(
    x: Array,
    targets: Array,
    predicted: Array,
    model: int,
    begin: int,
    end: int,
    step: float,
    owner: int,
    total: Array,
    matrix: Array,
    triangle: Floats,
    shift: Array,
    solution: Array,
    fall: Array,
    no_order: Ints,
) -> None:
    """Take a proximal step with one client, whose rows are ``begin:end``, and add its shift.

    (I + rate X^T X)^-1 X^T = X^T (I + rate X X^T)^-1: the smaller of the two is solved.
    """
    rows, dim = end - begin, x.shape[1]
    if x.itemsize < 8 and _is_steep(x, begin, rows, step):
        _solve_in_double(x, targets, predicted, model, begin, rows, step, owner, total)
        return
    rate = x.dtype.type(step / rows)
    for row in range(begin, end):
        fall[0, row] = rate * (targets[0, row] - predicted[row, model])
    if rows <= dim:
        last, inside = last_line(x)
        for a in range(0, rows, 2):
            for b in range(0, a + 1, 2):
                four = inner_products(x, begin + a, begin + b, last, inside)
                matrix[b, a], matrix[b + 1, a] = rate * number(four, 0), rate * number(four, 1)
                matrix[b, a + 1], matrix[b + 1, a + 1] = rate * number(four, 2), rate * number(four, 3)
        for row in range(rows):
            matrix[row, rows] = fall[0, begin + row]
        eliminate(matrix, rows, solution)
        for row in range(rows):
            fall[0, begin + row] = rows * solution[0, row]
        add_rows(total, owner, x, no_order, fall, begin, end)
        return
    _normal_equations(x, begin, rows, fall, no_order, triangle, shift)
    for a in range(dim):
        for b in range(a + 1):
            matrix[b, a] = rate * triangle[place(a, b)]
        matrix[a, dim] = shift[0, a]
    eliminate(matrix, dim, solution)
    for m in range(dim):
        total[owner, m] += rows * solution[0, m]


@compiled
def _is_steep(x: Array, begin: int, rows: int, step: float) -> bool:
    """Say whether a client's proximal step is beyond single precision."""
    squares = 0.0
    for row in range(begin, begin + rows):
        for m in range(x.shape[1]):
            squares += np.float64(x[row, m]) * np.float64(x[row, m])
    return not step / rows * squares <= _STEEP


@compiled
def _solve_in_double(
    x: Array,
    targets: Array,
    predicted: Array,
    model: int,
    begin: int,
    rows: int,
    step: float,
    owner: int,
    total: Array,
) -> None:
    """Take a proximal step with one client in double precision, and add its shift."""
    own = x[begin : begin + rows].astype(np.float64)
    residual = np.empty(rows)
    for row in range(rows):
        residual[row] = step / rows * (np.float64(targets[0, begin + row]) - predicted[begin + row, model])
    if rows <= own.shape[1]:
        solve_ridge(step / rows * np.dot(own, own.T), 1.0, residual)
        shift = np.dot(residual, own)
    else:
        shift = np.dot(residual, own)
        solve_ridge(step / rows * np.dot(own.T, own), 1.0, shift)
    for m in range(len(shift)):
        total[owner, m] += rows * shift[m]
