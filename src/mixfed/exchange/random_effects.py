"""The exchange of personal models: within a kind every client has a deviation of its own.

    theta_i = theta_kind + b_i,  b_i ~ N(0, Psi_kind),

so that y_i ~ N(X_i theta_j, V_ij), V_ij = s_j^2 I + X_i Psi_j X_i^T, for a client of kind j: a mixture of linear mixed
models. The deviations are integrated out where the rows are. What travels are sums over clients, weighted by
membership, of derivatives of log N(y_i | X_i theta_j, V_ij); no deviation of any client does.

Shapes: d whitened features, C candidates, k kinds, v numbers of a Psi (see `RandomEffects`), D columns of the table; w
columns of a sum as it travels, d or D. The server turns totals into standard units.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from ..core.arrays import Floats
from ..core.symmetric import doubled, packed, places, triangle, unpacked
from .base import AboutCandidates, Parts, Query
from .mixture import Candidates
from .units import StandardUnits


@dataclass(frozen=True, eq=False)
class RandomEffects(AboutCandidates):
    """C mixtures of k kinds whose clients deviate, in standard units."""

    theta: Annotated[Floats, "C k d"]
    log_variance: Annotated[Floats, "C k"]
    log_weight: Annotated[Floats, "C k"]
    spread: Annotated[Floats, "C k v"]
    """Psi of each kind. If full, its lower triangle row by row, of whitened features: v = d (d + 1) / 2. Else its
    diagonal, of shifted and stretched columns: v = D."""

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
    """Whether a Psi is any covariance of whitened features, or a diagonal one of shifted and stretched columns."""
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


def roots(units: StandardUnits, spread: Floats, full: bool) -> Floats:
    """Give R with Psi = R R^T, of whitened features, for Psi as in `RandomEffects`. spread (L, v) -> (L, d, r)."""
    if not full:
        live = units.inverse_sd > 0
        return np.asarray(np.linalg.pinv(units.whiten)[:, live] * np.sqrt(np.maximum(spread, 0.0))[:, None, live])
    values, axes = np.linalg.eigh(unpacked(spread, units.dim))
    return np.asarray(axes * np.sqrt(np.maximum(values, 0.0))[:, None, :])


def sandwich(matrices: Floats, dim: int) -> Floats:
    """Turn sums of packed(A) packed(B)^T into those of tr(E_p A E_q B), made symmetric in A and B.

    matrices (..., v, v) -> (..., v, v), where E_p is the derivative of a symmetric matrix by its packed number p.
    """
    where, times = places(dim), doubled(dim)
    rows, columns = triangle(dim)
    a, b, c, e = rows[:, None], columns[:, None], rows[None, :], columns[None, :]
    both = matrices + matrices.swapaxes(-1, -2)
    total = both[..., where[a, c], where[b, e]] + both[..., where[a, e], where[b, c]]
    return np.asarray(0.25 * times[:, None] * times * total)


def information(
    query: RandomEffectsSums, gram: Floats, score: Floats, products: Floats, sides: Floats, traces: Floats
) -> tuple[Floats, Floats]:
    """Make Fisher's and the observed information of each kind of what `marginal.expect` sums, packed."""
    k, some = query.candidates.theta.shape[1], list(query.informed)
    kinds = (np.array(some, dtype=np.int64)[:, None] * k + np.arange(k)).ravel()
    t = gram.shape[-1]
    width = (math.isqrt(8 * t + 1) - 1) // 2
    theta, noise, spread = slice(0, width), width, slice(width + 2, None)
    variance = np.exp(query.candidates.log_variance[some]).ravel()
    where, times = places(width), doubled(width)
    if query.full:
        bent, half = sandwich(products[:, :t], width), np.zeros(1)
        if query.fisher:
            half = 0.5 * sandwich(products[:, t + width :], width)
        rows, columns = triangle(width)
        cross = products[:, t : t + width]
        cross = cross[:, columns, where[:, rows]] + cross[:, rows, where[:, columns]]
        cross, kept = 0.5 * times * cross, np.arange(t)
    else:
        half = 0.5 * unpacked(products[:, 0], width)
        bent, cross, kept = unpacked(products[:, 1], width) - half, products[:, 2:, :width], np.diag(where)
    expected = np.zeros((len(kinds), score.shape[-1], score.shape[-1]))
    observed = np.zeros_like(expected)
    side = 0.5 * variance[:, None] * times[kept] * sides[:, 0, kept]
    other_side = variance[:, None] * times[kept] * sides[:, 1, kept] - side
    corner = 0.5 * traces[:, 0]
    other_corner = variance**2 * traces[:, 1] - corner - score[kinds, noise]
    for matrix, curvature, beside, last in (
        (expected, half, side, corner),
        (observed, bent, other_side, other_corner),
    ):
        matrix[:, theta, theta] = unpacked(gram[kinds], width)
        matrix[:, spread, spread] = curvature
        matrix[:, noise, spread] = matrix[:, spread, noise] = beside
        matrix[:, noise, noise] = last
    observed[:, theta, spread] = cross
    observed[:, spread, theta] = cross.transpose(0, 2, 1)
    observed[:, theta, noise] = observed[:, noise, theta] = variance[:, None] * sides[:, 2, :width]
    shape = (len(some), k, *expected.shape[1:])
    return packed(expected.reshape(shape)), packed(observed.reshape(shape))
