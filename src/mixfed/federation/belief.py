"""Can an answer be true? What the server can tell of a site's sums without the rows behind them.

Counts of clients and rows are known, and sums of squares and products bound each other. A site that makes up plausible
sums is believed: see ``docs/privacy.md``.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache, singledispatch
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Array, Bools, Floats, Ints
from ..candidates import Candidates, Expect, ExpectNumbers, GramSum, LocalStep, PairSum, Statistics
from ..compiled import compiled
from ..deviations import Deviate, DeviateSum, LeftOutSum
from ..exchange import ASKED_AT_ONCE, AnchorReplies, BlockSum, CensusSum, ModelSum, PeakSum, Replies
from ..messages import MessageError
from ..symmetric import places
from .wire import Enrolled

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


@singledispatch
def weigh(content: Any, query: Any, asked: Asked) -> None:
    """Refuse an answer to a query that cannot be true of those who were asked."""


@weigh.register
def _(content: Replies, query: Any, asked: Asked) -> None:
    for part, question in zip(content.parts, query.parts, strict=True):
        weigh(part, question, asked)


@weigh.register
def _(content: CensusSum, query: Any, asked: Asked) -> None:
    _expect("rows", content.sizes, (0, asked.rows[1]))
    _expect("clients", content.counts, (0, asked.clients))
    rows = content.n_rows
    _expect("clients", content.n_clients, (asked.clients, asked.clients))
    _expect("rows", rows, asked.rows)
    columns, target = (content.low, content.high, content.total), (content.target_low, content.target_high)
    _expect_usual(content.low, content.high, np.array(target))
    if (
        (np.diff(content.sizes) <= 0).any()
        or (content.counts < 1).any()
        or _out_of_range(*columns, content.steady, content.value, float(rows))
        or _beyond(*target, content.target, float(rows))
    ):
        raise MessageError("a census that cannot be")


@weigh.register
def _(content: GramSum, query: Any, asked: Asked) -> None:
    # In these units no number is larger than 1.
    _expect("squares", content.square, (0, asked.rows[1]))
    _expect_moments(content.gram, content.cross, np.array(content.square), asked.rows[1])


@weigh.register
def _(content: PairSum, query: Any, asked: Asked) -> None:
    _expect("rows", content.rows, (0, asked.rows[1]))
    _expect_usual(content.moments)


@weigh.register
def _(content: BlockSum, query: Any, asked: Asked) -> None:
    _expect("clients", content.clients, (asked.clients, asked.clients))


@weigh.register
def _(content: PeakSum, query: Any, asked: Asked) -> None:
    _expect("squares", content.peak, (0, np.inf))


@weigh.register
def _(content: ModelSum, query: Any, asked: Asked) -> None:
    _expect("rows", content.rows, asked.rows)
    _expect_parts("clients", content.clients, (asked.clients, asked.clients))
    _expect_parts("rows", content.mass, asked.rows)
    if isinstance(query, LocalStep):  # in standard units
        _expect("losses", content.loss / _sizes(query.mixture)[0], (0, asked.most))
    _expect("losses", content.loss, (0, np.inf))


@weigh.register
def _(content: ExpectNumbers, query: Expect, asked: Asked) -> None:
    length, log_variance, sizes, width, curved = _known(query)
    if content.numbers.shape[1] != length:
        raise MessageError(f"{content.numbers.shape[1]} numbers about a candidate, not {length}")
    if _can_be(content.numbers, log_variance, sizes, width, curved, asked.clients, *asked.rows, asked.most):
        return
    # Why not?
    said = content.named(sizes.shape[1], width)
    _expect_parts("clients", said.clients, (asked.clients, asked.clients))
    _expect_parts("rows", said.rows, asked.rows)
    _expect("squares", said.squares / sizes, (0, asked.most))
    _expect_likelihood(said.likelihood, said.rows, log_variance)
    if curved:
        _expect_moments(said.gram, said.score, said.squares, asked.most)


@weigh.register
def _(content: DeviateSum, query: Deviate, asked: Asked) -> None:
    _expect_parts("clients", content.clients, (asked.clients, asked.clients))
    _expect_parts("rows", content.rows, asked.rows)
    # Deviations add to the noise, so the bound of plain mixtures holds for these, too.
    _expect_likelihood(content.likelihood, content.rows, query.candidates.log_variance)
    _expect("squares", content.gram[..., _diagonal(query.width)], (0, np.inf))
    _expect_usual(content.score, content.expected, content.observed, content.missing)


@weigh.register
def _(content: LeftOutSum, query: Any, asked: Asked) -> None:
    _expect("rows", content.rows, (0, asked.rows[1]))
    _expect("squares", content.squares, (0, np.inf))


@weigh.register
def _(content: Statistics, query: Any, asked: Asked) -> None:
    if not np.array_equal(content.rows, asked.sizes):
        raise MessageError("clients with other rows than they have")
    _expect("squares", content.square, (0, asked.most))
    _expect_moments(content.gram, content.cross, content.square, asked.most)


@weigh.register
def _(content: AnchorReplies, query: Any, asked: Asked) -> None:
    _expect("sizes", content.size, (0, np.inf))


@compiled
def _out_of_range(low: Floats, high: Floats, total: Floats, steady: Bools, value: Floats, rows: float) -> bool:
    """Say whether the sum of a column, or its only value, cannot be with its range; all are (D,)."""
    for m in range(len(low)):
        if _beyond(low[m], high[m], total[m], rows) or (steady[m] and not low[m] <= value[m] <= high[m]):
            return True
    return False


@compiled
def _beyond(low: float, high: float, total: float, rows: float) -> bool:
    """Say whether so many numbers within a range cannot have this sum."""
    slack = _SLACK * rows * max(abs(low), abs(high))
    return not rows * low - slack <= total <= rows * high + slack


@lru_cache(maxsize=ASKED_AT_ONCE)
def _known(query: Expect) -> tuple[int, Floats, Floats, int, bool]:
    """Say what is known of all answers to a query.

    How many numbers there are about a candidate, its kinds' log variances and sizes (C, k), columns, and whether second
    moments are there to be looked at.
    """
    k, width = query.candidates.theta.shape[1], query.frame.width
    length = ExpectNumbers.length(k, width, query.curvature)
    curved = query.curvature and query.since is None
    return length, query.candidates.log_variance, _sizes(query.candidates), width, curved


@lru_cache(maxsize=ASKED_AT_ONCE)
def _sizes(candidates: Candidates) -> Floats:
    """Say how large squared residuals may be on average, (C, k): once for all who are asked the same."""
    # Pooled residuals have squares of 1 on average, and so have features; models add to them.
    size = 1.0 + np.sqrt(candidates.theta.shape[-1]) * np.linalg.norm(candidates.theta, axis=-1)
    return np.asarray(size**2)


def _expect_likelihood(likelihood: Floats, rows: Floats, log_variance: Floats) -> None:
    """Expect no likelihood (C,) above that of as many rows (C, k) on the model of the kind with the least noise."""
    _expect_usual(likelihood)
    if _too_likely(likelihood, rows, log_variance):
        raise MessageError("a likelihood that cannot be")


@compiled
def _can_be(
    numbers: Floats,
    log_variance: Floats,
    sizes: Floats,
    width: int,
    curved: bool,
    n_clients: int,
    least_rows: int,
    most_rows: int,
    most: float,
) -> bool:
    """Say at one go whether the numbers of an `ExpectNumbers` can be true; second moments only if ``curved``."""
    people, lines, slack = _slack(n_clients), _slack(most_rows), _slack(most)
    count, k = sizes.shape
    clients, rows, squares = numbers[:, 1 : 1 + k], numbers[:, 1 + k : 1 + 2 * k], numbers[:, 1 + 2 * k : 1 + 3 * k]
    if _not_whole(clients, n_clients - people, n_clients + people, people):
        return False
    if _not_whole(rows, least_rows - lines, most_rows + lines, lines):
        return False
    if _outside((squares / sizes).ravel(), -slack, most + slack) or _outside(numbers[:, 0], -_HUGE, _HUGE):
        return False
    if _too_likely(numbers[:, 0], rows, log_variance):
        return False
    scores = 1 + k * (3 + k)
    moments = scores + k * width
    for c in range(count if curved else 0):
        score, gram = numbers[c, scores:moments].reshape(k, width), numbers[c, moments:].reshape(k, -1)
        if _too_large(gram, score, squares[c], -slack, most + slack):
            return False
    return True


@compiled
def _too_likely(likelihood: Floats, rows: Floats, log_variance: Floats) -> bool:
    for c in range(len(likelihood)):
        most = -0.5 * log_variance[c].min() * rows[c].sum()
        if likelihood[c] > most + _SLACK * (1.0 + abs(most)):
            return True
    return False


def _expect_moments(gram: Floats, cross: Floats, square: Floats, most: float) -> None:
    """Expect sums z z^T (..., v), packed, z r (..., d) and r^2 (...), which bound each other (Cauchy and Schwarz).

    ``most`` is the largest that a sum of squares can be.
    """
    flat = gram.reshape(-1, gram.shape[-1]), cross.reshape(-1, cross.shape[-1]), square.reshape(-1)
    slack = _slack(most)
    if _too_large(*flat, -slack, most + slack):
        _expect("squares", gram[..., _diagonal(cross.shape[-1])], (0, most))
        raise MessageError("products that are larger than their squares allow")


@cache
def _diagonal(dim: int) -> Ints:
    """Say where the diagonal is in a packed matrix, (d,)."""
    return np.diag(places(dim))


@compiled
def _too_large(gram: Floats, cross: Floats, square: Floats, low: float, high: float) -> bool:
    """Say whether squares are out of bounds, or products larger than squares allow.

    gram (m, v), packed, cross (m, d), square (m,).
    """
    m, d = cross.shape
    own, residual = np.empty((m, d)), np.sqrt(np.maximum(square, 0.0))
    for i in range(m):
        for a in range(d):
            if not low <= gram[i, a * (a + 3) // 2] <= high:
                return True
            own[i, a] = math.sqrt(max(gram[i, a * (a + 3) // 2], 0.0))
    # Clients whose membership is next to nothing are left out of some sums: what is next to nothing is not compared.
    largest = own.max()
    least, smallest = _SLACK * largest * residual.max(), _SLACK * largest**2
    for i in range(m):
        first = 0
        for a in range(d):
            if abs(cross[i, a]) > (1.0 + _SLACK) * own[i, a] * residual[i] + least:
                return True
            excess = 0.0
            for b in range(a + 1):
                excess = max(excess, abs(gram[i, first + b]) - (1.0 + _SLACK) * own[i, a] * own[i, b])
            if excess > smallest:
                return True
            first += a + 1
    return False


def _expect_usual(*numbers: Floats) -> None:
    """Expect numbers whose squares are numbers, too."""
    if any(_outside(some.ravel(), -_HUGE, _HUGE) for some in numbers):
        raise MessageError(f"numbers beyond {_HUGE:g}")


def _expect_parts(what: str, parts: Array, bounds: tuple[float, float]) -> None:
    """Expect parts (..., k) of something, none of them negative, that add up to as much as there is."""
    slack = _slack(bounds[1])
    if _not_whole(parts.reshape(-1, parts.shape[-1]), bounds[0] - slack, bounds[1] + slack, slack):
        _expect(what, parts, (0, bounds[1]))
        _expect(what, np.add.reduce(parts, axis=-1), bounds)


def _expect(what: str, found: Any, bounds: tuple[float, float]) -> None:
    if isinstance(found, int | float) and bounds[0] <= found <= bounds[1]:
        return
    found, slack = np.asarray(found, np.float64).ravel(), _slack(bounds[1])
    if _outside(found, bounds[0] - slack, bounds[1] + slack):
        raise MessageError(f"sums over {np.max(np.abs(found)):.4g} {what}, when there are {bounds[1]:g}")


@compiled
def _slack(most: float) -> float:
    """Say by how much sums may miss bounds."""
    return _SLACK * (1.0 + abs(most)) if math.isfinite(most) else _SLACK


@compiled
def _not_whole(parts: Floats, low: float, high: float, slack: float) -> bool:
    """Say whether a part is negative, or parts (n, k) do not add up to something within bounds."""
    for row in parts:
        whole = 0.0
        for part in row:
            if not part >= -slack:
                return True
            whole += part
        if not low <= whole <= high:
            return True
    return False


@compiled
def _outside(found: Floats, low: float, high: float) -> bool:
    """Say whether one of some numbers (n,) is not within bounds."""
    for number in found:  # noqa: SIM110 (numba has no any)
        if not low <= number <= high:
            return True
    return False
