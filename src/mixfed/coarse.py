"""The tuning-free Phase 1: from nothing to a few candidates worth asking all clients about.

Four exchanges, whatever k is: a census; second moments, which give standard units (`frame`); the *all-pairs* moment
matrix, whose leading eigenvectors span the differences between the models and which uses every row of every client
with two rows or more; and the anchors' normal equations in that basis, on which the server then tries many starts
(`anchors`). No client needs to be named an anchor: the largest take that role, and as many again are drawn from all
others, for the largest alone may not be typical.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from . import draws
from .anchors import Anchors, search, settle
from .arrays import Array, Floats
from .candidates import Candidates, ExpectSum, Frame, PairMoments, Project
from .compiled import side_by_side
from .exchange import Census, CensusSum
from .frame import from_user, gram_query, inspect, make_frame, spreads
from .mixtures import PRIOR_SHARE, Rules, residual_variance
from .pool import Pool, Roster, Sample

SURVEY_EXCHANGES = 4
LEAST_ANCHORS = 1000
ANCHORS_PER_KIND = 150
"""Of the largest clients, so that a rare kind has a few anchors."""
ROWS_PER_NUMBER = 60
"""Rows of all anchors together for each of the k r numbers that they are to tell."""
MOST_DRAWN = 4000
"""Anchors drawn from all clients besides the largest, at most."""
BASIS_ROWS = 8000
"""Rows for each feature that tell the basis."""
SEARCH_ROWS, SEARCH_ERROR = 100, 0.1
"""Rows for each coefficient of the smallest kind that tell candidates apart; and as many more as bring the error of a
model below this share of the distance between kinds."""
SCAN_KINDS = 8
"""While the number of kinds is unknown, samples are made for so many of equal size."""
MOST_NUMBERS = 25_000_000
"""Numbers in the rows of a sample, at most (200 MB)."""
LEAST_DRAWN = 2000
"""Clients in a sample, at least, however many rows they have."""
WORTH_DRAWING = 0.3
"""A sample of more than this share of all rows is not worth its memory: all clients are asked."""
_ROUNDING, _ROUNDING_SINGLE = 1e-13, 1e-6
"""What is left of a target is rounding if it is below this share of its size; or, with rows in single precision, of its
variation."""


@dataclass(frozen=True)
class Crowd:
    """All clients, and how to draw some of them."""

    n_clients: int
    n_rows: int
    dim: int
    seed: int

    def draw(self, rows: float) -> Sample | None:
        """Draw clients with about so many rows in all, and enough of them to tell kinds; None is everybody."""
        share = max(min(rows, MOST_NUMBERS / self.dim) / self.n_rows, LEAST_DRAWN / self.n_clients)
        return Sample(self.seed, share) if share < WORTH_DRAWING else None


@dataclass(frozen=True, eq=False)
class Ground:
    """What all numbers of kinds stand on."""

    census: CensusSum
    frame: Frame
    basis: Floats
    """(d, r): leading directions first, then the ways that are kept within reach."""
    ways: int
    """How many columns of the basis are such ways."""
    moments: Floats
    """(d, d): the all-pairs moments, a mean over rows: the second moment of the kinds' models."""
    anchors: Anchors | None
    """Each counting once; None if clients do not answer one by one."""
    fair: Floats
    """(h,): how often each must count for the anchors to stand for all clients."""
    constant: Array
    """Places of columns that are constant, the intercept and what takes its role excepted."""
    tied: Array
    """Places of columns that are combinations of others."""
    crowd: Crowd
    spread: Floats
    """(D,): standard deviations of the columns."""
    target_spread: float

    def is_exact(self, reply: ExpectSum) -> bool:
        """Say whether a mixture, by what was said of it, leaves nothing of the target but rounding."""
        left = self.frame.scale * np.sqrt(residual_variance(reply, 0))
        rounding = _ROUNDING * np.hypot(self.target_spread, self.census.target / self.census.n_rows)
        if self.census.single:
            rounding += _ROUNDING_SINGLE * self.target_spread
        return bool(left <= rounding)

    def scanned(self) -> Sample | None:
        """Draw as many clients as tell numbers of kinds apart."""
        return self.crowd.draw(SEARCH_ROWS * SCAN_KINDS * self.frame.dim)

    def searched(self, proposed: Candidates, rules: Rules) -> Sample | None:
        """Draw as many clients as tell candidates apart, given the noise and the smallest share that anchors found."""
        noise = min(rules.prior_variance / PRIOR_SHARE, 0.99)
        each = max(SEARCH_ROWS, noise / (2.0 * SEARCH_ERROR**2 * (1.0 - noise)))
        smallest = max(float(np.exp(proposed.log_weight[0].min())), 0.01)
        return self.crowd.draw(each * self.frame.dim / smallest)

    def worth_asking(self, k: int) -> int:
        """Say how many candidates of k kinds to put to all clients at once: fewer where each takes more numbers."""
        return int(np.clip(40_000 / (k * self.frame.dim**2), 4, 16))

    def worth_keeping(self, k: int, quick: bool) -> int:
        """Say how many candidates of k kinds a search should end with."""
        return min(self.worth_asking(k), 6) if quick else self.worth_asking(k)

    def columns(self, k: int) -> Array:
        """Give the columns of the basis that k kinds need: fewer have less room for noise."""
        leading = self.basis.shape[1] - self.ways
        return np.concatenate([np.arange(min(leading, _width(k))), np.arange(leading, self.basis.shape[1])])


def survey(
    pool: Pool,
    intercept: bool,
    most_clusters: int,
    start: Floats | None,
    rules: Rules,
    seed: int,
    *,
    single: bool = True,
) -> Generator[None, None, Ground]:
    """Make the four exchanges, with a pause after each. start (D,) or (k, D): models to keep within reach.

    Unless ``single``, no client is asked alone, and the fourth exchange is left out.
    """
    census = pool.ask(Census())
    columns = inspect(census, intercept)
    yield
    squares = pool.ask(gram_query(columns))
    frame, tied = make_frame(columns, squares, census.n_rows)
    yield
    paired = census.counts[census.sizes > 1].sum()
    crowd = Crowd(census.n_clients, census.n_rows, frame.dim, seed)
    lone = bool(paired < 10 * frame.dim)
    pairs = pool.ask(PairMoments(frame, lone), crowd.draw(BASIS_ROWS * frame.dim))
    moments = pairs.matrices(frame.dim)[0] / max(pairs.rows, 1)
    basis, ways = _basis(moments, frame, most_clusters, start)
    yield
    anchors, fair = None, np.empty(0)
    if single:
        who, fair = _choose_anchors(pool.roster, most_clusters, basis.shape[1], seed)
        anchors = Anchors(pool.ask_each(Project(frame, basis), who), np.ones(len(who)), rules)
        yield
    constant, combined = np.flatnonzero(~columns.live), np.flatnonzero(tied)
    spread, target_spread = spreads(columns, squares, census)
    return Ground(census, frame, basis, ways, moments, anchors, fair, constant, combined, crowd, spread, target_spread)


def propose(ground: Ground, k: int, *, seed: int, quick: bool) -> tuple[Candidates, Rules]:
    """Search the anchors for mixtures of k kinds: counted so that they stand for all clients, and as they are.

    Gives also the rules by which all mixtures of k kinds are judged.
    """
    anchors = ground.anchors
    assert anchors is not None
    keep, columns = ground.worth_keeping(k, quick), ground.columns(k)
    inside = anchors.within(columns)
    rules = settle(inside.counted(ground.fair).sieve(k), k, draws.generator(seed, "rules", k))

    views = {"starts": ground.fair} if quick else {"starts": ground.fair, "other starts": anchors.weight}

    def look(view: str) -> Candidates:
        rng = draws.generator(seed, view, k)
        return search(inside.counted(views[view]).by(rules), k, rng, max(2, keep // 2), quick=quick)

    reduced = Candidates.stack(list(side_by_side(look, views)))
    theta = reduced.theta @ ground.basis[:, columns].T
    return Candidates(theta, reduced.log_variance, reduced.log_weight), rules


def _width(k: int) -> int:
    return max(k + 2, 6)


def _basis(moments: Floats, frame: Frame, most_clusters: int, start: Floats | None) -> tuple[Floats, int]:
    """Take the leading eigenvectors, the way from the pooled fit to no effect at all, and to the caller's start."""
    dim = frame.dim
    width = min(dim, _width(most_clusters))
    leading = np.linalg.eigh(moments)[1][:, ::-1][:, :width]
    ways = from_user(frame, np.zeros((1, len(frame.slope))))
    if start is not None:
        ways = np.vstack([ways, from_user(frame, np.atleast_2d(start))])
    for way in ways:
        outside = way - leading @ (leading.T @ way)
        length = np.linalg.norm(outside)
        if length > 1e-6 * np.linalg.norm(way) and leading.shape[1] < dim:
            leading = np.column_stack([leading, outside / length])
    return leading, leading.shape[1] - width


def _choose_anchors(roster: Roster, most_clusters: int, width: int, seed: int) -> tuple[Array, Floats]:
    """Take the largest clients, and draw from the others. -> places (a,), how many clients each stands for (a,)."""
    chance = draws.uniform(seed, "anchors", 0, roster.keys)[:, 0]
    eligible = np.flatnonzero(roster.rows >= 2)
    if len(eligible) < 20 * most_clusters:
        eligible = np.arange(len(chance))
    largest = max(LEAST_ANCHORS, ANCHORS_PER_KIND * most_clusters)
    # The rows, and among equals the chance: one number that sorts like both, since a chance is below 1.
    large = _first(eligible, chance[eligible] - roster.rows[eligible], largest)
    rest = eligible[~np.isin(eligible, large, assume_unique=True)]
    drawn = _first(rest, chance[rest], MOST_DRAWN)
    have = roster.rows[large].sum() + np.cumsum(roster.rows[drawn])
    enough = int(np.searchsorted(have, ROWS_PER_NUMBER * most_clusters * width)) + 1
    drawn = drawn[: max(largest, enough)]
    fair = np.concatenate([np.ones(len(large)), np.full(len(drawn), len(rest) / max(len(drawn), 1))])
    return np.concatenate([large, drawn]), fair


def _first(places: Array, key: Array, count: int) -> Array:
    """Give the places (c,) with the least keys (c,), in their order, ``count`` at most."""
    if count < len(places):
        least = np.argpartition(key, count)[:count]
        places, key = places[least], key[least]
    return np.asarray(places[np.argsort(key, kind="stable")])
