"""What is asked of, or for, anchors: clients with many rows, who answer one by one.

D columns of the table, d whitened features, r columns of a basis, h anchors. What single anchors reply does not add:
the one exception of the algorithm shows in the type `PerClient` of these questions.
"""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Self

from ..core.arrays import Array, Floats
from .base import Parts, PerClient, Query
from .units import StandardUnits


@dataclass(frozen=True, eq=False)
class BlockSum(Parts):
    """A sum over clients of d x r blocks, one per anchor."""

    block: Annotated[Floats, "h D r"]
    clients: int

    def mean(self) -> Floats:
        """(h, d, r): the mean over clients."""
        return self.block / self.clients


@dataclass(frozen=True, eq=False)
class ApplyMoment(Query[BlockSum, BlockSum]):
    """Apply Y (or its transpose) of every anchor to a block, where Y = sum of a b^T.

    a and b are the residual moments of a client's first and second row at the anchor's model.
    """

    theta: Annotated[Floats, "h D"]
    """The anchors' models."""
    block: Annotated[Floats, "h D r"]
    transpose: bool


@dataclass(frozen=True, eq=False)
class AnchorReplies:
    """What each anchor says for itself: its next model and the size of its residual. These do not add."""

    theta: Annotated[Floats, "h D"]
    size: Annotated[Floats, "h"]


@dataclass(frozen=True, eq=False)
class Descend(PerClient[AnchorReplies]):
    """Ask each anchor to take one step of moment descent within its basis."""

    theta: Annotated[Floats, "h D"]
    basis: Annotated[Floats, "h D r"]
    round: int
    pairs: int
    power_rounds: int
    threshold: float
    """An anchor whose residual is no larger stays where it is (the paper's epsilon Delta)."""
    rate: float
    """Step as a share of the residual's size (the paper's alpha / (2 beta^2))."""
    seed: int

    def part(self, which: Array) -> Self:
        """Give each anchor its own model and basis only."""
        return dataclasses.replace(self, theta=self.theta[which], basis=self.basis[which])


@dataclass(frozen=True, eq=False)
class AnchorEquations:
    """Clients by their normal equations in a basis: what anchors reply, one by one. These do not add."""

    rows: Annotated[Floats, "h"]
    square: Annotated[Floats, "h"]
    """Sum of squared residuals of the pooled fit."""
    cross: Annotated[Floats, "h r"]
    gram: Annotated[Floats, "h r*(r+1)/2"]


@dataclass(frozen=True, eq=False)
class Expand(PerClient[AnchorEquations]):
    """Ask each anchor for its log likelihood to second order around its own ridge fit in a basis.

    The reply is written as normal equations: `kernels.plain.expansion` says how.
    """

    units: StandardUnits
    basis: Annotated[Floats, "d r"]
    ridge: Annotated[Floats, "r*(r+1)/2"]
    """Of the penalty t^T P t / 2: P, packed."""


@dataclass(frozen=True, eq=False)
class Project(PerClient[AnchorEquations]):
    """Ask each anchor for its normal equations in a basis."""

    units: StandardUnits
    basis: Annotated[Floats, "d r"]
