"""What a person wants to know of the kinds: which coefficients tell them apart, and by how much.

Coefficients of columns in different units cannot be compared. Times the column's standard deviation they can: such an
*effect* is how much the target changes when the column changes by a usual amount.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import draws
from .arrays import Floats, Ints

if TYPE_CHECKING:
    from .model import Model
    from .store import Held

LEVEL = "usual level"
"""What a kind's target is called where all columns are at their means: an intercept may be far from any row."""
_SURE = 2.0
"""A kind differs in a coefficient if it does by so many standard errors."""
_RESIDUAL_CLIENTS, _RESIDUAL_ROWS = 20_000, 200_000
"""Clients and rows whose residuals are looked at, about: enough for the shape of a distribution."""
_FARTHEST, _BINS = 5.0, 40
"""Residuals are counted up to so many standard deviations on each side, in so many bins."""


@dataclass(frozen=True)
class Trait:
    """Something by which a kind differs from the others: a coefficient, its level or its noise."""

    name: str
    value: float
    others: float
    """The mean of the other kinds, weighted by their shares."""

    sign: str = "+"
    """Whether the sign matters, as it does for coefficients."""

    @property
    def told(self) -> tuple[str, str]:
        """Both numbers, as people read them."""
        return digits(self.value, self.sign), digits(self.others, self.sign)

    def __str__(self) -> str:
        return f"{self.name} {self.told[0]} (others {self.told[1]})"


def effects(model: Model) -> Floats:
    """Give coefficients times the columns' standard deviations, (k, d)."""
    return model.coef * _units(model)


def telling_order(model: Model) -> Ints:
    """Order features by how much kinds differ in their effects, (d,); one kind's by how strong they are."""
    effect = effects(model)
    if model.n_clusters == 1:
        return np.argsort(-np.abs(effect[0]), kind="stable")
    centre = model.weights @ effect
    return np.argsort(-(model.weights @ (effect - centre) ** 2), kind="stable")


def traits(model: Model, kind: int, count: int = 3) -> list[Trait]:
    """Give what surely sets a kind apart from the others, what matters most to the target first."""
    if model.n_clusters == 1:
        return []
    share = np.delete(model.weights, kind)
    share = share / share.sum() if share.sum() > 0 else np.full(len(share), 1 / len(share))
    names, values, units, least = [*model.features], model.coef, _units(model), np.zeros(len(model.features))
    if model.coef_error is not None:
        least = _SURE * model.coef_error[kind]
    rows = np.asarray(model.details.get("kind_rows", np.full(model.n_clusters, np.inf)))
    own_levels = levels(model)
    if own_levels is not None:
        names, values = [*names, LEVEL], np.column_stack([values, own_levels])
        units, least = np.append(units, 1.0), np.append(least, _SURE * model.noise[kind] / np.sqrt(max(rows[kind], 1)))
    # A standard deviation is known to within one part in the root of twice the rows.
    names, values = [*names, "noise"], np.column_stack([values, model.noise])
    units, least = (
        np.append(units, 1.0),
        np.append(least, max(0.1, _SURE / np.sqrt(2 * max(rows[kind], 1))) * model.noise[kind]),
    )
    others = share @ np.delete(values, kind, axis=0)
    gap = np.abs(values[kind] - others)
    order = np.argsort(-gap * units, kind="stable")
    sure = [place for place in order if gap[place] > least[place]]
    return [
        Trait(
            names[place], float(values[kind, place]), float(others[place]), "+" if place < model.coef.shape[1] else ""
        )
        for place in sure[:count]
    ]


def levels(model: Model) -> Floats | None:
    """Give each kind's target where all columns are at their means, (k,); None if it has no intercept to differ by."""
    means = model.details.get("means")
    return model.intercept + model.coef @ np.asarray(means) if model.has_intercept and means is not None else None


def deviations(model: Model) -> Floats | None:
    """Give the standard deviations of the coefficients of clients of a kind, (k, d); None if clients do not deviate."""
    return None if model.deviation is None else np.sqrt(np.maximum(np.diagonal(model.deviation, 0, 1, 2), 0.0))


def typical_error(model: Model) -> float:
    """Give the standard deviation of the noise over all rows, whatever their kind."""
    rows = np.asarray(model.details.get("kind_rows", model.weights), dtype=np.float64)
    return float(np.sqrt(rows @ model.noise**2 / rows.sum()))


def residuals(model: Model, clients: Held) -> dict[str, Any]:
    """Count residuals in units of each kind's noise, on a sample of the clients if there are many.

    Gives ``edges`` (b + 1,), ``counts`` (k, b), weighted by memberships, in whose first and last bin is also what lies
    beyond, and how many ``clients`` were looked at.
    """
    share = min(_RESIDUAL_CLIENTS / clients.n_clients, _RESIDUAL_ROWS / clients.n_rows)
    if share < 1:
        chance = draws.uniform(model.seed, "residuals", 0, clients.keys)[:, 0]
        some = clients.subset(np.flatnonzero(chance < share))
    else:
        some = clients.block(0, clients.n_clients)
    member = np.repeat(model.assign(some, uncertainty=False).probabilities, some.rows, axis=0)
    scale = np.where(model.noise > 0, model.noise, 1.0)
    residual = (some.y[:, None] - some.phi @ model.coef.T - model.intercept) / scale
    if model.factor is not None:
        # Rows lie around their kind by its noise and by what its clients deviate.
        own = np.stack([((some.design @ factor) ** 2).sum(axis=1) for factor in model.factor], axis=1)
        residual *= scale / np.sqrt(scale**2 + own)
    edges = np.linspace(-_FARTHEST, _FARTHEST, _BINS + 1)
    place = np.clip(np.searchsorted(edges, residual, side="right") - 1, 0, _BINS - 1)
    counts = [np.bincount(place[:, j], member[:, j], _BINS) for j in range(model.n_clusters)]
    return {
        "edges": np.round(edges, 6).tolist(),
        "counts": np.round(counts, 1).tolist(),
        "clients": some.n_clients,
    }


def digits(value: float, sign: str = "") -> str:
    """Show a number in three digits, zeros at the end included, and of thousands all."""
    return f"{value:{sign},.0f}" if 1e3 <= abs(value) < 1e6 else f"{value:{sign}#.3g}".rstrip(".")


def _units(model: Model) -> Floats:
    """Give the columns' standard deviations, (d,), or 1 where a recipe does not tell them."""
    spread = model.details.get("spread")
    return np.ones(len(model.features)) if spread is None else np.asarray(spread, dtype=np.float64)
