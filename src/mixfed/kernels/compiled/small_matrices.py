"""Compiled linear algebra of one client: a few rows, a few features.

Loops do it, for a call of LAPACK would take longer than the work.
"""

import numpy as np

from ...core.arrays import Floats
from ...core.compile import compiled


@compiled
def householder_reduce(x: Floats, y: Floats) -> float:
    """Turn rows x (n, w), y (n,) of which there are more than w into w rows and a rest, in place.

    Householder's reflections keep X^T X, X^T y and y^T y. Gives the sum of squares of what is left of y below.
    """
    n, width = x.shape
    for a in range(width):
        norm = 0.0
        for row in range(a, n):
            norm += x[row, a] * x[row, a]
        norm = np.sqrt(norm)
        if norm == 0.0:
            continue
        pivot = -norm if x[a, a] > 0 else norm
        head = x[a, a] - pivot
        x[a, a] = head
        # The vector is column a from row a on; its squared length is -2 pivot head.
        scale = -1.0 / (pivot * head)
        for b in range(a + 1, width):
            total = 0.0
            for row in range(a, n):
                total += x[row, a] * x[row, b]
            total *= scale
            for row in range(a, n):
                x[row, b] -= total * x[row, a]
        total = 0.0
        for row in range(a, n):
            total += x[row, a] * y[row]
        total *= scale
        for row in range(a, n):
            y[row] -= total * x[row, a]
        x[a, a] = pivot
        for row in range(a + 1, n):
            x[row, a] = 0.0
    rest = 0.0
    for row in range(width, n):
        rest += y[row] * y[row]
    return rest


@compiled
def factorise(x: Floats, mixed: Floats, variance: float, root: Floats, error: Floats) -> float:
    """Factor V = variance I + X Psi X^T = K K^T. Gives log det V + r^T V^-1 r. x (m, w), mixed = X Psi (m, w).

    root (m, m) gets K below its diagonal, and on it 1 / K_ii: to divide takes long. error (m,) holds r and gets K^-1 r.
    """
    n, width = x.shape
    total, product = 0.0, 1.0
    for i in range(n):
        left_over, rest = error[i], variance
        for j in range(i):
            value = 0.0
            for a in range(width):
                value += mixed[i, a] * x[j, a]
            for s in range(j):
                value -= root[i, s] * root[j, s]
            value *= root[j, j]
            root[i, j] = value
            rest -= value * value
            left_over -= value * error[j]
        for a in range(width):
            rest += mixed[i, a] * x[i, a]
        # V is above variance I: less is rounding.
        rest = max(rest, 0.5 * variance)
        root[i, i] = 1.0 / np.sqrt(rest)
        error[i] = left_over * root[i, i]
        total += error[i] * error[i]
        # A logarithm takes long, too: one does for many rows.
        product *= rest
        if not 1e-100 < product < 1e100:
            total, product = total + np.log(product), 1.0
    return float(total + np.log(product))


@compiled
def solve_lower(root: Floats, n: int, columns: Floats, scale: float, out: Floats) -> None:
    """Give scale times K^-1 columns. root (n, n) as of `factorise`, columns (n, c) -> out (n, c)."""
    width = columns.shape[1]
    for i in range(n):
        for a in range(width):
            out[i, a] = scale * columns[i, a]
        for s in range(i):
            factor = root[i, s]
            for a in range(width):
                out[i, a] -= factor * out[s, a]
        for a in range(width):
            out[i, a] *= root[i, i]


@compiled
def solve_back(root: Floats, n: int, column: Floats, out: Floats) -> float:
    """Give K^-T column, and its sum of squares. root (n, n) as of `factorise`, column (n,) -> out (n,), or in place."""
    squares = 0.0
    for i in range(n - 1, -1, -1):
        value = column[i]
        for s in range(i + 1, n):
            value -= root[s, i] * out[s]
        out[i] = value * root[i, i]
        squares += out[i] * out[i]
    return squares


@compiled
def solve_ridge(gram: Floats, ridge: float, vector: Floats) -> None:
    """Solve (gram + ridge I) x = vector (n,) in place. Of gram (n, n) the lower half is used, and lost."""
    n = len(vector)
    for i in range(n):
        rest = gram[i, i] + ridge
        for j in range(i):
            value = gram[i, j]
            for s in range(j):
                value -= gram[i, s] * gram[j, s]
            value *= gram[j, j]
            gram[i, j] = value
            rest -= value * value
            vector[i] -= value * vector[j]
        # The matrix is above ridge I: less is rounding.
        gram[i, i] = 1.0 / np.sqrt(max(rest, 0.5 * ridge))
        vector[i] *= gram[i, i]
    solve_back(gram, n, vector, vector)


@compiled
def inverse_lower(root: Floats, n: int, out: Floats) -> None:
    """Give K^-1. root (n, n) as of `factorise` -> out (n, n) lower."""
    for i in range(n):
        for j in range(i):
            total = 0.0
            for s in range(j, i):
                total -= root[i, s] * out[s, j]
            out[i, j] = total * root[i, i]
        out[i, i] = root[i, i]


@compiled
def packed_moments(x: Floats, n: int, line: Floats, out: Floats) -> None:
    """Give X^T X, its lower triangle row by row. x (n, w) -> out (t,); line (w,) is for use."""
    place, width = 0, x.shape[1]
    for a in range(width):
        line[:] = 0.0
        for row in range(n):
            factor = x[row, a]
            for b in range(width):
                line[b] += factor * x[row, b]
        # Loops of one length are quicker than short ones: the next row overwrites what is beyond the diagonal.
        for b in range(width):
            out[place + b] = line[b]
        place += a + 1
