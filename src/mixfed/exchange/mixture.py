"""Mixtures that are candidates for the maximum of the likelihood, and what all clients say about them.

Shapes: D columns of the table, d whitened features, C candidates, k kinds, i informed candidates; w columns of a sum as
it travels, D unless its query says otherwise. The server turns totals into standard units.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar

from ..core.arrays import Floats
from ..core.symmetric import packed, unpacked
from .base import AboutCandidates, Parts, Query
from .local_update import ModelSum, Update
from .moments import PairSum
from .units import StandardUnits


@dataclass(frozen=True, eq=False)
class Candidates(AboutCandidates):
    """C mixtures of k models each, in standard units, to be asked about at once."""

    theta: Annotated[Floats, "C k d"]
    log_variance: Annotated[Floats, "C k"]
    log_weight: Annotated[Floats, "C k"]

    def __len__(self) -> int:
        return len(self.theta)


@dataclass(frozen=True, eq=False)
class MixtureReply(AboutCandidates):
    """What all clients say about each candidate: its likelihood and, weighted by membership, the normal equations.

    These are written at the candidate's own models: residuals r and the score of z r, rather than targets.
    """

    INFORMATION: ClassVar = ("missing",)

    likelihood: Annotated[Floats, "C"]
    clients: Annotated[Floats, "C k"]
    """Memberships."""
    rows: Annotated[Floats, "C k"]
    squares: Annotated[Floats, "C k"]
    """Sums of r^2."""
    score: Annotated[Floats, "C k w"]
    """Sums of z r."""
    gram: Annotated[Floats, "? k w*(w+1)/2"]
    """Sums of z z^T, packed; of no candidate if no curvature was asked for."""
    overlap: Annotated[Floats, "C k k"]
    """Products of memberships."""
    missing: Annotated[Floats, "i k*(k+1)/2 w+2 w+2"]
    """Covariance of the clients' scores given their rows, by Louis, for each informed candidate: pairs of kinds."""

    @cached_property
    def matrices(self) -> Floats:
        """The sums of z z^T as matrices, (C, k, d, d)."""
        return unpacked(self.gram, self.score.shape[-1])


@dataclass(frozen=True, eq=False)
class MixtureNumbers(Parts):
    """A `MixtureReply` as it is added up: with all numbers about a candidate in a row, for sites may be many."""

    numbers: Annotated[Floats, "C ?"]
    """Likelihood, clients, rows, squares, overlap, score and, if curvature was asked for, gram."""
    missing: Annotated[Floats, "i k*(k+1)/2 w+2 w+2"]

    def __iadd__(self, other: MixtureNumbers) -> MixtureNumbers:
        """Add in place: there may be many, and large ones."""
        for own, more in ((self.numbers, other.numbers), (self.missing, other.missing)):
            own += more
        return self

    @staticmethod
    def length(k: int, width: int, curvature: bool) -> int:
        """Say how many numbers there are about a mixture of k models with so many columns (w)."""
        return 1 + k * (3 + k + width + curvature * (width * (width + 1) // 2))

    def named(self, k: int, width: int) -> MixtureReply:
        """Tell the numbers apart, for mixtures of k models with so many columns (w)."""
        count, place, parts = len(self.numbers), 0, []
        for shape in ((), (k,), (k,), (k,), (k, k), (k, width)):
            end = place + math.prod(shape)
            parts.append(self.numbers[:, place:end].reshape(count, *shape))
            place = end
        likelihood, clients, rows, squares, overlap, score = parts
        curved = count if self.numbers.shape[1] > place else 0
        gram = self.numbers[:curved, place:].reshape(curved, k, width * (width + 1) // 2)
        return MixtureReply(likelihood, clients, rows, squares, score, gram, overlap, self.missing)


@dataclass(frozen=True, eq=False)
class MixtureSums(Query[MixtureNumbers, MixtureReply]):
    """Ask for memberships under each candidate and the sums that the next candidates are made of."""

    units: StandardUnits
    candidates: Candidates
    informed: Annotated[tuple[int, ...], "i"] = ()
    """Candidates for which the missing information is asked too."""
    hard: bool = False
    curvature: bool = True
    """Whether the second moments are wanted: most of the work."""
    since: Candidates | None = None
    """If given, second moments are wanted as differences from those at these candidates, which the server has: only
    clients whose membership has moved have to be looked at for them."""

    def finish(self, total: MixtureNumbers) -> MixtureReply:
        """Turn sums about x into sums about z."""
        said = total.named(self.candidates.theta.shape[1], self.units.width)
        if self.units.whiten_rows:
            return said
        turn = self.units.turn(2)  # of theta_j, log variance_j and log weight_j
        return dataclasses.replace(
            said,
            score=said.score @ self.units.whiten,
            gram=packed(self.units.whitened(said.matrices)),
            missing=turn.T @ said.missing @ turn,
        )


@dataclass(frozen=True, eq=False)
class SplitMoments(Query[PairSum, PairSum]):
    """Ask in which directions clients differ within each kind of one mixture."""

    units: StandardUnits
    mixture: Candidates
    """One candidate."""

    def finish(self, total: PairSum) -> PairSum:
        """Turn sums about x into sums about z."""
        return total.whitened(self.units)


@dataclass(frozen=True, eq=False)
class LocalStep(Query[ModelSum, ModelSum]):
    """Ask clients to move their own copies of the models of one mixture."""

    units: StandardUnits
    mixture: Candidates
    """One candidate."""
    update: Update
    hard: bool
