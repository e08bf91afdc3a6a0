"""The exchange of personal models: within a kind every client has a deviation of its own.

    theta_i = theta_kind + b_i,  b_i ~ N(0, Psi_kind),

so that y_i ~ N(X_i theta_j, V_ij), V_ij = s_j^2 I + X_i Psi_j X_i^T, for a client of kind j: a mixture of linear mixed
models. The deviations are integrated out where the rows are. What travels are sums over clients, weighted by
membership, of derivatives of log N(y_i | X_i theta_j, V_ij); no deviation of any client does.

Shapes: d whitened features, C candidates, k kinds, v numbers of a Psi (see `RandomEffects`), D columns of the table; w
columns of a sum as it travels, d or D. The server turns totals into standard units.
"""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from ..core.arrays import Floats
from ..core.symmetric import packed, unpacked
from .base import AboutCandidates, Parts, Query
from .mixture import Candidates
from .units import StandardUnits


@dataclass(frozen=True, eq=False)
class RandomEffects(AboutCandidates):
    """C mixtures of k kinds whose clients deviate, in standard units."""

    theta: Annotated[Floats, "C k d"]
    log_variance: Annotated[Floats, "C k"]
    log_weight: Annotated[Floats, "C k"]
    covariance: Annotated[Floats, "C k v"]
    """Psi of each kind. If full, its lower triangle row by row, of whitened features: v = d (d + 1) / 2. Else its
    diagonal, of shifted and scaled columns: v = D."""

    def __len__(self) -> int:
        return len(self.theta)

    @property
    def plain(self) -> Candidates:
        """The mixtures without their deviations."""
        return Candidates(self.theta, self.log_variance, self.log_weight)


@dataclass(frozen=True, eq=False)
class RandomEffectsReply(AboutCandidates, Parts):
    """What all clients say about each candidate: likelihood, score, information; weighted by membership.

    The parameters of a kind are theta (d), log variance, log weight and the numbers of Psi (v), in this order.
    """

    INFORMATION: ClassVar = ("expected", "observed", "missing")

    likelihood: Annotated[Floats, "C"]
    clients: Annotated[Floats, "C k"]
    """Memberships."""
    rows: Annotated[Floats, "C k"]
    gram: Annotated[Floats, "C k w*(w+1)/2"]
    """Sums of Z^T V^-1 Z, packed."""
    score: Annotated[Floats, "C k w+v+2"]
    """Sums of the derivatives of log (w_j N_ij); that of the log weight is the membership."""
    overlap: Annotated[Floats, "C k k"]
    """Products of memberships."""
    expected: Annotated[Floats, "i k (w+v+2)*(w+v+3)/2"]
    """Fisher's information of each kind if memberships were known, for each informed candidate, packed."""
    observed: Annotated[Floats, "i k (w+v+2)*(w+v+3)/2"]
    """The observed one, packed."""
    missing: Annotated[Floats, "i k*(k+1)/2 w+v+2 w+v+2"]
    """Covariance of the clients' scores given their rows, by Louis: pairs of kinds."""


@dataclass(frozen=True, eq=False)
class RandomEffectsSums(Query[RandomEffectsReply, RandomEffectsReply]):
    """Ask for memberships when clients deviate, and for the sums that the next candidates are made of."""

    units: StandardUnits
    candidates: RandomEffects
    full: bool
    """Whether a Psi is any covariance of whitened features, or a diagonal one of shifted and scaled columns."""
    informed: Annotated[tuple[int, ...], "i"] = ()
    """Candidates whose information is asked too: most of the work."""
    fisher: bool = True
    """Whether Fisher's information is, too; else it is 0."""

    @property
    def width(self) -> int:
        """Columns (w) of the sums as they travel: those of Psi."""
        return self.units.dim if self.full else len(self.units.inverse_sd)

    def finish(self, total: RandomEffectsReply) -> RandomEffectsReply:
        """Turn sums about x into sums about z, but for Psi."""
        if self.full:
            return total
        size = total.score.shape[-1]
        turn = self.units.turn(size - self.width)
        return dataclasses.replace(
            total,
            gram=packed(self.units.whitened(unpacked(total.gram, self.width))),
            score=total.score @ turn,
            expected=packed(turn.T @ unpacked(total.expected, size) @ turn),
            observed=packed(turn.T @ unpacked(total.observed, size) @ turn),
            missing=turn.T @ total.missing @ turn,
        )


@dataclass(frozen=True, eq=False)
class LeftOutSum(Parts):
    """Squared errors of rows that are predicted from the other rows of their client."""

    squares: Annotated[Floats, "C 2"]
    """Of all clients with two rows or more, and of the small ones among them."""
    rows: Annotated[Floats, "2"]
    """How many rows these have."""


@dataclass(frozen=True, eq=False)
class LeaveOut(Query[LeftOutSum, LeftOutSum]):
    """Ask how well candidates predict each row of a client from its other rows."""

    units: StandardUnits
    candidates: RandomEffects
    full: bool
    small: int
    """A client with so many rows, at most, is a small one."""


def roots(units: StandardUnits, covariance: Floats, full: bool) -> Floats:
    """Give R with Psi = R R^T, of whitened features, for Psi as in `RandomEffects`. covariance (L, v) -> (L, d, r)."""
    if not full:
        live = units.inverse_sd > 0
        return np.asarray(np.linalg.pinv(units.whiten)[:, live] * np.sqrt(np.maximum(covariance, 0.0))[:, None, live])
    values, axes = np.linalg.eigh(unpacked(covariance, units.dim))
    return np.asarray(axes * np.sqrt(np.maximum(values, 0.0))[:, None, :])
