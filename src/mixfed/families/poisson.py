"""A target that counts: the linear predictor is the logarithm of its mean."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..core.arrays import Floats
from ..core.errors import DataError
from .base import Family, Terms, Words

_FAR = 40.0
"""Linear predictors are cut there: beyond, counts have more digits than numbers have."""
_LEAST = 1e-3
"""No mean below is taken for a start."""


@dataclass(frozen=True)
class Poisson(Family):
    """l = y eta - exp eta - log y!."""

    def terms(self, y: Floats, eta: Floats, log_dispersion: Floats) -> Terms:
        """Give what the sums over rows are made of."""
        from scipy.special import gammaln  # slow to import

        mean = self.mean(eta)
        return Terms(y * np.clip(eta, -_FAR, _FAR) - mean - gammaln(y + 1.0), y - mean, mean, None)

    def score(self, y: Floats, eta: Floats) -> Floats:
        """Give the residual."""
        return y - self.mean(eta)

    def check_target(self, low: float, high: float, whole: bool) -> None:
        """Refuse what is no count."""
        if low < 0 or not whole:
            what = "negative values" if low < 0 else "values that are no whole numbers"
            raise DataError(f"the target has {what}, and the family poisson takes counts: is it another?")

    def predictor(self, mean: float) -> float:
        """Give the logarithm."""
        return float(np.log(max(mean, _LEAST)))

    def mean(self, eta: Floats) -> Floats:
        """Give the rate."""
        return np.asarray(np.exp(np.clip(eta, -_FAR, _FAR)))

    def variance(self, eta: Floats, dispersion: Floats) -> Floats:
        """Give the rate."""
        return self.mean(eta)

    def cumulative(self, y: Floats, eta: Floats, dispersion: Floats) -> Floats:
        """Give the probability that a target is not above y."""
        from scipy.special import pdtr  # slow to import

        return np.asarray(np.where(y < 0.0, 0.0, pdtr(np.maximum(np.floor(y), 0.0), self.mean(eta))))

    def draw(self, rng: np.random.Generator, eta: Floats, dispersion: Floats) -> Floats:
        """Draw targets."""
        return np.asarray(rng.poisson(self.mean(eta)).astype(np.float64))

    def deviance(self, y: Floats, mean: Floats) -> Floats:
        """Give 2 (y log(y / mu) - y + mu)."""
        safe = np.maximum(mean, 1e-300)
        return np.asarray(2.0 * (np.where(y > 0.0, y * np.log(np.maximum(y, 1e-300) / safe), 0.0) - y + mean))


POISSON = Poisson(
    "poisson",
    "poisson",
    Words(None, "log rate ratio", "rate", "a count: 0, 1, 2, ...", "logarithm of the rate"),
    has_dispersion=False,
    rescales=False,
    quadratic=False,
    discrete=True,
    most_score=math.inf,
    most_weight=math.inf,
    ridge=1.0,
)
