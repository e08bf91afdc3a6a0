"""Who is there: counts of clients and rows, ranges and totals of columns.

D columns of the table; "?" is any size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from ..core.arrays import Bools, Floats, Ints
from .base import Query


@dataclass(frozen=True, eq=False)
class CensusSum:
    """Who is there, and the range of what they hold."""

    sizes: Annotated[Ints, "?"]
    """How many clients have 0, 1, 2, ... rows."""
    low: Annotated[Floats, "D"]
    """No value of a feature is below: a round number, and so nobody's value."""
    high: Annotated[Floats, "D"]
    """Nor above."""
    steady: Annotated[Bools, "D"]
    """Whether a feature has the same value in all rows."""
    value: Annotated[Floats, "D"]
    """That value; else 0."""
    total: Annotated[Floats, "D"]
    """The sum of each feature."""
    target: float
    """The sum of the targets."""
    target_low: float
    target_high: float
    single: bool
    """Whether some rows are in single precision."""

    def __add__(self, other: CensusSum) -> CensusSum:
        longer, shorter = sorted((self.sizes, other.sizes), key=len, reverse=True)
        sizes = longer.copy()
        sizes[: len(shorter)] += shorter
        steady = self.steady & other.steady & (self.value == other.value)
        return CensusSum(
            sizes,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            steady,
            np.where(steady, self.value, 0.0),
            self.total + other.total,
            self.target + other.target,
            min(self.target_low, other.target_low),
            max(self.target_high, other.target_high),
            self.single or other.single,
        )

    @property
    def n_clients(self) -> int:
        """Number of clients (M)."""
        return int(self.sizes.sum())

    @property
    def n_rows(self) -> int:
        """Number of rows of all clients (N)."""
        return int(self.sizes @ np.arange(len(self.sizes)))


@dataclass(frozen=True)
class Census(Query[CensusSum, CensusSum]):
    """Count clients and rows."""


@dataclass(frozen=True, eq=False)
class PeakSum:
    """What no client's |X_i|^2 / n_i is above: a round number, and so nobody's; of two replies, the larger."""

    peak: float

    def __add__(self, other: PeakSum) -> PeakSum:
        return PeakSum(max(self.peak, other.peak))


@dataclass(frozen=True)
class Peak(Query[PeakSum, PeakSum]):
    """Ask for the largest |X_i|^2 / n_i, which the paper's gamma is made of."""
