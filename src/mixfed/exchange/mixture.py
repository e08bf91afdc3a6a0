"""The exchanges of the tuning-free recipe: standard units, moments, anchors' statistics, candidates.

Shapes: D columns of the table, d whitened features, r columns of a basis, h anchors, C candidates, k kinds; w columns
of a sum as it travels, D unless its query says otherwise. The server turns totals into standard units.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np

from ..core.arrays import Array, Floats
from ..core.symmetric import packed, unpacked
from .base import Each, ModelSum, Query, Update


@dataclass(frozen=True, eq=False)
class GramSum:
    """Second moments of shifted and scaled columns."""

    gram: Annotated[Floats, "D*(D+1)/2"]
    """Packed, as are all second moments here: see `symmetric`."""
    cross: Annotated[Floats, "D"]
    square: float

    def __add__(self, other: GramSum) -> GramSum:
        return GramSum(self.gram + other.gram, self.cross + other.cross, self.square + other.square)


@dataclass(frozen=True, eq=False)
class Gram(Query[GramSum, GramSum]):
    """Ask for second moments of (phi - centre) / unit and (y - target_centre) / target_unit."""

    centre: Annotated[Floats, "D"]
    unit: Annotated[Floats, "D"]
    target_centre: float
    target_unit: float


@dataclass(frozen=True, eq=False)
class Frame:
    """Standard units: z = (phi - centre) stretch whiten, and the residual of the pooled fit over its own size."""

    centre: Annotated[Floats, "D"]
    stretch: Annotated[Floats, "D"]
    """One over the spread of each column; 0 for a column that is left out."""
    whiten: Annotated[Floats, "D d"]
    """Of shifted and stretched columns."""
    slope: Annotated[Floats, "D"]
    """The pooled fit to shifted and stretched columns."""
    target_centre: float
    scale: float
    """Standard deviation of the pooled fit's residual."""
    constant: int | None
    """The column, if any, that takes up the shifts: the intercept or another that is constant."""
    constant_value: float

    @property
    def dim(self) -> int:
        """Number of whitened features (d)."""
        return int(self.whiten.shape[1])

    def standardise(self, phi: Array, y: Floats) -> tuple[Floats, Floats]:
        """Phi (n, D), y (n,) -> z (n, d), residual (n,)."""
        x, residual = self.stretched(phi, y)
        return x @ self.whiten, residual

    def stretched(self, phi: Array, y: Floats) -> tuple[Floats, Floats]:
        """Phi (n, D), y (n,) -> shifted and stretched columns x (n, D), residual (n,)."""
        x = (phi - self.centre) * self.stretch
        return x, (y - self.target_centre - x @ self.slope) / self.scale

    def within(self, basis: Floats) -> Frame:
        """Look at the features in a basis (d, r) only."""
        return dataclasses.replace(self, whiten=self.whiten @ basis)

    @staticmethod
    def plain(dim: int) -> Frame:
        """Take features and residuals as they are."""
        return Frame(np.zeros(dim), np.ones(dim), np.eye(dim), np.zeros(dim), 0.0, 1.0, None, 1.0)

    @property
    def narrow(self) -> bool:
        """Whether features are looked at in few dimensions: rows are whitened then, not sums, which are smaller."""
        return 4 * self.dim <= 3 * len(self.stretch)

    @property
    def width(self) -> int:
        """Columns (w) of sums as they travel."""
        return self.dim if self.narrow else len(self.stretch)

    def whitened(self, matrices: Floats) -> Floats:
        """Turn moments of x (..., D, D) into moments of z (..., d, d)."""
        return np.asarray(self.whiten.T @ matrices @ self.whiten)

    def turn(self, others: int) -> Floats:
        """Say how theta and other parameters for x depend on those for z, which differ in theta. -> (D + o, d + o)."""
        wide, dim = self.whiten.shape
        turn = np.zeros((wide + others, dim + others))
        turn[:wide, :dim], turn[wide:, dim:] = self.whiten, np.eye(others)
        return turn

    def models(self, theta: Floats) -> Floats:
        """Turn models in standard units into models of x for (y - target_centre) / scale. theta (L, d) -> (D, L)."""
        return np.asarray(self.whiten @ theta.T + self.slope[:, None] / self.scale)


@dataclass(frozen=True, eq=False)
class PairSum:
    """Moments of pairs of rows of a client."""

    moments: Annotated[Floats, "k w*(w+1)/2 | 1 w*(w+1)/2"]
    """Around each kind, or around the pooled fit; packed."""
    rows: int
    """Rows that they are about."""

    def __add__(self, other: PairSum) -> PairSum:
        return PairSum(self.moments + other.moments, self.rows + other.rows)

    def matrices(self, dim: int) -> Floats:
        """Give the moments as matrices, (k, d, d)."""
        return unpacked(self.moments, dim)

    def whitened(self, frame: Frame) -> PairSum:
        """Turn moments of x into moments of z."""
        if frame.narrow:
            return self
        return PairSum(packed(frame.whitened(self.matrices(frame.width))), self.rows)


@dataclass(frozen=True, eq=False)
class PairMoments(Query[PairSum, PairSum]):
    """Ask for the all-pairs moment matrix at the pooled fit: every client with two rows or more, every row."""

    frame: Frame
    lone: bool
    """Count clients of one row too: r^2 (z z^T - I) has the same space if features are normal."""

    def finish(self, total: PairSum) -> PairSum:
        """Turn sums about x into sums about z."""
        return total.whitened(self.frame)


@dataclass(frozen=True, eq=False)
class Statistics:
    """Clients by their normal equations in a basis: what anchors reply, one by one. These do not add."""

    rows: Annotated[Floats, "h"]
    square: Annotated[Floats, "h"]
    """Sum of squared residuals of the pooled fit."""
    cross: Annotated[Floats, "h r"]
    gram: Annotated[Floats, "h r*(r+1)/2"]


@dataclass(frozen=True, eq=False)
class Project(Each[Statistics]):
    """Ask each anchor for its normal equations in a basis."""

    frame: Frame
    basis: Annotated[Floats, "d r"]


@dataclass(frozen=True, eq=False)
class Candidates:
    """C mixtures of k models each, in standard units, to be asked about at once."""

    theta: Annotated[Floats, "C k d"]
    log_variance: Annotated[Floats, "C k"]
    log_weight: Annotated[Floats, "C k"]

    def __len__(self) -> int:
        return len(self.theta)

    def pick(self, which: Any) -> Candidates:
        """Keep those at places ``which``."""
        which = np.atleast_1d(np.asarray(which, dtype=np.int64))
        return Candidates(self.theta[which], self.log_variance[which], self.log_weight[which])

    @staticmethod
    def stack(parts: Sequence[Candidates]) -> Candidates:
        """Put several batches into one."""
        return Candidates(
            np.concatenate([part.theta for part in parts]),
            np.concatenate([part.log_variance for part in parts]),
            np.concatenate([part.log_weight for part in parts]),
        )


@dataclass(frozen=True, eq=False)
class ExpectSum:
    """What all clients say about each candidate: its likelihood and, weighted by membership, the normal equations.

    These are written at the candidate's own models: residuals r and the score of z r, rather than targets.
    """

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

    def pick(self, which: Any, informed: Sequence[int] = ()) -> ExpectSum:
        """Keep what was said of some candidates; their missing information is at places ``informed``."""
        which = np.atleast_1d(np.asarray(which, dtype=np.int64))
        said = {item.name: getattr(self, item.name)[which] for item in dataclasses.fields(self)[:-1]}
        return dataclasses.replace(self, **said, missing=self.missing[list(informed)])

    @staticmethod
    def stack(parts: Sequence[ExpectSum]) -> ExpectSum:
        """Put together what was said of several batches of candidates."""
        return ExpectSum(*(np.concatenate([getattr(part, name) for part in parts]) for name in _EXPECTED))


_EXPECTED = [item.name for item in dataclasses.fields(ExpectSum)]


@dataclass(frozen=True, eq=False)
class ExpectNumbers:
    """An `ExpectSum` as it is added up: with all numbers about a candidate in a row, for sites may be many."""

    numbers: Annotated[Floats, "C ?"]
    """Likelihood, clients, rows, squares, overlap, score and, if curvature was asked for, gram."""
    missing: Annotated[Floats, "i k*(k+1)/2 w+2 w+2"]

    def __add__(self, other: ExpectNumbers) -> ExpectNumbers:
        return ExpectNumbers(self.numbers + other.numbers, self.missing + other.missing)

    def __iadd__(self, other: ExpectNumbers) -> ExpectNumbers:
        """Add in place: there may be many, and large ones."""
        for own, more in ((self.numbers, other.numbers), (self.missing, other.missing)):
            own += more
        return self

    @staticmethod
    def length(k: int, width: int, curvature: bool) -> int:
        """Say how many numbers there are about a mixture of k models with so many columns (w)."""
        return 1 + k * (3 + k + width + curvature * (width * (width + 1) // 2))

    def named(self, k: int, width: int) -> ExpectSum:
        """Tell the numbers apart, for mixtures of k models with so many columns (w)."""
        count = len(self.numbers)
        shapes = (), (k,), (k,), (k,), (k, k), (k, width)
        ends = np.cumsum([math.prod(shape) for shape in shapes])
        *parts, gram = np.split(self.numbers, ends, axis=1)
        likelihood, clients, rows, squares, overlap, score = (
            part.reshape(count, *shape) for part, shape in zip(parts, shapes, strict=True)
        )
        curved = count if gram.shape[1] else 0
        gram = gram[:curved].reshape(curved, k, width * (width + 1) // 2)
        return ExpectSum(likelihood, clients, rows, squares, score, gram, overlap, self.missing)


@dataclass(frozen=True, eq=False)
class Expect(Query[ExpectNumbers, ExpectSum]):
    """Ask for memberships under each candidate and the sums that the next candidates are made of."""

    frame: Frame
    candidates: Candidates
    informed: Annotated[tuple[int, ...], "i"] = ()
    """Candidates for which the missing information is asked too."""
    hard: bool = False
    curvature: bool = True
    """Whether the second moments are wanted: most of the work."""
    since: Candidates | None = None
    """If given, second moments are wanted as differences from those at these candidates, which the server has: only
    clients whose membership has moved have to be looked at for them."""

    def finish(self, total: ExpectNumbers) -> ExpectSum:
        """Turn sums about x into sums about z."""
        said = total.named(self.candidates.theta.shape[1], self.frame.width)
        if self.frame.narrow:
            return said
        turn = self.frame.turn(2)  # of theta_j, log variance_j and log weight_j
        return dataclasses.replace(
            said,
            score=said.score @ self.frame.whiten,
            gram=packed(self.frame.whitened(said.matrices)),
            missing=turn.T @ said.missing @ turn,
        )


@dataclass(frozen=True, eq=False)
class SplitMoments(Query[PairSum, PairSum]):
    """Ask in which directions clients differ within each kind of one mixture."""

    frame: Frame
    mixture: Candidates
    """One candidate."""

    def finish(self, total: PairSum) -> PairSum:
        """Turn sums about x into sums about z."""
        return total.whitened(self.frame)


@dataclass(frozen=True, eq=False)
class LocalStep(Query[ModelSum, ModelSum]):
    """Ask clients to move their own copies of the models of one mixture."""

    frame: Frame
    mixture: Candidates
    """One candidate."""
    update: Update
    hard: bool
