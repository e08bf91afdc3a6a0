"""Rows, models and units in the form that kernels take them.

The kernels' sums are over shifted and scaled columns x, and the large ones are answered so: who adds them up turns
the total into standard units.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from ...core.arrays import Array, Floats, Ints
from ...core.symmetric import packed
from ...exchange.base import ASKED_AT_ONCE
from ...exchange.mixture import Candidates
from ...exchange.units import StandardUnits
from ..packed import Clients


def kernel_rows(block: Clients, units: StandardUnits) -> tuple[Array, Floats, Ints, Array, Array, float, float]:
    """Give the kernels' first arguments: a block's rows and how to shift and scale them, in their own precision."""
    return block.phi, block.y, block.offsets, *_units(units, block.phi.dtype)


@lru_cache(maxsize=ASKED_AT_ONCE)
def _units(units: StandardUnits, precision: np.dtype[Any]) -> tuple[Array, Array, float, float]:
    return units.centre.astype(precision), units.inverse_sd.astype(precision), units.target_centre, units.scale


@lru_cache(maxsize=ASKED_AT_ONCE)
def in_few_columns(units: StandardUnits) -> tuple[StandardUnits, Callable[[Clients], Clients]]:
    """Give the frame in which to look at rows, and what takes them there: into standard units, if they are narrow."""
    if not units.whiten_rows:
        return units, lambda block: block
    names = tuple(f"z_{j}" for j in range(units.dim))

    def take(block: Clients) -> Clients:
        rows = units.standardise(block.design, block.y)
        return Clients(*rows, block.offsets, block.ids, names, weight=block.weight)

    return StandardUnits.plain(units.dim), take


@lru_cache(maxsize=ASKED_AT_ONCE)
def pooled_model(units: StandardUnits, precision: np.dtype[Any]) -> Array:
    """Give the pooled model, which is 0 in standard units, as the kernels take models, (D, 1)."""
    return np.ascontiguousarray(units.models(np.zeros((1, units.dim))), dtype=precision)


@lru_cache(maxsize=ASKED_AT_ONCE)
def kernel_models(candidates: Candidates, units: StandardUnits, precision: np.dtype[Any]) -> Array:
    """Give the models of all candidates, one behind another, as the kernels take them, (D, L)."""
    return np.ascontiguousarray(units.models(candidates.theta.reshape(-1, units.dim)), dtype=precision)


@lru_cache(maxsize=ASKED_AT_ONCE)
def packed_identity(units: StandardUnits) -> Floats:
    """Give the identity of z as a packed matrix of x."""
    back = np.linalg.pinv(units.whiten)
    return packed(back.T @ back)
