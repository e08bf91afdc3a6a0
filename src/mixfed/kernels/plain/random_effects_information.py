"""From sums over clients to the information about kinds whose clients deviate: Fisher's, and the observed one.

What `random_effects_sums` gives of products of A = X^T V^-1 X and u = X^T V^-1 r is turned into the second derivatives
of the log likelihood by theta, log s^2 and the numbers of Psi; and into their expectation if memberships were known.
"""

import math
from collections.abc import Sequence

import numpy as np

from ...core.arrays import Floats
from ...core.symmetric import doubled, packed, places, triangle, unpacked


def sandwich(matrices: Floats, dim: int) -> Floats:
    """Turn sums of packed(A) packed(B)^T into those of tr(E_p A E_q B), made symmetric in A and B.

    matrices (..., v, v) -> (..., v, v), where E_p is the derivative of a symmetric matrix by its packed number p.
    """
    where, times = places(dim), doubled(dim)
    rows, columns = triangle(dim)
    a, b, c, e = rows[:, None], columns[:, None], rows[None, :], columns[None, :]
    both = matrices + matrices.swapaxes(-1, -2)
    total = both[..., where[a, c], where[b, e]] + both[..., where[a, e], where[b, c]]
    return np.asarray(0.25 * times[:, None] * times * total)


def information(
    log_variance: Floats,
    informed: Sequence[int],
    full: bool,
    fisher: bool,
    gram: Floats,
    score: Floats,
    products: Floats,
    sides: Floats,
    traces: Floats,
) -> tuple[Floats, Floats]:
    """Make Fisher's and the observed information of each kind of what `random_effects_sums` gives, packed."""
    k, some = log_variance.shape[1], list(informed)
    kinds = (np.array(some, dtype=np.int64)[:, None] * k + np.arange(k)).ravel()
    t = gram.shape[-1]
    width = (math.isqrt(8 * t + 1) - 1) // 2
    theta, noise, psi = slice(0, width), width, slice(width + 2, None)
    variance = np.exp(log_variance[some]).ravel()
    where, times = places(width), doubled(width)
    if full:
        bent, half = sandwich(products[:, :t], width), np.zeros(1)
        if fisher:
            half = 0.5 * sandwich(products[:, t + width :], width)
        rows, columns = triangle(width)
        cross = products[:, t : t + width]
        cross = cross[:, columns, where[:, rows]] + cross[:, rows, where[:, columns]]
        cross, kept = 0.5 * times * cross, np.arange(t)
    else:
        half = 0.5 * unpacked(products[:, 0], width)
        bent, cross, kept = unpacked(products[:, 1], width) - half, products[:, 2:, :width], np.diag(where)
    expected = np.zeros((len(kinds), score.shape[-1], score.shape[-1]))
    observed = np.zeros_like(expected)
    side = 0.5 * variance[:, None] * times[kept] * sides[:, 0, kept]
    other_side = variance[:, None] * times[kept] * sides[:, 1, kept] - side
    corner = 0.5 * traces[:, 0]
    other_corner = variance**2 * traces[:, 1] - corner - score[kinds, noise]
    for matrix, curvature, beside, last in (
        (expected, half, side, corner),
        (observed, bent, other_side, other_corner),
    ):
        matrix[:, theta, theta] = unpacked(gram[kinds], width)
        matrix[:, psi, psi] = curvature
        matrix[:, noise, psi] = matrix[:, psi, noise] = beside
        matrix[:, noise, noise] = last
    observed[:, theta, psi] = cross
    observed[:, psi, theta] = cross.transpose(0, 2, 1)
    observed[:, theta, noise] = observed[:, noise, theta] = variance[:, None] * sides[:, 2, :width]
    shape = (len(some), k, *expected.shape[1:])
    return packed(expected.reshape(shape)), packed(observed.reshape(shape))
