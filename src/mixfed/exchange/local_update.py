"""Phase 2 of the paper: estimate memberships, then move the models locally (FedAvg or FedProx), and sum over clients.

D columns of the table, k kinds.
"""

import dataclasses
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from ..core.arrays import Floats
from ..families.base import SQUARED, Loss
from .base import Parts, Query


@dataclass(frozen=True)
class FedAvg:
    """Local steps of gradient descent."""

    step: float
    local_steps: int


@dataclass(frozen=True)
class FedProx:
    """One local proximal step, solved exactly."""

    step: float
    local_steps: int = dataclasses.field(default=1, init=False)


Update = FedAvg | FedProx


@dataclass(frozen=True, eq=False)
class Mixture:
    """The models of all kinds and how they share the clients."""

    theta: Annotated[Floats, "k D"]
    weights: Annotated[Floats, "k"]
    """Shares of clients, adding to one."""
    noise: Annotated[Floats, "k"]
    """Standard deviations."""


@dataclass(frozen=True, eq=False)
class ModelSum(Parts):
    """A sum over clients of what they learned about each kind."""

    shift: Annotated[Floats, "k d | k D"]
    """How far each client moved its copy of the model, times its rows."""
    rows: int
    """All rows of the clients asked, whatever their kind."""
    mass: Annotated[Floats, "k"]
    """Memberships times rows."""
    clients: Annotated[Floats, "k"]
    """Memberships."""
    loss: Annotated[Floats, "k"]
    """Membership times loss."""
    likelihood: float
    """Log likelihood of the clients, up to a constant that does not depend on the mixture."""

    def mean_shift(self) -> Floats:
        """(k, d): the shift of the global models with the paper's weights n_i / N."""
        return self.shift / self.rows

    def shares_or(self, old: Floats) -> Floats:
        """(k,): the share of clients of each kind."""
        total = self.clients.sum()
        return self.clients / total if total > 0 else old

    def noise_or(self, old: Floats) -> Floats:
        """(k,): the standard deviation within each kind; a kind without clients keeps its own."""
        variance = np.divide(2.0 * self.loss, self.mass, out=old**2, where=self.mass > 0)
        return np.sqrt(variance)

    def shared_noise(self) -> float:
        """Give the standard deviation over all kinds."""
        return float(np.sqrt(2.0 * self.loss.sum() / self.mass.sum()))


@dataclass(frozen=True, eq=False)
class LocalUpdate(Query[ModelSum, ModelSum]):
    """Estimate memberships, then move the models locally. Without an update, only count."""

    mixture: Mixture
    hard: bool
    update: Update | None = None
    loss: Loss = SQUARED
