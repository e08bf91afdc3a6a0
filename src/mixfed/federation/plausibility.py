"""Can an answer be true? What the server can tell of a site's sums without the rows behind them.

Counts of clients and rows are known, and sums of squares and products bound each other. A site that makes up plausible
sums is believed: see ``docs/privacy.md``.
"""

import math
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Array, Floats, Ints
from ..core.symmetric import places, triangle
from ..exchange.anchors import AnchorEquations, AnchorReplies, BlockSum, Expand
from ..exchange.base import ASKED_AT_ONCE, BatchReply
from ..exchange.census import CensusSum, LargestNormSum
from ..exchange.local_update import ModelSum
from ..exchange.mixture import Candidates, LocalStep, MixtureNumbers, MixtureReply, MixtureSums
from ..exchange.moments import GramSum, PairSum
from ..exchange.random_effects import LeftOutSum, RandomEffectsReply
from ..exchange.shapes import MessageError
from ..families.base import Family
from ..families.gaussian import GAUSSIAN
from ..families.registry import family_named
from .messages import Enrolled

_SLACK = 1e-4
"""Share by which sums may miss what they must be: rounding in single precision."""
_HUGE = 1e100
"""Larger numbers are no data: the squares of their squares are infinite."""


class Asked(NamedTuple):
    """Whom an answer is about."""

    clients: int
    rows: tuple[int, int]
    """At least and at most."""
    sizes: Ints
    """Rows of each, if they were asked by their places."""
    total: int
    """Rows of all clients of all sites."""

    @property
    def most(self) -> float:
        """Bound sums of squares in standard units, in which they are 1 on average but for rounding."""
        return 1e6 * self.total


def check_enrolled(site: Enrolled) -> None:
    """Refuse what a site cannot be."""
    if not site.features:
        raise MessageError("no features")
    listed = len(site.keys)
    if site.clients < 1 or site.rows < site.clients or listed not in (0, site.clients):
        raise MessageError(f"{site.clients} clients with {site.rows} rows, of whom {listed} are listed")
    if listed and (site.sizes.min() < 1 or site.sizes.sum() != site.rows):
        raise MessageError("clients whose rows do not add up")


def check_plausible(content: Any, query: Any, asked: Asked) -> None:
    """Refuse an answer to a query that cannot be true of those who were asked."""
    clients, rows, any_rows = (asked.clients, asked.clients), asked.rows, (0, asked.rows[1])
    match content:
        case BatchReply():
            for part, question in zip(content.parts, query.parts, strict=True):
                check_plausible(part, question, asked)
        case CensusSum():
            _expect("rows", content.sizes, any_rows)
            _expect("clients", content.counts, (0, asked.clients))
            _expect("clients", content.n_clients, clients)
            _expect("rows", content.n_rows, rows)
            _check_ranges(content)
        case LargestNormSum():
            _expect("squares", content.peak, (0, np.inf))
        case GramSum():  # in these units no number is larger than 1
            _expect("squares", content.square, any_rows)
            _expect_moments(content.gram, content.cross, np.array(content.square), rows[1])
        case PairSum():
            _expect("rows", content.rows, any_rows)
            _expect_usual(content.moments)
        case MixtureNumbers():
            _check_mixture(content, query, asked)
        case RandomEffectsReply():
            _expect_parts("clients", content.clients, clients)
            _expect_parts("rows", content.rows, rows)
            # Deviations add to the noise, so the bound of plain mixtures holds for these, too.
            _expect_likelihood(content.likelihood, content.rows, query.candidates.log_variance)
            _expect("squares", content.gram[..., _diagonal(query.width)], (0, np.inf))
            _expect_usual(content.score, content.expected, content.observed, content.missing)
        case LeftOutSum():
            _expect("rows", content.rows, any_rows)
            _expect("squares", content.squares, (0, np.inf))
        case ModelSum():
            _expect("rows", content.rows, rows)
            _expect_parts("clients", content.clients, clients)
            _expect_parts("rows", content.mass, rows)
            if isinstance(query, LocalStep) and family_named(query.units.family) is GAUSSIAN:  # in standard units
                _expect("losses", content.loss / _sizes(query.mixture)[0], (0, asked.most))
            _expect("losses", content.loss, (0, np.inf))
        case BlockSum():
            _expect("clients", content.clients, clients)
        case AnchorEquations():
            if not np.array_equal(content.rows, asked.sizes):
                raise MessageError("clients with other rows than they have")
            if isinstance(query, Expand):
                _expect("log likelihoods", content.square, (0, np.inf))
                _expect_usual(content.cross, content.square)
                most = asked.most * family_named(query.units.family).most_weight
                _expect_gram(content.gram, query.basis.shape[1], most)
                return
            _expect("squares", content.square, (0, asked.most))
            _expect_moments(content.gram, content.cross, content.square, asked.most)
        case AnchorReplies():
            _expect("sizes", content.size, (0, np.inf))


def _check_ranges(content: CensusSum) -> None:
    target = content.target_low, content.target_high
    _expect_usual(content.low, content.high, np.array(target))
    if (
        (np.diff(content.sizes) <= 0).any()
        or (content.counts < 1).any()
        or _beyond(content.low, content.high, content.total, content.n_rows).any()
        or ((content.value < content.low) | (content.value > content.high))[content.constant_columns].any()
        or _beyond(*target, content.target, content.n_rows)
        or content.mass != content.n_rows  # sites have no weights
    ):
        raise MessageError("a census that cannot be")


def _check_mixture(content: MixtureNumbers, query: MixtureSums, asked: Asked) -> None:
    k, width = query.candidates.theta.shape[1], query.units.width
    length = MixtureNumbers.length(k, width, query.curvature)
    if content.numbers.shape[1] != length:
        raise MessageError(f"{content.numbers.shape[1]} numbers about a candidate, not {length}")
    said = content.named(k, width)
    _expect_parts("clients", said.clients, (asked.clients, asked.clients))
    _expect_parts("rows", said.rows, asked.rows)
    family = family_named(query.units.family)
    if family is not GAUSSIAN:
        _expect_of_family(family, said, query, asked)
        return
    _expect("squares", said.squares / _sizes(query.candidates), (0, asked.most))
    _expect_likelihood(said.likelihood, said.rows, query.candidates.log_variance)
    if query.curvature and query.since is None:
        _expect_moments(said.gram, said.score, said.squares, asked.most)


def _expect_of_family(family: Family, said: MixtureReply, query: MixtureSums, asked: Asked) -> None:
    """Expect what targets of a family can say of candidates."""
    log_dispersion, rows = query.candidates.log_variance, said.rows.sum(axis=1)
    _expect_usual(said.likelihood, said.score, said.missing)
    most = family.most_likely(log_dispersion).max(axis=1) * rows
    if (said.likelihood > most + _SLACK * (1.0 + np.abs(most))).any():
        raise MessageError("a likelihood that cannot be")
    _expect("squares", said.squares, (0, asked.most if family.has_dispersion else 0))
    # Features have squares of 1 on average: by Cauchy and Schwarz, this is how far they can lead a score.
    _expect("scores", np.abs(said.score), (0, asked.most * family.most_score))
    if family.has_dispersion:  # whose curvature may have any sign
        _expect_usual(said.gram)
    elif query.curvature and query.since is None:
        _expect_gram(said.gram, query.units.width, asked.most * family.most_weight)


def _expect_gram(gram: Floats, dim: int, most: float) -> None:
    """Expect sums w z z^T (..., v), packed, of columns (d) whose squares are bounded, and bound their products."""
    own = gram[..., _diagonal(dim)]
    _expect("squares", own, (0, most))
    _expect_usual(gram)
    own = np.sqrt(np.maximum(own, 0.0))
    rows, columns = triangle(dim)
    if (np.abs(gram) > (1.0 + _SLACK) * own[..., rows] * own[..., columns] + _SLACK * own.max() ** 2).any():
        raise MessageError("products that are larger than their squares allow")


def _beyond(low: Any, high: Any, total: Any, rows: float) -> Any:
    """Say of columns (D,), or of one, whether so many numbers within a range cannot have this sum."""
    slack = _SLACK * rows * np.maximum(np.abs(low), np.abs(high))
    return ~((rows * low - slack <= total) & (total <= rows * high + slack))


@lru_cache(maxsize=ASKED_AT_ONCE)
def _sizes(candidates: Candidates) -> Floats:
    """Say how large squared residuals may be on average, (C, k): once for all who are asked the same."""
    # Pooled residuals have squares of 1 on average, and so have features; models add to them.
    size = 1.0 + np.sqrt(candidates.theta.shape[-1]) * np.linalg.norm(candidates.theta, axis=-1)
    return np.asarray(size**2)


def _expect_likelihood(likelihood: Floats, rows: Floats, log_variance: Floats) -> None:
    """Expect no likelihood (C,) above that of as many rows (C, k) on the model of the kind with the least noise."""
    _expect_usual(likelihood)
    most = -0.5 * log_variance.min(axis=1) * rows.sum(axis=1)
    if (likelihood > most + _SLACK * (1.0 + np.abs(most))).any():
        raise MessageError("a likelihood that cannot be")


def _expect_moments(gram: Floats, cross: Floats, square: Floats, most: float) -> None:
    """Expect sums z z^T (..., v), packed, z r (..., d) and r^2 (...), which bound each other (Cauchy and Schwarz).

    ``most`` is the largest that a sum of squares can be.
    """
    own = gram[..., _diagonal(cross.shape[-1])]
    _expect("squares", own, (0, most))
    own, residual = np.sqrt(np.maximum(own, 0.0)), np.sqrt(np.maximum(square, 0.0))[..., None]
    # Clients whose membership is next to nothing are left out of some sums: what is next to nothing is not compared.
    largest, more = own.max(), 1.0 + _SLACK
    least, smallest = _SLACK * largest * residual.max(), _SLACK * largest**2
    fits = (np.abs(cross) <= more * own * residual + least).all()
    rows, columns = triangle(cross.shape[-1])
    if not fits or (np.abs(gram) > more * own[..., rows] * own[..., columns] + smallest).any():
        raise MessageError("products that are larger than their squares allow")


@cache
def _diagonal(dim: int) -> Ints:
    """Say where the diagonal is in a packed matrix, (d,)."""
    return np.diag(places(dim))


def _expect_usual(*numbers: Floats) -> None:
    """Expect numbers whose squares are numbers, too."""
    if any(not (np.abs(some) <= _HUGE).all() for some in numbers):
        raise MessageError(f"numbers beyond {_HUGE:g}")


def _expect_parts(what: str, parts: Array, bounds: tuple[float, float]) -> None:
    """Expect parts (..., k) of something, none of them negative, that add up to as much as there is."""
    _expect(what, parts, (0, bounds[1]))
    _expect(what, parts.sum(axis=-1), bounds)


def _expect(what: str, found: Any, bounds: tuple[float, float]) -> None:
    low, high = bounds
    slack = _SLACK * (1.0 + abs(high)) if math.isfinite(high) else _SLACK
    found = np.asarray(found, np.float64)
    if not ((found >= low - slack) & (found <= high + slack)).all():
        raise MessageError(f"sums over {np.max(np.abs(found)):.4g} {what}, when there are {high:g}")
