"""What a row costs under a model: the seam between the algorithm and the kind of regression.

A `Family` says how likely a target is, given a linear predictor. The paper's Phase 2 takes a `Loss`, computed by two
functions of a number or of arrays, which branch on its code: so one kernel serves every loss, and its compiled form can
be kept on disk.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Floats


@dataclass(frozen=True)
class Loss:
    """A loss of a target and a linear predictor."""

    name: str
    code: int


SQUARED = Loss("squared", 0)


def value(code: int, y: Any, predictor: Any) -> Any:
    """Loss of one row: for a normal target, half the squared residual."""
    residual = y - predictor
    return 0.5 * residual * residual


def slope(code: int, y: Any, predictor: Any) -> Any:
    """How fast the loss falls as the predictor grows: for a normal target, the residual."""
    return y - predictor


class Terms(NamedTuple):
    """What rows say of a linear predictor eta and a dispersion phi; of the shape that y and eta have together."""

    likelihood: Floats
    """l: the log likelihood, with all constants."""
    score: Floats
    """u = phi dl / d eta."""
    weight: Floats
    """w = phi times the information about eta: not below 0."""
    statistic: Floats | None
    """t, by which d l / d log phi = (t / phi - 1) / 2; None if there is no dispersion."""


def weighted(terms: Terms, weight: Floats) -> Terms:
    """Let rows count as often as their weights say."""
    statistic = None if terms.statistic is None else weight * terms.statistic
    return Terms(weight * terms.likelihood, weight * terms.score, weight * terms.weight, statistic)


@dataclass(frozen=True)
class Words:
    """How people call what a family has."""

    noise: str | None
    """The root of the dispersion; None if there is none."""
    coefficient: str
    mean: str
    target: str
    """What a target must be."""
    moves: str = "target"
    """What changes with the columns."""


@dataclass(frozen=True)
class Family(ABC):
    """What a target may be, given a linear predictor eta.

    All functions are of whole arrays, whose shapes broadcast. A new family is a file with these functions and a name in
    the `registry`.
    """

    name: str
    """By which it travels."""
    loss: str
    """The word for it in ``--loss``."""
    words: Words
    has_dispersion: bool
    """Else log phi is 0, and no parameter."""
    rescales: bool
    """Whether the target may be shifted and divided."""
    quadratic: bool
    """Whether the log likelihood is quadratic in eta, so that one Newton step leads to its maximum."""
    discrete: bool
    """Whether targets are whole numbers."""
    most_score: float
    """|u| is not above, and w is not above the next."""
    most_weight: float
    ridge: float
    """Of the penalty ridge / 2 |theta - pooled|^2 in standard units, unless the user gives another."""

    @property
    def wire_name(self) -> str:
        """The name with all that is to be known of the family."""
        return self.name

    @property
    def dispersion_information(self) -> float:
        """What a row tells of log phi, as a share of what one of a normal target does."""
        return 1.0

    @abstractmethod
    def terms(self, y: Floats, eta: Floats, log_dispersion: Floats) -> Terms:
        """Give what the sums over rows are made of."""

    def score(self, y: Floats, eta: Floats) -> Floats:
        """Give u at the dispersion 1."""
        return self.terms(y, eta, np.zeros(1)).score

    @abstractmethod
    def check_target(self, low: float, high: float, whole: bool) -> None:
        """Refuse targets that cannot be of this family, by their range and by whether all are whole numbers."""

    @abstractmethod
    def predictor(self, mean: float) -> float:
        """Give the linear predictor of a mean, which may lie on the edge of what means can be."""

    @abstractmethod
    def mean(self, eta: Floats) -> Floats:
        """Give the mean of a target."""

    @abstractmethod
    def variance(self, eta: Floats, dispersion: Floats) -> Floats:
        """Give the variance of a target."""

    @abstractmethod
    def cumulative(self, y: Floats, eta: Floats, dispersion: Floats) -> Floats:
        """Give the probability that a target is not above y."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, eta: Floats, dispersion: Floats) -> Floats:
        """Draw targets."""

    @abstractmethod
    def deviance(self, y: Floats, mean: Floats) -> Floats:
        """Give twice the log likelihood that is lost to a model which foresees each target, in units of phi."""

    def most_likely(self, log_dispersion: Floats) -> Floats:
        """Give what no row's log likelihood is above: for probabilities of whole numbers, 0."""
        return np.zeros_like(log_dispersion)

    def residuals(self, y: Floats, eta: Floats, dispersion: Floats, chance: Floats) -> Floats:
        """Give quantile residuals: standard normal if the model is true.

        ``chance``, uniform between 0 and 1, says where between the probabilities of less than y and of y at most.
        """
        from scipy.special import ndtri  # slow to import

        upper = self.cumulative(y, eta, dispersion)
        lower = self.cumulative(y - 1.0, eta, dispersion) if self.discrete else upper
        return np.asarray(ndtri(np.clip(lower + chance * (upper - lower), 1e-16, 1.0 - 1e-16)))
