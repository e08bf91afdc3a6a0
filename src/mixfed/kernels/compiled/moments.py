"""Moments of rows in compiled code: `plain.moments`, whose words are used here. All sums are in double precision."""

import numpy as np

from ...core.arrays import Array, Floats
from ...core.compile import compiled
from ..plain.moments import Ranges, in_round_numbers
from .products import LINE, add_second_moments, inner_product, lined
from .tiles import TILE, standardise_columns


def census(phi: Array, y: Floats, width: int) -> Ranges:
    """Do what the plain kernel does."""
    dim = phi.shape[1]
    low, high, total = np.full(dim, np.inf), np.full(dim, -np.inf), np.zeros(dim)
    _add_ranges(phi, low, high, total)
    return in_round_numbers(low, high, total, y, width)


@compiled
def _add_ranges(phi: Array, low: Floats, high: Floats, total: Floats) -> None:
    """Widen ranges (d,) by rows of phi (n, d), and add these to a total (d,)."""
    for row in range(len(phi)):
        for m in range(len(total)):
            value = np.float64(phi[row, m])
            low[m] = min(low[m], value)
            high[m] = max(high[m], value)
            total[m] += value


def second_moments(
    phi: Array, y: Floats, centre: Array, inverse_sd: Array, target_centre: float, target_unit: float
) -> tuple[Floats, Floats, float]:
    """Do what the plain kernel does."""
    width, most = len(centre), TILE + LINE
    gram, cross = np.zeros(width * (width + 1) // 2), np.zeros(width)
    units = centre, inverse_sd, np.array([target_centre, target_unit])
    return gram, cross, _add_moments(phi, y, *units, lined((width * most,), y), lined((3, most), y), gram, cross)


@compiled
def _add_moments(
    phi: Array,
    y: Floats,
    centre: Array,
    inverse_sd: Array,
    about: Floats,
    columns: Floats,
    room: Floats,
    gram: Floats,
    cross: Floats,
) -> float:
    """Add x x^T to gram (D (D + 1) / 2,) and x t to cross (D,); gives the sum of t^2.

    columns (D times the rows of a tile, in whole lines) and room (3, so many) are for use.
    """
    width, lane, square = len(centre), LINE // y.itemsize, 0.0
    target, weight, product = room[0], room[1], room[2]
    weight[:] = 1.0
    for begin in range(0, len(phi), TILE):
        end = min(begin + TILE, len(phi))
        n = end - begin + (begin - end) % lane
        x = columns[: width * n].reshape(width, n)
        standardise_columns(phi, y, begin, end, centre, inverse_sd, about, x, target)
        add_second_moments(gram, x, weight[:n], product)
        for m in range(width):
            cross[m] += inner_product(x[m], target[:n])
        square += inner_product(target[:n], target[:n])
    return square
