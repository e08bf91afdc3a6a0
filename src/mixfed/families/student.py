"""A number with heavy tails: Student's t around the linear predictor, phi being the square of its scale.

All kinds have one nu, the degrees of freedom, which is estimated: the fewer, the heavier the tails.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..core.arrays import Floats
from .base import Family, Terms, Words

LEAST, MOST = 1.0, 200.0
"""Of nu: below, not even means exist; above, tails are those of a normal target."""
OBSERVED = " observed"


@dataclass(frozen=True)
class Student(Family):
    """l = log c - (log phi + (nu + 1) log(1 + r^2 / (nu phi))) / 2 with r = y - eta.

    With a = (nu + 1) / (nu + r^2 / phi), u = a r and t = a r^2; w is Fisher's, (nu + 1) / (nu + 3) of a normal one.
    """

    nu: float = 5.0
    observed: bool = False
    """Whether w is not what is expected, but -phi d^2 l / d eta^2 itself: for standard errors, outliers or not."""

    @property
    def wire_name(self) -> str:
        """Tell nu, too, and which w is meant."""
        return f"{self.name}:{self.nu!r}{OBSERVED if self.observed else ''}"

    @property
    def dispersion_information(self) -> float:
        """Give nu / (nu + 3)."""
        return self.nu / (self.nu + 3.0)

    def terms(self, y: Floats, eta: Floats, log_dispersion: Floats) -> Terms:
        """Give what the sums over rows are made of."""
        nu, residual = self.nu, y - eta
        square = residual**2
        ratio = square * np.exp(-log_dispersion)
        likelihood = self._constant - 0.5 * (log_dispersion + (nu + 1.0) * np.log1p(ratio / nu))
        weight = (nu + 1.0) / (nu + ratio)
        curvature = np.full_like(residual, (nu + 1.0) / (nu + 3.0))
        if self.observed:
            curvature = weight * (nu - ratio) / (nu + ratio)
        return Terms(likelihood, weight * residual, curvature, weight * square)

    @property
    def _constant(self) -> float:
        half = 0.5 * self.nu
        return math.lgamma(half + 0.5) - math.lgamma(half) - 0.5 * math.log(self.nu * math.pi)

    def check_target(self, low: float, high: float, whole: bool) -> None:
        """Take any number."""

    def predictor(self, mean: float) -> float:
        """Give the centre."""
        return mean

    def mean(self, eta: Floats) -> Floats:
        """Give the linear predictor."""
        return eta

    def variance(self, eta: Floats, dispersion: Floats) -> Floats:
        """Give phi nu / (nu - 2), which is infinite up to nu = 2."""
        times = self.nu / (self.nu - 2.0) if self.nu > 2.0 else np.inf
        return np.broadcast_to(dispersion * times, np.broadcast_shapes(np.shape(eta), np.shape(dispersion)))

    def cumulative(self, y: Floats, eta: Floats, dispersion: Floats) -> Floats:
        """Give the probability that a target is not above y."""
        from scipy.special import stdtr  # slow to import

        return np.asarray(stdtr(self.nu, (y - eta) / np.sqrt(dispersion)))

    def draw(self, rng: np.random.Generator, eta: Floats, dispersion: Floats) -> Floats:
        """Draw targets."""
        return eta + np.sqrt(dispersion) * rng.standard_t(self.nu, np.shape(eta))

    def deviance(self, y: Floats, mean: Floats) -> Floats:
        """Give (nu + 1) log(1 + r^2 / nu)."""
        return np.asarray((self.nu + 1.0) * np.log1p((y - mean) ** 2 / self.nu))

    def most_likely(self, log_dispersion: Floats) -> Floats:
        """Give the log density of a target that is its centre."""
        return np.asarray(self._constant - 0.5 * log_dispersion)


STUDENT = Student(
    "student",
    "huber",
    Words("scale", "coefficient", "mean", "a number"),
    has_dispersion=True,
    rescales=True,
    quadratic=False,
    discrete=False,
    most_score=math.inf,
    most_weight=1.0,
    ridge=0.0,
)
