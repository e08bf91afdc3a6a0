"""Standard units: whitened features, and the residual of the pooled fit over its own size; and what the target is.

D columns of the table, d whitened features; w columns of a sum as it travels, D unless its query says otherwise.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from ..core.arrays import Array, Floats
from ..families.gaussian import GAUSSIAN
from ..families.registry import family_named


@dataclass(frozen=True, eq=False)
class StandardUnits:
    """Standard units: z = (phi - centre) inverse_sd whiten, and the residual of the pooled fit over its own size."""

    centre: Annotated[Floats, "D"]
    inverse_sd: Annotated[Floats, "D"]
    """One over the spread of each column; 0 for a column that is left out."""
    whiten: Annotated[Floats, "D d"]
    """Of shifted and scaled columns."""
    slope: Annotated[Floats, "D"]
    """The pooled fit to shifted and scaled columns."""
    target_centre: float
    scale: float
    """Standard deviation of the pooled fit's residual."""
    constant: int | None
    """The column, if any, that takes up the shifts: the intercept or another that is constant."""
    constant_value: float
    family: str = GAUSSIAN.name
    """What the target is. If it may not be rescaled, target_centre is 0, scale 1, and slope the pooled linear
    predictor."""

    @property
    def dim(self) -> int:
        """Number of whitened features (d)."""
        return int(self.whiten.shape[1])

    def standardise(self, phi: Array, y: Floats) -> tuple[Floats, Floats]:
        """Phi (n, D), y (n,) -> z (n, d), residual (n,)."""
        x, residual = self.scaled(phi, y)
        return x @ self.whiten, residual

    def scaled(self, phi: Array, y: Floats) -> tuple[Floats, Floats]:
        """Phi (n, D), y (n,) -> shifted and scaled columns x (n, D), residual (n,)."""
        x = (phi - self.centre) * self.inverse_sd
        return x, (y - self.target_centre - x @ self.slope) / self.scale

    def in_basis(self, basis: Floats) -> StandardUnits:
        """Look at the features in a basis (d, r) only."""
        return dataclasses.replace(self, whiten=self.whiten @ basis)

    @staticmethod
    def plain(dim: int) -> StandardUnits:
        """Take features and residuals as they are."""
        return StandardUnits(np.zeros(dim), np.ones(dim), np.eye(dim), np.zeros(dim), 0.0, 1.0, None, 1.0)

    @property
    def whiten_rows(self) -> bool:
        """Whether features are looked at in few dimensions: rows are whitened then, not sums, which are smaller.

        That takes a target from which the pooled fit can be subtracted.
        """
        return family_named(self.family).rescales and 4 * self.dim <= 3 * len(self.inverse_sd)

    @property
    def width(self) -> int:
        """Columns (w) of sums as they travel."""
        return self.dim if self.whiten_rows else len(self.inverse_sd)

    def whitened(self, matrices: Floats) -> Floats:
        """Turn moments of x (..., D, D) into moments of z (..., d, d)."""
        return np.asarray(self.whiten.T @ matrices @ self.whiten)

    def turn(self, others: int) -> Floats:
        """Say how theta and other parameters for x depend on those for z, which differ in theta. -> (D + o, d + o)."""
        wide, dim = self.whiten.shape
        turn = np.zeros((wide + others, dim + others))
        turn[:wide, :dim], turn[wide:, dim:] = self.whiten, np.eye(others)
        return turn

    def models(self, theta: Floats) -> Floats:
        """Turn models in standard units into models of x for (y - target_centre) / scale. theta (L, d) -> (D, L)."""
        return np.asarray(self.whiten @ theta.T + self.slope[:, None] / self.scale)
