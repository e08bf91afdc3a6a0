"""What a person wants to know of the kinds: which coefficients tell them apart, and by how much.

Coefficients of columns in different units cannot be compared. Times the column's standard deviation they can: such an
*effect* is how much the target changes when the column changes by a usual amount.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..core.arrays import Floats, Ints
from .model import Model

LEVEL = "usual level"
"""What a kind's target is called where all columns are at their means: an intercept may be far from any row."""
_NOISE, _LEAST_NOISE = "noise", 0.05
_SURE = 2.0
"""A kind differs in a coefficient if it does by so many standard errors."""


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


def by_difference(model: Model) -> Ints:
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
    found = []
    for trait, values, unit, error in _measures(model, kind):
        others = float(share @ np.delete(values, kind))
        gap = abs(values[kind] - others)
        if gap > _SURE * error:
            sign = "" if trait in (LEVEL, _NOISE) else "+"
            found.append((gap * unit, Trait(trait, float(values[kind]), others, sign)))
    return [trait for _, trait in sorted(found, key=lambda one: -one[0])[:count]]


def _measures(model: Model, kind: int) -> Iterator[tuple[str, Floats, float, float]]:
    """Give what kinds may differ by: name, values (k,), what one of it means to the target, a kind's standard error."""
    errors = np.zeros(len(model.features)) if model.coef_error is None else model.coef_error[kind]
    yield from zip(model.features, model.coef.T, _units(model).tolist(), errors.tolist(), strict=True)
    rows = max(model.details["kind_rows"][kind], 1.0) if "kind_rows" in model.details else np.inf
    own = levels(model)
    if own is not None:
        yield LEVEL, own, 1.0, float(level_spreads(model)[kind] / np.sqrt(rows))
    if model.noise is None:
        return
    # A standard deviation is known to within one part in the root of twice the rows; less than that nobody minds.
    yield _NOISE, model.noise, 1.0, float(model.noise[kind] * max(_LEAST_NOISE, 1.0 / np.sqrt(2.0 * rows)))


def levels(model: Model) -> Floats | None:
    """Give each kind's mean where all columns are at their means, (k,); None if it has no intercept to differ by."""
    means = model.details.get("means")
    if not model.has_intercept or means is None:
        return None
    return model.target_family.mean(model.intercept + model.coef @ np.asarray(means))


def level_spreads(model: Model) -> Floats:
    """Give the standard deviation of a row of each kind where all columns are at their means, (k,)."""
    if model.noise is not None:
        return model.noise
    predictor = model.intercept + model.coef @ np.asarray(model.details["means"])
    return np.sqrt(model.target_family.variance(predictor, model.scale))


def deviations(model: Model) -> Floats | None:
    """Give the standard deviations of the coefficients of clients of a kind, (k, d); None if clients do not deviate."""
    return None if model.deviation is None else np.sqrt(np.maximum(np.diagonal(model.deviation, 0, 1, 2), 0.0))


def title(model: Model) -> str:
    """Say how many kinds there are."""
    return "One kind of client" if model.n_clusters == 1 else f"{model.n_clusters} kinds of client"


def counts(model: Model) -> tuple[int, int]:
    """Give the numbers of clients and rows of the fit; 0 if the model does not know them."""
    sizes = model.details.get("sizes", [])
    return sum(count for _, count in sizes), sum(size * count for size, count in sizes)


def typical_error(model: Model) -> float | None:
    """Give the standard deviation of the noise over all rows, whatever their kind; None for a family without."""
    if model.noise is None:
        return None
    rows = np.asarray(model.details.get("kind_rows", model.weights), dtype=np.float64)
    return float(np.sqrt(rows @ model.noise**2 / rows.sum()))


def digits(value: float, sign: str = "") -> str:
    """Show a number in three digits, zeros at the end included, and of thousands all."""
    return f"{value:{sign},.0f}" if 1e3 <= abs(value) < 1e6 else f"{value:{sign}#.3g}".rstrip(".")


def _units(model: Model) -> Floats:
    """Give the columns' standard deviations, (d,), or 1 where a recipe does not tell them."""
    spread = model.details.get("spread")
    return np.ones(len(model.features)) if spread is None else np.asarray(spread, dtype=np.float64)
