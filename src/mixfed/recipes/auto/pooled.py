"""The pooled fit of families whose likelihood is not quadratic, and standard units made of it.

Newton's method, each step an exchange. Features are then whitened by the information at it, over the mean weight of a
row: in these units the pooled model is 0, no two features are correlated in it, and a kind's theta is its difference
from it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from ...core.arrays import Floats
from ...exchange.census import CensusSum
from ...exchange.mixture import Candidates, MixtureSums
from ...exchange.units import StandardUnits
from ...families.base import Family
from ..recorder import Recorder
from ..standardise import from_user
from ..updates import capped
from .info import Info

_RIDGE = 1e-3
"""Rows added to each direction: kinds of their own may be needed where all rows are alike, and this is only a start."""
_MOST_EXCHANGES = 30
_CLOSE = 1e-2
"""Once a step promises less, in units of log likelihood, it is the last."""
_LONGEST = 2.0
_FLAT = 1e-8
"""Directions with less information than this, relative to the most, are taken to have so much."""


@dataclass(frozen=True, eq=False)
class Pooled:
    """The pooled fit."""

    units: StandardUnits
    mean_weight: float
    """The information of a row about its linear predictor, on average."""


def pooled_fit(run: Recorder, units: StandardUnits, census: CensusSum, family: Family, round_: int) -> Pooled:
    """Fit one model to all rows. ``units`` are those of a target that may be rescaled; ``round_`` counts exchanges."""
    slope = np.zeros_like(units.slope)
    if units.constant is not None:
        level = family.predictor(census.target / census.mass) - census.offset / census.mass
        slope[units.constant] = level / (units.constant_value * units.inverse_sd[units.constant])
    units = dataclasses.replace(units, slope=slope, target_centre=0.0, scale=1.0, family=family.name)
    theta = step = np.zeros(units.dim)
    before, gram = -np.inf, np.eye(units.dim)
    for exchange in range(_MOST_EXCHANGES):
        candidate = Candidates((theta + step)[None, None], np.zeros((1, 1)), np.zeros((1, 1)))
        reply = run.pool.ask(MixtureSums(units, candidate))
        likelihood = float(reply.likelihood[0])
        run.report("survey", round_ + exchange, 0, Info(likelihood, 1, census.n_rows))
        if likelihood < before - 1e-6 and np.abs(step).max() > 1e-8:
            step = 0.5 * step
            continue
        theta, before, gram = theta + step, likelihood, reply.matrices[0, 0]
        pull = reply.score[0, 0] - _RIDGE * theta
        whole = np.linalg.solve(gram + _RIDGE * np.eye(units.dim), pull)
        step = capped(whole, _LONGEST)
        if 0.5 * pull @ whole < _CLOSE:
            theta = theta + step
            break
    return _whitened(units, theta, gram, census.mass)


def _whitened(units: StandardUnits, theta: Floats, gram: Floats, n_rows: float) -> Pooled:
    """Whiten by the information (d, d) at the pooled fit theta (d,)."""
    mean_weight = float(np.trace(gram)) / (n_rows * units.dim)
    if units.constant is not None:
        constant = level_direction(units)
        mean_weight = float(constant @ gram @ constant) / n_rows
    size, axes = np.linalg.eigh(gram / (n_rows * mean_weight))
    size = np.maximum(size, _FLAT * size[-1])
    found = dataclasses.replace(
        units, whiten=units.whiten @ (axes / np.sqrt(size)), slope=units.slope + units.whiten @ theta
    )
    return Pooled(found, mean_weight)


def level_direction(units: StandardUnits) -> Floats:
    """Give the model in standard units that raises every row's linear predictor by 1. -> (d,)."""
    assert units.constant is not None
    level = np.zeros((2, len(units.slope)))
    level[1, units.constant] = 1.0 / units.constant_value
    none, one = from_user(units, level)
    return np.asarray(one - none)
