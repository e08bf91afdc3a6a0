"""Sums of the survey: a census of columns, and moments of rows and of pairs of rows.

Nothing is whitened row by row: whoever asks turns the sums into standard units, which costs d times less.

Shapes: n rows, m clients, k models, D columns with the intercept, r columns of a basis.
"""

from typing import TypeAlias

import numpy as np

from ...core.arrays import Array, Bools, Floats, Ints
from ...core.symmetric import packed
from ...families.base import Family
from .rows import CACHED, alike, by_client, pieces, scaled

_LARGEST = float(np.finfo(np.float64).max)
_NEGLIGIBLE = 1e-14
"""Clients with less weight would not change the sums."""


Ranges: TypeAlias = tuple[Floats, Floats, Bools, Floats, Floats, float, float, float, bool]


def round_down(values: Floats | float) -> Floats:
    """Give the next numbers of three bits that are not larger."""
    mantissa, exponent = np.frexp(values)
    return np.maximum(np.ldexp(np.floor(8.0 * mantissa) / 8.0, exponent), -_LARGEST)


def round_up(values: Floats | float) -> Floats:
    """Give the next numbers of three bits that are not smaller."""
    return -round_down(-np.asarray(values))


def census(phi: Array, y: Floats, width: int) -> Ranges:
    """Look at all columns and at the target; columns beyond those of phi are the constant 1.

    Gives for each column (D,) its range in round numbers, whether it has the same value in all rows, that value or 0,
    and its sum; then the sum and the range of the target, and whether all targets are whole numbers. Ranges are wider
    than they need be, for an extreme is a value in somebody's row, and nobody's are to be told. Rounding keeps the
    order, so the range of all is that of the ranges.
    """
    return in_round_numbers(*_ranges(phi), y, width)


def in_round_numbers(low: Floats, high: Floats, total: Floats, y: Floats, width: int) -> Ranges:
    """Tell the census of columns of whom the range and sum are known, (d,) each, and of the target."""
    ones = np.ones(width - len(low))
    low, high = np.concatenate([low, ones]), np.concatenate([high, ones])
    constant = low == high
    bounds = float(round_down(y.min(initial=np.inf))), float(round_up(y.max(initial=-np.inf)))
    target = float(y.sum()), *bounds, bool((y == np.round(y)).all())
    totals = np.concatenate([total, len(y) * ones])
    return round_down(low), round_up(high), constant, np.where(constant, low, 0.0), totals, *target


def _ranges(phi: Array) -> tuple[Floats, Floats, Floats]:
    """Give the least and the largest number of each column, and its sum; there may be no rows."""
    low, high, total = np.full(phi.shape[1], np.inf), np.full(phi.shape[1], -np.inf), np.zeros(phi.shape[1])
    for first in range(0, len(phi), CACHED):
        some = phi[first : first + CACHED]
        low, high = np.minimum(low, some.min(axis=0)), np.maximum(high, some.max(axis=0))
        total += some.sum(axis=0, dtype=np.float64)
    return low, high, total


def second_moments(
    phi: Array, y: Floats, centre: Array, inverse_sd: Array, target_centre: float, target_unit: float
) -> tuple[Floats, Floats, float]:
    """Sum x x^T, packed (D (D + 1) / 2,), x t (D,) and t^2 over rows, t being the shifted and scaled target."""
    width = len(inverse_sd)
    gram, cross, square = np.zeros((width, width)), np.zeros(width), 0.0
    for first in range(0, len(phi), CACHED):
        x = scaled(phi[first : first + CACHED], centre, inverse_sd)
        target = (y[first : first + CACHED] - target_centre) / target_unit
        gram += x.T @ x
        cross += target @ x
        square += float(target @ target)
    return packed(gram), cross, square


def pair_moments(
    phi: Array,
    y: Floats,
    offsets: Ints,
    centre: Array,
    inverse_sd: Array,
    target_centre: float,
    target_unit: float,
    models: Array,
    weight: Floats,
    family: Family,
    shift: Floats | None = None,
    row_weight: Floats | None = None,
) -> Floats:
    """Sum w_ij [(sum e)(sum e)^T - sum e e^T] / (n_i - 1) with e = x u, u being a row's score: the residual of model j.

    models (D, k), weight (m, k) -> packed (k, D (D + 1) / 2). Clients of one row have no pairs. A shift (n,) is added
    to every linear predictor, and a row counts as often as its weight (n,) says.
    """
    width, first = len(centre), 0
    found = np.zeros((weight.shape[1], width, width))
    for rows, edges in pieces(offsets):
        sizes, shares = np.diff(edges), weight[first : first + len(edges) - 1]
        first += len(sizes)
        x = scaled(phi[rows], centre, inverse_sd)
        eta = x @ models
        if shift is not None:
            eta += shift[rows, None]
        scores = family.score(((y[rows] - target_centre) / target_unit)[:, None], eta)
        if row_weight is not None:
            scores = scores * row_weight[rows, None]
        for total, own, left in zip(found, shares.T, scores.T, strict=True):
            counts = (sizes > 1) & (own > _NEGLIGIBLE)
            scale = np.sqrt(np.where(counts, own, 0.0) / np.maximum(sizes - 1, 1))
            e = x * (left * np.repeat(scale, sizes))[:, None]
            whole = by_client(e, edges)
            total += whole.T @ whole - e.T @ e
    return packed(found)


def project(
    phi: Array,
    y: Floats,
    offsets: Ints,
    centre: Array,
    inverse_sd: Array,
    target_centre: float,
    target_unit: float,
    model: Array,
    basis: Array,
    weight: Floats | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Give each client's normal equations in a basis (D, r), for the residuals of one model (D, 1).

    Squares (m,), cross products (m, r), second moments, packed (m, r (r + 1) / 2).
    """
    x = scaled(phi, centre, inverse_sd)
    z, residual = x @ basis, (y - target_centre) / target_unit - (x @ model)[:, 0]
    if weight is not None:
        z, residual = z * np.sqrt(weight)[:, None], residual * np.sqrt(weight)
    rows, columns = np.tril_indices(basis.shape[1])
    return (
        by_client(residual**2, offsets),
        by_client(residual[:, None] * z, offsets),
        by_client(z[:, rows] * z[:, columns], offsets),
    )


def largest_norm(phi: Array, offsets: Ints) -> float:
    """Give the largest |X_i|^2 / n_i of any client, the norm being the spectral one."""
    dim, largest = phi.shape[1], 0.0
    for _, rows in alike(offsets, dim * dim):
        x = phi[rows].astype(np.float64)
        n = rows.shape[1]
        products = x @ x.swapaxes(1, 2) if n <= dim else x.swapaxes(1, 2) @ x
        largest = max(largest, float(np.linalg.eigvalsh(products)[:, -1].max()) / n)
    return largest
