"""The anchors' problem: a mixture in a few dimensions, solved on the server from many starts.

Each anchor has sent its normal equations in the basis once; they are all that its likelihood depends on. So any
number of starts costs no exchange. What comes out are a few candidates that are worth asking all clients about.
"""

from __future__ import annotations

import copy
from dataclasses import fields

import numpy as np

from ...core import draws
from ...core.arrays import Array, Floats
from ...core.symmetric import packed, unpacked
from ...exchange.anchors import AnchorEquations
from ...exchange.mixture import Candidates, MixtureReply
from ...exchange.pool import Roster
from ...kernels import plain
from ..updates import PRIOR_ROWS, SMALLEST_SHARE, Penalty

SIEVE_ROWS, LEAST_SIEVED = 240, 500
"""Starts are sieved on so many rows for each of the k r numbers that they are to tell, of so many anchors at least."""
LEAST_ANCHORS = 1000
ANCHORS_PER_KIND = 150
"""Of the largest clients, so that a rare kind has a few anchors."""
ROWS_PER_NUMBER = 60
"""Rows of all anchors together for each of the k r numbers that they are to tell."""
MOST_DRAWN = 4000
"""Anchors drawn from all clients besides the largest, at most."""
_OWN_RIDGE = 0.3
"""Of an anchor's own fit, in rows: most have fewer rows than the basis has columns."""


class Anchors:
    """Anchors' statistics, each counting as often as ``weight`` (a,) says."""

    def __init__(self, statistics: AnchorEquations, weight: Floats, rules: Penalty) -> None:
        self.statistics, self.weight, self.rules = statistics, weight, rules
        self.rows = statistics.rows
        self.dim = statistics.cross.shape[1]
        # One row per anchor, so that likelihoods and sums of all candidates are two matrix products.
        self._table = np.column_stack([self.rows, statistics.square, statistics.cross, statistics.gram])
        self._weighted_table = self._table * weight[:, None]
        own = unpacked(statistics.gram, self.dim) + _OWN_RIDGE * np.eye(self.dim)
        self.fits: Floats = np.linalg.solve(own, statistics.cross[..., None])[..., 0].astype(np.float64)
        """(a, r): each anchor's own fit."""
        self.least: Floats = np.maximum(np.sum(self._table * plain.quadratic_form(self.fits).T, axis=1), 0.0)
        """(a,): what that fit leaves."""

    def within(self, columns: Array) -> Anchors:
        """Look at the same anchors in some columns (c,) of the basis only, in their order."""
        if len(columns) == self.dim:
            return self
        whole = self.statistics
        gram = packed(unpacked(whole.gram, self.dim)[:, columns[:, None], columns])
        some = AnchorEquations(whole.rows, whole.square, whole.cross[:, columns], gram)
        return Anchors(some, self.weight, self.rules)

    def with_penalty(self, rules: Penalty) -> Anchors:
        """Judge the same anchors by other rules; nothing that depends on their rows is done again."""
        other = copy.copy(self)
        other.rules = rules
        return other

    def with_weights(self, weight: Floats) -> Anchors:
        """Count the same anchors as often as another weight (a,) says."""
        other = copy.copy(self)
        other.weight, other._weighted_table = weight, self._table * weight[:, None]
        return other

    def sieve(self, k: int) -> Anchors:
        """Take every second, or third, ... anchor, for all of them: enough to tell good starts of k kinds from bad."""
        step = int(min(self.rows.sum() / (SIEVE_ROWS * k * self.dim), len(self.rows) / LEAST_SIEVED))
        if step < 2:
            return self
        some = AnchorEquations(*(getattr(self.statistics, item.name)[::step] for item in fields(self.statistics)))
        return Anchors(some, step * self.weight[::step], self.rules)

    def losses(self, theta: Floats) -> Floats:
        """Give squared residuals of every anchor under models theta (l, r). -> (a, l)."""
        return np.asarray(np.maximum(self._table @ plain.quadratic_form(theta), 0.0))

    def memberships(self, candidates: Candidates) -> tuple[Floats, Floats]:
        """Give log likelihoods (a, C) and memberships (a, C, k)."""
        count, k, dim = candidates.theta.shape
        losses = 0.5 * self.losses(candidates.theta.reshape(count * k, dim)).reshape(-1, count, k)
        membership, likelihood = plain.posterior(
            losses, self.rows, candidates.log_variance, candidates.log_weight, False
        )
        return likelihood, membership

    def expect(self, candidates: Candidates) -> MixtureReply:
        """Give the sums that an exchange with these anchors would give. Overlaps are not looked at here."""
        likelihood, membership = self.memberships(candidates)
        return self.sums(candidates.theta, self.weight @ likelihood, membership)

    def sums(self, theta: Floats, likelihood: Floats, membership: Floats) -> MixtureReply:
        """Sum the normal equations at models (C, k, r), weighted by memberships (a, C, k)."""
        _, count, k = membership.shape
        table = (membership.reshape(-1, count * k).T @ self._weighted_table).reshape(count, k, -1)
        cross, gram = table[..., 2 : 2 + self.dim], table[..., 2 + self.dim :]
        explained = np.einsum("cjde,cje->cjd", unpacked(gram, self.dim), theta)
        squares = table[..., 1] - np.einsum("cjd,cjd->cj", theta, 2.0 * cross - explained)
        return MixtureReply(
            likelihood=likelihood,
            clients=np.tensordot(self.weight, membership, axes=1),
            rows=table[..., 0],
            squares=np.maximum(squares, 0.0),
            score=cross - explained,
            gram=gram,
            overlap=np.zeros((count, k, k)),
            missing=np.empty((0, k * (k + 1) // 2, self.dim + 2, self.dim + 2)),
        )

    def em_steps(self, candidates: Candidates, steps: int, tolerance: float = 0.0) -> tuple[Candidates, Floats]:
        """Take EM steps on all candidates at once; stop early when none gains more than the tolerance."""
        moved = Candidates(*(np.array(getattr(candidates, item.name), order="C") for item in fields(candidates)))
        value = plain.em_steps(
            self._table,
            self._weighted_table,
            self.weight,
            moved.theta,
            moved.log_variance,
            moved.log_weight,
            self.rules.shared_noise,
            PRIOR_ROWS,
            self.rules.prior_variance,
            self.rules.stiffness,
            self.rules.family.has_dispersion,
            SMALLEST_SHARE,
            steps,
            tolerance,
        )
        return moved, value


def choose_anchors(roster: Roster, most_clusters: int, width: int, seed: int) -> tuple[Array, Floats]:
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
    anchor_weights = np.concatenate([np.ones(len(large)), np.full(len(drawn), len(rest) / max(len(drawn), 1))])
    return np.concatenate([large, drawn]), anchor_weights


def _first(places: Array, key: Array, count: int) -> Array:
    """Give the places (c,) with the least keys (c,), in their order, ``count`` at most."""
    if count < len(places):
        least = np.argpartition(key, count)[:count]
        places, key = places[least], key[least]
    return np.asarray(places[np.argsort(key, kind="stable")])


def thinned(anchors: Anchors, candidates: Candidates, steps: int, times: int) -> tuple[Candidates, Floats]:
    """Climb, and keep the better half, as many times. -> candidates, their values."""
    for _ in range(times):
        candidates, value = anchors.em_steps(candidates, steps, 0.01)
        better = np.argsort(-value, kind="stable")[: (len(value) + 1) // 2]
        candidates, value = candidates.pick(better), value[better]
    return candidates, value
