"""Sums of the survey over rows with weights, each of which counts as often as its weight says."""

import numpy as np

from ...core.arrays import Array, Floats
from ...core.symmetric import packed
from .rows import CACHED, scaled


def weighted_totals(phi: Array, width: int, weight: Floats) -> Floats:
    """Sum each column (n, d), and the constant 1 for the others. -> (D,)."""
    total = np.full(width, weight.sum())
    total[: phi.shape[1]] = weight @ phi
    return total


def weighted_second_moments(
    phi: Array,
    y: Floats,
    centre: Array,
    inverse_sd: Array,
    target_centre: float,
    target_unit: float,
    weight: Floats,
) -> tuple[Floats, Floats, float]:
    """Do what `second_moments` does. weight (n,)."""
    width = len(inverse_sd)
    gram, cross, square = np.zeros((width, width)), np.zeros(width), 0.0
    for first in range(0, len(phi), CACHED):
        root = np.sqrt(weight[first : first + CACHED])
        x = scaled(phi[first : first + CACHED], centre, inverse_sd) * root[:, None]
        target = root * (y[first : first + CACHED] - target_centre) / target_unit
        gram += x.T @ x
        cross += target @ x
        square += float(target @ target)
    return packed(gram), cross, square
