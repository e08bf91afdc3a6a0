"""Standard units: features whitened by the pooled second moment, targets as residuals of the pooled fit.

In them every column has second moment 1 and no two are correlated (the paper's alpha and beta are 1), the pooled model
is 0 and the noise is below 1, whatever the units of the table. A fit in standard units is therefore the same fit for
any rescaling of the columns or the target, and for any shift of them when there is an intercept.
"""

from dataclasses import dataclass

import numpy as np

from ..core.arrays import Array, Floats
from ..core.errors import DataError
from ..core.symmetric import unpacked
from ..exchange.census import CensusSum
from ..exchange.moments import Gram, GramSum
from ..exchange.units import StandardUnits
from ..families.gaussian import GAUSSIAN

_COLLINEAR = 1e-10
"""Directions in which the scaled features vary less than this, relative to the most, are left out."""


@dataclass(frozen=True, eq=False)
class Columns:
    """What the census says of the table's D columns."""

    centre: Floats
    """(D,): what to subtract: the means if a constant column can take them up, else 0."""
    unit: Floats
    """(D,): what to divide by."""
    target_centre: float
    target_unit: float
    constant: int | None
    """The column that is constant and not 0: the intercept, or what takes its role."""
    constant_value: float
    live: Array
    """(D,) of bool: columns that vary, and the constant one."""
    single: bool
    """Whether some rows are in single precision."""


def inspect(census: CensusSum, intercept: bool) -> Columns:
    """Find the constant columns and the means."""
    constant_columns = census.constant_columns
    found = np.flatnonzero(constant_columns & (census.value != 0))
    constant = (len(constant_columns) - 1 if intercept else int(found[0])) if len(found) else None
    live = ~constant_columns
    centre = np.zeros(len(constant_columns))
    if constant is not None:
        centre = _rounded(np.where(constant_columns, 0.0, census.total / census.mass), census.single)
        live[constant] = True
    unit = np.maximum(np.abs(census.low - centre), np.abs(census.high - centre))
    target_centre = census.target / census.mass if constant is not None else 0.0
    value = 1.0 if constant is None else float(census.value[constant])
    target_unit = max(abs(census.target_low - target_centre), abs(census.target_high - target_centre)) or 1.0
    return Columns(
        centre, np.where(unit > 0, unit, 1.0), target_centre, target_unit, constant, value, live, census.single
    )


def gram_query(columns: Columns, family: str = GAUSSIAN.name) -> Gram:
    """Ask for second moments in units in which they lose no digits."""
    return Gram(columns.centre, columns.unit, columns.target_centre, columns.target_unit, family)


def make_units(columns: Columns, reply: GramSum, n_rows: float) -> tuple[StandardUnits, Array]:
    """Whiten, and fit one model to all rows. Gives also which columns (D,) are combinations of others."""
    gram = unpacked(reply.gram, len(columns.unit))
    spread = np.sqrt(np.diag(gram) / n_rows)
    live = columns.live & (spread > 0)
    scale = np.where(live, 1.0 / np.where(live, spread, 1.0), 0.0)
    eigenvalues, axes = np.linalg.eigh(gram * np.outer(scale, scale) / n_rows)
    kept = eigenvalues > _COLLINEAR * max(eigenvalues[-1], 1e-300)
    if not kept.any():
        raise DataError("every feature is 0 in all rows: there is nothing to fit")
    whiten = np.where(live, 1.0, 0.0)[:, None] * axes[:, kept] / np.sqrt(eigenvalues[kept])
    # In whitened features the pooled fit is the cross moment itself.
    cross = (whiten * scale[:, None]).T @ reply.cross / n_rows
    total = reply.square / n_rows
    # A target that is explained to rounding has a noise of rounding, not of nothing.
    least = 1e-20 * total + 1e-31 * (columns.target_centre / columns.target_unit) ** 2 or 1e-20
    size = np.sqrt(max(total - cross @ cross, least))
    lost = axes[:, ~kept] ** 2
    tied = live & (lost.sum(axis=1) > 1e-6)
    units = StandardUnits(
        columns.centre,
        _rounded(scale / columns.unit, columns.single),
        whiten,
        whiten @ cross * columns.target_unit,
        columns.target_centre,
        float(size) * columns.target_unit,
        columns.constant,
        columns.constant_value,
    )
    return units, tied


def spreads(columns: Columns, reply: GramSum, census: CensusSum) -> tuple[Floats, float]:
    """Give the standard deviations of the table's columns (D,) and of the target."""
    n_rows = census.mass
    # In the columns' units, in which squares do not overflow; the shift is 0 where columns are centred already.
    shift = (census.total / n_rows - columns.centre) / columns.unit
    squares = np.diag(unpacked(reply.gram, len(shift)))
    variance = np.where(census.constant_columns, 0.0, squares / n_rows - shift**2)
    target_shift = (census.target / n_rows - columns.target_centre) / columns.target_unit
    target = reply.square / n_rows - target_shift**2
    return columns.unit * np.sqrt(np.maximum(variance, 0.0)), columns.target_unit * float(np.sqrt(max(target, 0.0)))


def _rounded(values: Floats, single: bool) -> Floats:
    """Round to single precision if some rows are in it, so that server and clients mean the same number."""
    return values.astype(np.float32).astype(np.float64) if single else values


def to_user(units: StandardUnits, theta: Floats) -> Floats:
    """Turn models in standard units into models of the table's columns. theta (..., d) -> (..., D)."""
    coef = (units.slope + units.scale * theta @ units.whiten.T) * units.inverse_sd
    if units.constant is not None:
        coef[..., units.constant] += (units.target_centre - coef @ units.centre) / units.constant_value
    return coef


def from_user(units: StandardUnits, theta: Floats) -> Floats:
    """Turn models of the table's columns into standard units. theta (..., D) -> (..., d)."""
    coef = np.array(theta, dtype=np.float64)
    if units.constant is not None:
        coef[..., units.constant] -= (units.target_centre - coef @ units.centre) / units.constant_value
    live = units.inverse_sd > 0
    scaled = coef[..., live] / units.inverse_sd[live]
    flat = ((scaled - units.slope[live]) / units.scale).reshape(-1, int(live.sum())).T
    found = np.linalg.lstsq(units.whiten[live], flat, rcond=None)[0].T
    return np.asarray(found.reshape(*coef.shape[:-1], -1), dtype=np.float64)


def from_scaled(units: StandardUnits, columns: Floats) -> Floats:
    """Turn changes of models of shifted and scaled columns into those of the table's. (..., D, r) -> (..., D, r)."""
    moved = np.array(columns, dtype=np.float64)
    if units.constant is not None:
        # The constant takes up what the shifts of the others leave.
        own = units.inverse_sd[units.constant]
        moved[..., units.constant, :] -= (units.centre * units.inverse_sd) @ moved / (units.constant_value * own)
    return np.asarray(units.scale * units.inverse_sd[:, None] * moved)


def errors_to_user(units: StandardUnits, covariance: Floats) -> Floats:
    """Turn covariances of models in standard units (k, d, d) into standard errors of the table's columns (k, D)."""
    jacobian = from_scaled(units, units.whiten)
    size = np.abs(jacobian).max(axis=1, keepdims=True)  # whose square may be no number
    jacobian = jacobian / np.where(size > 0, size, 1.0)
    variance = np.einsum("Dd,kde,De->kD", jacobian, covariance, jacobian)
    return np.asarray(size[:, 0] * np.sqrt(np.maximum(variance, 0.0)))
