"""Second moments: of columns and target, and of pairs of rows of a client.

D columns of the table, k kinds; w columns of a sum as it travels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..core.arrays import Floats
from ..core.symmetric import packed, unpacked
from ..families.gaussian import GAUSSIAN
from .base import Parts, Query
from .units import StandardUnits


@dataclass(frozen=True, eq=False)
class GramSum(Parts):
    """Second moments of shifted and scaled columns."""

    gram: Annotated[Floats, "D*(D+1)/2"]
    """Packed, as are all second moments here: see `symmetric`."""
    cross: Annotated[Floats, "D"]
    square: float


@dataclass(frozen=True, eq=False)
class Gram(Query[GramSum, GramSum]):
    """Ask for second moments of (phi - centre) / unit and (y - target_centre) / target_unit."""

    centre: Annotated[Floats, "D"]
    unit: Annotated[Floats, "D"]
    target_centre: float
    target_unit: float
    family: str = GAUSSIAN.name
    """What the target is taken for."""


@dataclass(frozen=True, eq=False)
class PairSum(Parts):
    """Moments of pairs of rows of a client."""

    moments: Annotated[Floats, "k w*(w+1)/2 | 1 w*(w+1)/2"]
    """Around each kind, or around the pooled fit; packed."""
    rows: int
    """Rows that they are about."""

    def matrices(self, dim: int) -> Floats:
        """Give the moments as matrices, (k, d, d)."""
        return unpacked(self.moments, dim)

    def whitened(self, units: StandardUnits) -> PairSum:
        """Turn moments of x into moments of z."""
        if units.whiten_rows:
            return self
        return PairSum(packed(units.whitened(self.matrices(units.width))), self.rows)


@dataclass(frozen=True, eq=False)
class PairMoments(Query[PairSum, PairSum]):
    """Ask for the all-pairs moment matrix at the pooled fit: every client with two rows or more, every row."""

    units: StandardUnits
    lone: bool
    """Count clients of one row too: r^2 (z z^T - I) has the same space if features are normal."""

    def finish(self, total: PairSum) -> PairSum:
        """Turn sums about x into sums about z."""
        return total.whitened(self.units)
