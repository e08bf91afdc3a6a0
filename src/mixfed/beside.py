"""Small dense algebra for a line of clients side by side, in compiled code.

Every number of a client has a lane in a line, so what is done for one client is done for eight, in single precision for
sixteen, at the same cost. Matrices are packed lower triangles, (., line); vectors are (n, line). Who has fewer rows
than the largest has the rate 0 in the rest, and these move nobody. `eliminate` is for a client that is alone: its own
matrix is large enough to be taken by lines.
"""

from __future__ import annotations

from .core.arrays import Array
from .core.compile import inlined
from .families.base import slope
from .lanes import LINE, inverse, read_line, write_line


@inlined
def place(row: int, column: int) -> int:
    """Find a number of a packed lower triangle."""
    return row * (row + 1) // 2 + column


@inlined
def descend(
    code: int, gram: Array, rates: Array, y: Array, start: Array, size: int, steps: int, fall: Array, found: Array
) -> None:
    """Take local steps with a line of clients. gram (., line), packed; rates, y, start (n, line) -> found (n, line)."""
    for a in range(size):
        write_line(found, a, 0, read_line(rates, a, 0) * slope(code, read_line(y, a, 0), read_line(start, a, 0)))
    for _ in range(1, steps):
        for a in range(size):
            moved = read_line(start, a, 0)
            for b in range(a):
                moved += read_line(gram, place(a, b), 0) * read_line(found, b, 0)
            for b in range(a, size):
                moved += read_line(gram, place(b, a), 0) * read_line(found, b, 0)
            write_line(fall, a, 0, read_line(rates, a, 0) * slope(code, read_line(y, a, 0), moved))
        for a in range(size):
            write_line(found, a, 0, read_line(found, a, 0) + read_line(fall, a, 0))


@inlined
def solve(gram: Array, rates: Array, y: Array, start: Array, size: int, factor: Array, found: Array) -> None:
    """Solve (I + rate gram) found = rate (y - start) for a line of clients, by L D L^T.

    gram (., line), packed; rates, y, start (n, line) -> found (n, line). factor (., line) is to work with: it gets L,
    and the inverse of D in its diagonal.
    """
    for a in range(0, size, 2):  # two rows and two columns at a time: half as often to memory
        own, below = place(a, 0), place(a + 1, 0)
        rate, rate_below = read_line(rates, a, 0), read_line(rates, a + 1, 0)
        for b in range(0, a, 2):
            left, right = place(b, 0), place(b + 1, 0)
            s0, s1 = rate * read_line(gram, own + b, 0), rate * read_line(gram, own + b + 1, 0)
            t0, t1 = rate_below * read_line(gram, below + b, 0), rate_below * read_line(gram, below + b + 1, 0)
            for c in range(b):
                s, t = read_line(factor, own + c, 0), read_line(factor, below + c, 0)
                first, second = read_line(factor, left + c, 0), read_line(factor, right + c, 0)
                s0 -= s * first
                s1 -= s * second
                t0 -= t * first
                t1 -= t * second
            second = read_line(factor, right + b, 0)
            write_line(factor, own + b, 0, s0)
            write_line(factor, own + b + 1, 0, s1 - s0 * second)
            write_line(factor, below + b, 0, t0)
            write_line(factor, below + b + 1, 0, t1 - t0 * second)
        between = rate_below * read_line(gram, below + a, 0)
        _finish_row(gram, rates, y, start, a, factor, found)
        for c in range(a):
            between -= read_line(factor, below + c, 0) * read_line(factor, own + c, 0)
        write_line(factor, below + a, 0, between)
        if a + 1 < size:
            _finish_row(gram, rates, y, start, a + 1, factor, found)
    for a in range(size - 1, -1, -1):
        rest = read_line(found, a, 0) * read_line(factor, place(a, a), 0)
        for b in range(a + 1, size):
            rest -= read_line(factor, place(b, a), 0) * read_line(found, b, 0)
        write_line(found, a, 0, rest)


@inlined
def _finish_row(gram: Array, rates: Array, y: Array, start: Array, a: int, factor: Array, found: Array) -> None:
    """Turn row a of the factor from L D into L, and give its pivot and what it leaves of the right-hand side."""
    rate, own = read_line(rates, a, 0), place(a, 0)
    pivot, rest = 1.0 + rate * read_line(gram, own + a, 0), rate * (read_line(y, a, 0) - read_line(start, a, 0))
    for b in range(a):
        entry = read_line(factor, own + b, 0)
        scaled = entry * read_line(factor, place(b, b), 0)
        pivot -= entry * scaled
        rest -= scaled * read_line(found, b, 0)
        write_line(factor, own + b, 0, scaled)
    write_line(factor, own + a, 0, inverse(pivot))
    write_line(found, a, 0, rest)


@inlined
def sum_of_traces(gram: Array, rates: Array, size: int, fall: Array) -> float:
    """Sum the traces of rate gram over a line of clients. fall (n, line) is to work with."""
    traces, total = read_line(rates, 0, 0) * read_line(gram, 0, 0), 0.0
    for a in range(1, size):
        traces += read_line(rates, a, 0) * read_line(gram, place(a, a), 0)
    write_line(fall, 0, 0, traces)
    for lane in range(fall.shape[1]):
        total += fall[0, lane]
    return total


@inlined
def eliminate(matrix: Array, size: int, solution: Array) -> None:
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
