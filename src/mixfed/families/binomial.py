"""A target that is 0 or 1: the linear predictor is the logarithm of its odds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.arrays import Floats
from ..core.errors import DataError
from .base import Family, Terms, Words

_EDGE = 1e-3
"""Nearer to 0 or 1 no mean is taken for a start."""


@dataclass(frozen=True)
class Binomial(Family):
    """l = y eta - log(1 + exp eta)."""

    def terms(self, y: Floats, eta: Floats, log_dispersion: Floats) -> Terms:
        """Give what the sums over rows are made of."""
        # exp of numbers above 0 might be infinite, and 1 - mu would lose its digits.
        small = np.exp(-np.abs(eta))
        likelihood = y * eta - np.maximum(eta, 0.0) - np.log1p(small)
        large = 1.0 / (1.0 + small)
        return Terms(likelihood, y - np.where(eta > 0.0, large, small * large), small * large**2, None)

    def check_target(self, low: float, high: float, whole: bool) -> None:
        """Refuse what is neither 0 nor 1."""
        if low < 0 or high > 1 or not whole:
            raise DataError("the target has values besides 0 and 1, which the family binomial takes: is it another?")

    def predictor(self, mean: float) -> float:
        """Give the logarithm of the odds."""
        inside = float(np.clip(mean, _EDGE, 1.0 - _EDGE))
        return float(np.log(inside / (1.0 - inside)))

    def mean(self, eta: Floats) -> Floats:
        """Give the probability of 1."""
        small = np.exp(-np.abs(eta))
        large = 1.0 / (1.0 + small)
        return np.asarray(np.where(eta > 0.0, large, small * large))

    def variance(self, eta: Floats, dispersion: Floats) -> Floats:
        """Give mu (1 - mu)."""
        small = np.exp(-np.abs(eta))
        return np.asarray(small / (1.0 + small) ** 2)

    def cumulative(self, y: Floats, eta: Floats, dispersion: Floats) -> Floats:
        """Give the probability that a target is not above y."""
        return np.asarray(np.where(y < 0.0, 0.0, np.where(y < 1.0, self.mean(-eta), 1.0)))

    def draw(self, rng: np.random.Generator, eta: Floats, dispersion: Floats) -> Floats:
        """Draw targets."""
        return (rng.random(np.shape(eta)) < self.mean(eta)).astype(np.float64)

    def deviance(self, y: Floats, mean: Floats) -> Floats:
        """Give -2 log of the probability of what came."""
        return np.asarray(-2.0 * np.log(np.maximum(np.where(y > 0.5, mean, 1.0 - mean), 1e-300)))


BINOMIAL = Binomial(
    "binomial",
    "logistic",
    Words(None, "log odds ratio", "probability", "0 or 1", "log odds"),
    has_dispersion=False,
    rescales=False,
    quadratic=False,
    discrete=True,
    most_score=1.0,
    most_weight=0.25,
    ridge=1.0,
)
