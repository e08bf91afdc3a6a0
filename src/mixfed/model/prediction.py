"""Predictions of rows under each kind, and the quantiles of their mixture.

With Psi_j = F_j F_j^T a client of kind j has the model theta_j + F_j c, and of c its rows tell a mean m and a
covariance S (`kernels.client_effects`). A row x of it is predicted by x theta_j + x F_j m with the variance
s_j^2 + x F_j S F_j^T x. A client that is not known has m = 0 and S = I.

Shapes: n rows, c clients, k kinds, D columns with the intercept, r columns of F.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ..core.arrays import Array, Floats, Ints
from ..core.errors import DataError
from ..core.names import INTERCEPT
from ..core.symmetric import packed, unpacked
from ..exchange.local_update import Mixture
from ..families.base import Family
from ..families.gaussian import GAUSSIAN
from ..tables.reading import read_rows
from ..tables.roles import Extras, find_clients_and_columns
from ..tables.rows import Rows
from ..tables.sources import FrameSource
from .assignment import Assignment

if TYPE_CHECKING:
    from .model import Model


_HALVINGS = 60
_AT_ONCE = 200_000
"""Rows whose deviations are looked at together."""


def foreseen(model: Model, rows: Any, known: Assignment | None, spread: bool) -> tuple[Floats, Floats, Floats]:
    """Give probabilities, linear predictors and, if ``spread``, standard deviations of rows under each kind, (n, k)."""
    if not isinstance(rows, Rows):
        rows = rows_of(model, rows, known is not None)
    model.check_features(rows.features)
    if known is not None:
        model.check_known(known)
    else:
        known = Assignment(np.empty(0), np.empty(0, np.int64), np.empty((0, model.n_clusters)))
    share = np.tile(model.weights, (len(rows.ids), 1))
    places = known.places(rows.ids)
    found, told = places >= 0, places[places >= 0]
    share[found] = known.probabilities[told]
    if model.factor is None:
        predictors = rows.phi @ model.coef.T + model.intercept + _offset_of(rows)
        return share[rows.owner], predictors, np.tile(model.scale, (len(rows.owner), 1))
    width = model.factor.shape[2]
    effects = np.zeros((*share.shape, width))
    covariance = np.tile(packed(np.eye(width)), (*share.shape, 1)) if spread else None
    if found.any():
        effects[found] = known.effects[told]
        if covariance is not None:
            uncertainty = known.uncertainty[told]
            if uncertainty.shape[1:] != covariance.shape[1:] or np.isnan(uncertainty).any():
                raise DataError("the uncertainty of the clients' deviations was not kept: give their rows as history")
            covariance[found] = uncertainty
    phi = np.column_stack([rows.phi, np.ones(len(rows.phi))]) if model.has_intercept else rows.phi
    means, deviations = predicted(phi, rows.owner, model.mixture, model.factor, effects, covariance)
    return share[rows.owner], means + _offset_of(rows), deviations


def _offset_of(rows: Rows) -> Floats | float:
    return 0.0 if rows.offset is None else rows.offset[:, None]


def extras_of(model: Model) -> Extras:
    """Give the columns that a model needs beside its features."""
    return Extras(model.offset_column, model.exposure_column)


def rows_of(model: Model, frame: Any, named: bool) -> Rows:
    """Find the features in a data frame, and the clients if it has their column, as it must if ``named``."""
    client = model.client_column
    extras = extras_of(model)
    source = FrameSource(frame, [*model.features, *extras.names, client])
    if client is None or client not in source.schema.names:
        if named:
            column = "a model that knows its client_column" if client is None else f"the column '{client}'"
            raise DataError(f"these rows do not say which of the known clients they belong to: it takes {column}")
        client = INTERCEPT  # a name that no column has: every row is of a client of its own
        source = FrameSource(source.table.append_column(client, pa.array(range(source.n_rows))), [])
    plan = find_clients_and_columns(source, client, None, [*model.features, *extras.names])
    return read_rows(source, plan, intercept=model.has_intercept, extras=extras)


def predicted(
    phi: Array, owner: Ints, mixture: Mixture, factor: Floats, mean: Floats, covariance: Floats | None
) -> tuple[Floats, Floats]:
    """Predict rows under each kind. phi (n, D), owner (n,), mean (c, k, r) -> means and standard deviations, (n, k).

    covariance (c, k, r (r + 1) / 2), packed; None if deviations are not wanted, which are then those of the noise.
    """
    means: Floats = phi @ mixture.theta.T
    deviations = np.tile(mixture.noise, (len(phi), 1))
    unit = mixture.noise.max() or 1.0  # squares of a target in units of its own may overflow
    width = factor.shape[2]
    for j, own in enumerate(factor):
        for begin in range(0, len(phi), _AT_ONCE):
            part = slice(begin, begin + _AT_ONCE)
            z = phi[part] @ own
            means[part, j] += np.einsum("nr,nr->n", z, mean[owner[part], j])
            if covariance is not None:
                spread = unpacked(covariance[owner[part], j], width)
                own_square = np.einsum("nr,nrs,ns->n", z / unit, spread, z / unit)
                deviations[part, j] = np.hypot(deviations[part, j], unit * np.sqrt(np.maximum(own_square, 0.0)))
    return means, deviations


def mixture_quantile(
    share: Floats, means: Floats, deviations: Floats, level: float, family: Family = GAUSSIAN
) -> Floats:
    """Give the quantile of mixtures of k distributions, by bisection. share, means, deviations (n, k) -> (n,).

    Ten standard deviations are as far as it looks, if they are normal, else a million scales.
    """
    far = 10.0 if family is GAUSSIAN else 1e6
    low, high = (means - far * deviations).min(axis=1), (means + far * deviations).max(axis=1)
    safe = np.maximum(deviations, 1e-300)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        upto = family.cumulative((middle[:, None] - means) / safe, np.zeros(1), np.ones(1))
        below = np.einsum("nk,nk->n", share, upto) < level
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray(0.5 * (low + high))


def count_quantile(family: Family, share: Floats, predictors: Floats, deviations: Floats, level: float) -> Floats:
    """Give the quantile of mixtures of k distributions of whole numbers, by bisection. All (n, k) -> (n,).

    It is the least number that the target is not above with probability ``level``.
    """
    dispersion = deviations**2
    means = family.mean(predictors)
    high = np.ceil((means + 10.0 * np.sqrt(family.variance(predictors, dispersion))).max(axis=1)) + 20.0
    low = np.full(len(high), -1.0)
    for _ in range(_HALVINGS):
        middle = np.floor(0.5 * (low + high))
        upto = np.einsum("nk,nk->n", share, family.cumulative(middle[:, None], predictors, dispersion))
        enough = upto >= level - 1e-12
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.asarray(high)
