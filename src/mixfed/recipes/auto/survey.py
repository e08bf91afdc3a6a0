"""The tuning-free Phase 1: from nothing to a few candidates worth asking all clients about.

Four exchanges, whatever k is: a census; second moments, which give standard units (`units`); the *all-pairs* moment
matrix, whose leading eigenvectors span the differences between the models and which uses every row of every client
with two rows or more; and the anchors' normal equations in that basis, on which the server then tries many starts
(`anchors`). No client needs to be named an anchor: the largest take that role, and as many again are drawn from all
others, for the largest alone may not be typical.
"""

import dataclasses
from dataclasses import dataclass

import numpy as np

from ...core.arrays import Array, Floats
from ...core.symmetric import packed
from ...exchange.anchors import AnchorEquations, Expand, Project
from ...exchange.census import Census, CensusSum
from ...exchange.mixture import Candidates, MixtureReply
from ...exchange.moments import PairMoments
from ...exchange.pool import Sample
from ...exchange.units import StandardUnits
from ...families.registry import family_named
from ..recorder import Recorder
from ..settings import AutoSettings
from ..standardise import from_user, gram_query, inspect, make_units, spreads
from ..updates import PRIOR_SHARE, Penalty, residual_variance
from .anchors import Anchors, choose_anchors
from .info import Info
from .pooled import level_direction, pooled_fit

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
_LEAST_SHARE, _LEAST_SPREAD = 0.05, 0.0025
"""Kinds differ in each direction by so much, as a share of the most and in standard units, both squared."""
WORTH_DRAWING = 0.3
"""A sample of more than this share of all rows is not worth its memory: all clients are asked."""
_ROUNDING, _ROUNDING_SINGLE = 1e-13, 1e-6
"""What is left of a target is rounding if it is below this share of its size; or, with rows in single precision, of its
variation."""


@dataclass(frozen=True)
class SampleDesign:
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
class Survey:
    """What all numbers of kinds stand on."""

    census: CensusSum
    units: StandardUnits
    basis: Floats
    """(d, r): leading directions first, then the ways that are kept within reach."""
    kept_directions: int
    """How many columns of the basis are such ways."""
    moments: Floats
    """(d, d): the all-pairs moments, a mean over rows: the second moment of the kinds' models."""
    anchors: Anchors | None
    """Each counting once; None if clients do not answer one by one."""
    anchor_weights: Floats
    """(h,): how often each must count for the anchors to stand for all clients."""
    constant: Array
    """Places of columns that are constant, the intercept and what takes its role excepted."""
    tied: Array
    """Places of columns that are combinations of others."""
    design: SampleDesign
    rules: Penalty
    """By which mixtures are judged at first."""
    mean_weight: float
    """The information of a row about its linear predictor, on average, in units of the dispersion."""
    spread: Floats
    """(D,): standard deviations of the columns."""
    target_spread: float

    def is_exact(self, reply: MixtureReply) -> bool:
        """Say whether a mixture, by what was said of it, leaves nothing of the target but rounding."""
        if not self.rules.family.rescales:
            return False
        left = self.units.scale * np.sqrt(residual_variance(reply, 0))
        rounding = _ROUNDING * np.hypot(self.target_spread, self.census.target / self.census.mass)
        if self.census.single:
            rounding += _ROUNDING_SINGLE * self.target_spread
        return bool(left <= rounding)

    def scanned(self) -> Sample | None:
        """Draw as many clients as tell numbers of kinds apart."""
        return self.design.draw(SEARCH_ROWS * SCAN_KINDS * self.units.dim)

    def searched(self, proposed: Candidates, rules: Penalty) -> Sample | None:
        """Draw as many clients as tell candidates apart, given the noise and the smallest share that anchors found."""
        noise = min(self._left_over(proposed, rules), 0.99)
        each = max(SEARCH_ROWS, noise / (2.0 * SEARCH_ERROR**2 * (1.0 - noise)))
        smallest = max(float(np.exp(proposed.log_weight[0].min())), 0.01)
        return self.design.draw(each * self.units.dim / smallest)

    def _left_over(self, proposed: Candidates, rules: Penalty) -> float:
        """Say which share of what the pooled fit leaves a mixture leaves, too."""
        if rules.family.has_dispersion:
            return rules.prior_variance / PRIOR_SHARE
        told = np.exp(proposed.log_weight[0]) @ (proposed.theta[0] ** 2).sum(axis=1)
        return float(1.0 / (1.0 + self.mean_weight * told))

    def worth_asking(self, k: int) -> int:
        """Say how many candidates of k kinds to put to all clients at once: fewer where each takes more numbers."""
        return int(np.clip(40_000 / (k * self.units.dim**2), 4, 16))

    def worth_keeping(self, k: int, quick: bool) -> int:
        """Say how many candidates of k kinds a search should end with."""
        return min(self.worth_asking(k), 6) if quick else self.worth_asking(k)

    def columns(self, k: int) -> Array:
        """Give the columns of the basis that k kinds need: fewer have less room for noise."""
        leading = self.basis.shape[1] - self.kept_directions
        return np.concatenate([np.arange(min(leading, _width(k))), np.arange(leading, self.basis.shape[1])])


def make_survey(
    run: Recorder, intercept: bool, most_clusters: int, start: Floats | None, settings: AutoSettings, seed: int
) -> Survey:
    """Make the four exchanges, and report each. start (D,) or (k, D): models to keep within reach.

    If anchors are summed, no client is asked alone, and the fourth exchange is left out.
    """
    pool, single = run.pool, settings.anchors == "single"
    family = family_named(settings.family)
    exchanges = (4 if single else 3) if family.rescales else 0  # which is not known yet
    census = pool.ask(Census(family.name))
    family.check_target(census.target_low, census.target_high, census.whole)
    columns = inspect(census, intercept)
    run.report("survey", 1, exchanges, Info())
    squares = pool.ask(gram_query(columns, family.name))
    units, tied = make_units(columns, squares, census.mass)
    run.report("survey", 2, exchanges, Info())
    rules, mean_weight = Penalty(settings.shared_noise, family=family), 1.0
    units = dataclasses.replace(units, family=family.wire_name)
    if not family.rescales:
        ridge = family.ridge if settings.ridge is None else settings.ridge
        rules = Penalty(prior_variance=1.0, ridge=ridge, family=family)
        pooled = pooled_fit(run, units, census, family, 3)
        units, mean_weight = pooled.units, pooled.mean_weight
    paired = census.counts[census.sizes > 1].sum()
    design = SampleDesign(census.n_clients, census.n_rows, units.dim, seed)
    lone = bool(paired < 10 * units.dim) and family.rescales
    pairs = pool.ask(PairMoments(units, lone), design.draw(BASIS_ROWS * units.dim))
    moments = pairs.matrices(units.dim)[0] / (mean_weight**2 * max(pairs.rows, 1))
    basis, kept_directions = _basis(moments, units, most_clusters, start)
    run.report("survey", 3, exchanges, Info())
    anchors, anchor_weights = None, np.empty(0)
    if single:
        who, anchor_weights = choose_anchors(pool.roster, most_clusters, basis.shape[1], seed)
        asked: Project | Expand = Project(units, basis)
        own = Penalty(settings.shared_noise)  # whose normal equations suffice for a normal target
        if not family.rescales:
            own = rules
            asked = Expand(units, basis, packed(_own_ridge(basis.T @ moments @ basis)))
        equations: AnchorEquations = pool.ask_each(asked, who)
        anchors = Anchors(equations, np.ones(len(who)), own)
        run.report("survey", 4, exchanges, Info())
    return Survey(
        census,
        units,
        basis,
        kept_directions,
        moments,
        anchors,
        anchor_weights,
        np.flatnonzero(~columns.live),
        np.flatnonzero(tied),
        design,
        rules,
        mean_weight,
        *spreads(columns, squares, census),
    )


def _own_ridge(moments: Floats) -> Floats:
    """Say how near clients are to the pooled fit, a priori: the inverse of the kinds' second moment (r, r)."""
    size, axes = np.linalg.eigh(moments)
    size = np.maximum(size, max(_LEAST_SHARE * size[-1], _LEAST_SPREAD))
    return np.asarray((axes / size) @ axes.T)


def _width(k: int) -> int:
    return max(k + 2, 6)


def _basis(moments: Floats, units: StandardUnits, most_clusters: int, start: Floats | None) -> tuple[Floats, int]:
    """Take the leading eigenvectors, the way from the pooled fit to no effect at all, and to the caller's start.

    Where the link is not the identity, also the way to another level.
    """
    dim = units.dim
    width = min(dim, _width(most_clusters))
    leading = np.linalg.eigh(moments)[1][:, ::-1][:, :width]
    kept_directions = from_user(units, np.zeros((1, len(units.slope))))
    if units.constant is not None and not family_named(units.family).rescales:
        kept_directions = np.vstack([kept_directions, level_direction(units)])
    if start is not None:
        kept_directions = np.vstack([kept_directions, from_user(units, np.atleast_2d(start))])
    for way in kept_directions:
        outside = way - leading @ (leading.T @ way)
        length = np.linalg.norm(outside)
        if length > 1e-6 * np.linalg.norm(way) and leading.shape[1] < dim:
            leading = np.column_stack([leading, outside / length])
    return leading, leading.shape[1] - width
