"""A normal target: its mean is the linear predictor, its variance the dispersion."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..core.arrays import Floats
from .base import Family, Terms, Words


@dataclass(frozen=True)
class Gaussian(Family):
    """l = -(log 2 pi phi + r^2 / phi) / 2 with r = y - eta."""

    def terms(self, y: Floats, eta: Floats, log_dispersion: Floats) -> Terms:
        """Give what the sums over rows are made of."""
        residual = self.score(y, eta)
        square = residual**2
        likelihood = -0.5 * (np.log(2.0 * np.pi) + log_dispersion + square * np.exp(-log_dispersion))
        return Terms(likelihood, residual, np.ones_like(residual), square)

    def score(self, y: Floats, eta: Floats) -> Floats:
        """Give the residual."""
        return y - eta

    def check_target(self, low: float, high: float, whole: bool) -> None:
        """Take any number."""

    def predictor(self, mean: float) -> float:
        """Give the mean."""
        return mean

    def mean(self, eta: Floats) -> Floats:
        """Give the linear predictor."""
        return eta

    def variance(self, eta: Floats, dispersion: Floats) -> Floats:
        """Give the dispersion."""
        return np.broadcast_to(dispersion, np.broadcast_shapes(np.shape(eta), np.shape(dispersion)))

    def cumulative(self, y: Floats, eta: Floats, dispersion: Floats) -> Floats:
        """Give the probability that a target is not above y."""
        from scipy.special import ndtr  # slow to import

        return np.asarray(ndtr((y - eta) / np.sqrt(dispersion)))

    def draw(self, rng: np.random.Generator, eta: Floats, dispersion: Floats) -> Floats:
        """Draw targets."""
        return eta + np.sqrt(dispersion) * rng.standard_normal(np.shape(eta))

    def deviance(self, y: Floats, mean: Floats) -> Floats:
        """Give squared residuals."""
        return (y - mean) ** 2

    def most_likely(self, log_dispersion: Floats) -> Floats:
        """Give the log density of a target that is its mean."""
        return np.asarray(-0.5 * (np.log(2.0 * np.pi) + log_dispersion))


GAUSSIAN = Gaussian(
    "gaussian",
    "squared",
    Words("noise", "coefficient", "mean", "a number"),
    has_dispersion=True,
    rescales=True,
    quadratic=True,
    discrete=False,
    most_score=math.inf,
    most_weight=1.0,
    ridge=0.0,
)
