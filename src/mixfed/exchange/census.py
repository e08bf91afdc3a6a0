"""Who is there: counts of clients and rows, ranges and totals of columns.

D columns of the table; "?" is any size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from ..core.arrays import Bools, Floats, Ints
from ..families.gaussian import GAUSSIAN
from .base import Query


@dataclass(frozen=True, eq=False)
class CensusSum:
    """Who is there, and the range of what they hold."""

    sizes: Annotated[Ints, "m"]
    """The numbers of rows that clients have, ascending, each once."""
    counts: Annotated[Ints, "m"]
    """How many clients have each."""
    low: Annotated[Floats, "D"]
    """No value of a feature is below: a round number, and so nobody's value."""
    high: Annotated[Floats, "D"]
    """Nor above."""
    constant_columns: Annotated[Bools, "D"]
    """Whether a feature has the same value in all rows."""
    value: Annotated[Floats, "D"]
    """That value; else 0."""
    mass: float
    """The sum of the rows' weights; without any, the number of rows."""
    offset: float
    """The sum of the offsets, weighted as the next are."""
    total: Annotated[Floats, "D"]
    """The sum of each feature."""
    target: float
    """The sum of the targets."""
    target_low: float
    target_high: float
    whole: bool
    """Whether all targets are whole numbers."""
    single: bool
    """Whether some rows are in single precision."""

    def __add__(self, other: CensusSum) -> CensusSum:
        sizes, place = np.unique(np.concatenate([self.sizes, other.sizes]), return_inverse=True)
        counts = np.zeros_like(sizes)
        np.add.at(counts, place, np.concatenate([self.counts, other.counts]))
        constant_columns = self.constant_columns & other.constant_columns & (self.value == other.value)
        return CensusSum(
            sizes,
            counts,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            constant_columns,
            np.where(constant_columns, self.value, 0.0),
            self.mass + other.mass,
            self.offset + other.offset,
            self.total + other.total,
            self.target + other.target,
            min(self.target_low, other.target_low),
            max(self.target_high, other.target_high),
            self.whole and other.whole,
            self.single or other.single,
        )

    @property
    def n_clients(self) -> int:
        """Number of clients (M)."""
        return int(self.counts.sum())

    @property
    def n_rows(self) -> int:
        """Number of rows of all clients (N)."""
        return int(self.sizes @ self.counts)


@dataclass(frozen=True)
class Census(Query[CensusSum, CensusSum]):
    """Count clients and rows."""

    family: str = GAUSSIAN.name
    """What the target is taken for."""


@dataclass(frozen=True, eq=False)
class LargestNormSum:
    """What no client's |X_i|^2 / n_i is above: a round number, and so nobody's; of two replies, the larger."""

    peak: float

    def __add__(self, other: LargestNormSum) -> LargestNormSum:
        return LargestNormSum(max(self.peak, other.peak))


@dataclass(frozen=True)
class LargestNorm(Query[LargestNormSum, LargestNormSum]):
    """Ask for the largest |X_i|^2 / n_i, which the paper's gamma is made of."""
