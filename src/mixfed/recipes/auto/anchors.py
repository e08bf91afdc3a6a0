"""The anchors' problem: a mixture in a few dimensions, solved on the server from many starts.

Each anchor has sent its normal equations in the basis once; they are all that its likelihood depends on. So any
number of starts costs no exchange. What comes out are a few candidates that are worth asking all clients about.
"""

from __future__ import annotations

import copy
from dataclasses import fields

import numpy as np

from ...core.arrays import Array, Floats
from ...core.symmetric import packed, unpacked
from ...exchange.anchors import Statistics
from ...exchange.mixture import Candidates, ExpectSum
from ...kernels import anchor_em as climbing
from ...kernels.gaussian import posterior
from ..updates import PRIOR_ROWS, PRIOR_SHARE, RIDGE, SMALLEST_SHARE, Rules, distinct, maximise, residual_variance

STARTS = 15
"""Starts seeded from anchors' own fits; a third as many more start from random memberships."""
AGREE = 0.8
"""If as many as this share of a quarter of the starts end in the best place, nothing is looked for around it."""
MORE = 4
"""Times that as many starts again are made while fewer agree."""
LOOKS = 4
MOVES = 48
"""Variants tried in each look around the best."""
SIEVE_ROWS, LEAST_SIEVED = 240, 500
"""Starts are sieved on so many rows for each of the k r numbers that they are to tell, of so many anchors at least."""
_OWN_RIDGE = 0.3
"""Of an anchor's own fit, in rows: most have fewer rows than the basis has columns."""


class Anchors:
    """Anchors' statistics, each counting as often as ``weight`` (a,) says."""

    def __init__(self, statistics: Statistics, weight: Floats, rules: Rules) -> None:
        self.statistics, self.weight, self.rules = statistics, weight, rules
        self.rows = statistics.rows
        self.dim = statistics.cross.shape[1]
        # One row per anchor, so that likelihoods and sums of all candidates are two matrix products.
        self._table = np.column_stack([self.rows, statistics.square, statistics.cross, statistics.gram])
        self._weighted_table = self._table * weight[:, None]
        own = unpacked(statistics.gram, self.dim) + _OWN_RIDGE * np.eye(self.dim)
        self.fits: Floats = np.linalg.solve(own, statistics.cross[..., None])[..., 0].astype(np.float64)
        """(a, r): each anchor's own fit."""
        self.least: Floats = np.maximum(np.sum(self._table * self._form(self.fits).T, axis=1), 0.0)
        """(a,): what that fit leaves."""

    def within(self, columns: Array) -> Anchors:
        """Look at the same anchors in some columns (c,) of the basis only, in their order."""
        if len(columns) == self.dim:
            return self
        whole = self.statistics
        gram = packed(unpacked(whole.gram, self.dim)[:, columns[:, None], columns])
        return Anchors(Statistics(whole.rows, whole.square, whole.cross[:, columns], gram), self.weight, self.rules)

    def by(self, rules: Rules) -> Anchors:
        """Judge the same anchors by other rules; nothing that depends on their rows is done again."""
        other = copy.copy(self)
        other.rules = rules
        return other

    def counted(self, weight: Floats) -> Anchors:
        """Count the same anchors as often as another weight (a,) says."""
        other = copy.copy(self)
        other.weight, other._weighted_table = weight, self._table * weight[:, None]
        return other

    def sieve(self, k: int) -> Anchors:
        """Take every second, or third, ... anchor, for all of them: enough to tell good starts of k kinds from bad."""
        step = int(min(self.rows.sum() / (SIEVE_ROWS * k * self.dim), len(self.rows) / LEAST_SIEVED))
        if step < 2:
            return self
        some = Statistics(*(getattr(self.statistics, item.name)[::step] for item in fields(self.statistics)))
        return Anchors(some, step * self.weight[::step], self.rules)

    def losses(self, theta: Floats) -> Floats:
        """Give squared residuals of every anchor under models theta (l, r). -> (a, l)."""
        return np.asarray(np.maximum(self._table @ self._form(theta), 0.0))

    def _form(self, theta: Floats) -> Floats:
        """Write squared residuals under models theta (l, r) as a product with the table. -> (columns, l)."""
        form = np.empty((self._table.shape[1], len(theta)))
        climbing.features(np.ascontiguousarray(theta), form)
        return form

    def memberships(self, candidates: Candidates) -> tuple[Floats, Floats]:
        """Give log likelihoods (a, C) and memberships (a, C, k)."""
        count, k, dim = candidates.theta.shape
        losses = 0.5 * self.losses(candidates.theta.reshape(count * k, dim)).reshape(-1, count, k)
        membership, top, whole = np.empty_like(losses), np.empty(losses.shape[:2]), np.empty(losses.shape[:2])
        posterior(losses, self.rows, candidates.log_variance, candidates.log_weight, False, membership, top, whole)
        return top + np.log(whole), membership

    def expect(self, candidates: Candidates) -> ExpectSum:
        """Give the sums that an exchange with these anchors would give. Overlaps are not looked at here."""
        likelihood, membership = self.memberships(candidates)
        return self.sums(candidates.theta, self.weight @ likelihood, membership)

    def sums(self, theta: Floats, likelihood: Floats, membership: Floats) -> ExpectSum:
        """Sum the normal equations at models (C, k, r), weighted by memberships (a, C, k)."""
        _, count, k = membership.shape
        table = (membership.reshape(-1, count * k).T @ self._weighted_table).reshape(count, k, -1)
        cross, gram = table[..., 2 : 2 + self.dim], table[..., 2 + self.dim :]
        explained = np.einsum("cjde,cje->cjd", unpacked(gram, self.dim), theta)
        squares = table[..., 1] - np.einsum("cjd,cjd->cj", theta, 2.0 * cross - explained)
        return ExpectSum(
            likelihood=likelihood,
            clients=np.tensordot(self.weight, membership, axes=1),
            rows=table[..., 0],
            squares=np.maximum(squares, 0.0),
            score=cross - explained,
            gram=gram,
            overlap=np.zeros((count, k, k)),
            missing=np.empty((0, k * (k + 1) // 2, self.dim + 2, self.dim + 2)),
        )

    def climb(self, candidates: Candidates, steps: int, tolerance: float = 0.0) -> tuple[Candidates, Floats]:
        """Take EM steps on all candidates at once; stop early when none gains more than the tolerance."""
        moved = Candidates(*(np.array(getattr(candidates, item.name), order="C") for item in fields(candidates)))
        value = climbing.climb(
            self._table,
            self._weighted_table,
            self.weight,
            moved.theta,
            moved.log_variance,
            moved.log_weight,
            self.rules.shared_noise,
            PRIOR_ROWS,
            self.rules.prior_variance,
            RIDGE,
            SMALLEST_SHARE,
            steps,
            tolerance,
        )
        return moved, value


def settle(anchors: Anchors, k: int, rng: np.random.Generator) -> Rules:
    """Find what a good mixture of k models leaves, roughly, and the rules that fit it."""
    if k == 1:
        return anchors.rules
    candidates, rules = _levelled(anchors, _spread_seeds(anchors, k, 8, rng)), anchors.rules
    for _ in range(4):
        judged = anchors.by(rules)
        candidates, value = thinned(judged, candidates, 8, 1)
        left = residual_variance(judged.expect(candidates), int(np.argmax(value)))
        if PRIOR_SHARE * left > 0.5 * rules.prior_variance:
            break
        rules = rules.fitting(left)
    return rules


def search(anchors: Anchors, k: int, rng: np.random.Generator, keep: int, *, quick: bool) -> Candidates:
    """Find the best few mixtures of k models for the anchors, best first."""
    if k == 1:
        pooled = _levelled(anchors, np.zeros((1, 1, anchors.dim)))
        return maximise(pooled, anchors.expect(pooled), anchors.rules)
    few = anchors.sieve(k)
    candidates, value = _many_starts(anchors, few, k, rng)
    enough = AGREE * len(value)
    for _ in range(0 if quick else MORE):
        if _agreeing(value) >= enough:
            break
        more, more_value = _many_starts(anchors, few, k, rng)
        candidates, value = Candidates.stack([candidates, more]), np.concatenate([value, more_value])
    agreed = _agreeing(value) >= enough
    candidates, value = anchors.climb(candidates.pick(distinct(candidates, value, 0.05)[: max(keep, 10)]), 40, 1e-3)
    if not agreed:
        candidates, value = _look_around(anchors, few, candidates, value, rng, 1 if quick else LOOKS)
    return candidates.pick(distinct(candidates, value, 0.05)[:keep])


def _agreeing(value: Floats) -> int:
    return int(np.sum(value > value.max() - 1.0))


def _many_starts(anchors: Anchors, few: Anchors, k: int, rng: np.random.Generator) -> tuple[Candidates, Floats]:
    """Climb from many starts, at first on few anchors. -> the best quarter, and their values."""
    seeds = [_levelled(few, _spread_seeds(few, k, STARTS, rng)), _random_starts(few, k, STARTS // 3, rng)]
    return anchors.climb(thinned(few, Candidates.stack(seeds), 8, 2)[0], 9, 0.01)


def thinned(anchors: Anchors, candidates: Candidates, steps: int, times: int) -> tuple[Candidates, Floats]:
    """Climb, and keep the better half, as many times. -> candidates, their values."""
    for _ in range(times):
        candidates, value = anchors.climb(candidates, steps, 0.01)
        better = np.argsort(-value, kind="stable")[: (len(value) + 1) // 2]
        candidates, value = candidates.pick(better), value[better]
    return candidates, value


def variants(anchors: Anchors, mixture: Candidates, rng: np.random.Generator, count: int) -> Candidates:
    """Make variants of one mixture: two kinds become one, and a kind begins anew at an anchor that fits badly."""
    membership = anchors.memberships(mixture)[1][:, 0] * anchors.weight[:, None]
    k = membership.shape[1]
    losses = anchors.losses(mixture.theta[0])
    clients = membership.sum(axis=0)
    merges = _merges(membership.T @ membership, clients, max(3, k // 2))
    made = []
    for _ in range(count):
        into, gone = merges[rng.integers(len(merges))]
        where = rng.integers(k)
        where = (where + 1) % k if where == gone else where
        theta, log_variance, log_weight = _without(mixture, clients, into, gone)
        misfit = membership[:, where] * np.maximum(losses[:, where] - anchors.least, 0.0) + 1e-12
        theta[gone] = anchors.fits[rng.choice(len(misfit), p=misfit / misfit.sum())]
        log_variance[gone] = log_variance[where]
        log_weight[where] -= np.log(2.0)
        log_weight[gone] = log_weight[where]
        made.append(_single(theta, log_variance, log_weight))
    return Candidates.stack(made)


def splits(mixture: Candidates, reply: ExpectSum, moments: Floats, count: int) -> list[Candidates]:
    """Make variants of one mixture: two kinds become one, and a kind is split where its clients differ most.

    reply: the sums at the mixture. moments (k, d, d): the pair moments at each kind's own model; their leading
    eigenvector, freed of the features' second moment, is the direction in which the kind's clients differ.
    """
    k, dim = mixture.theta[0].shape
    grams, ways = reply.matrices[0], []
    for j in range(k):
        rows = max(reply.rows[0, j], 1.0)
        free = np.linalg.inv(grams[j] / rows + 1e-6 * np.eye(dim))
        spread, axes = np.linalg.eigh(free @ (moments[j] / rows) @ free)
        for place in range(-1, -1 - min(2, dim), -1):
            if spread[place] > 0:
                gain = rows * spread[place] * np.exp(-mixture.log_variance[0, j])
                ways.append((gain, j, np.sqrt(spread[place]) * axes[:, place]))
    ways.sort(key=lambda way: -way[0])
    clients = reply.clients[0]
    merges = _merges(reply.overlap[0], clients, max(2, k // 2))
    made: list[Candidates] = []
    for _, where, half in ways[:k]:
        for into, gone in merges:
            # Which of two kinds goes into the other matters only if the one that is split is among them.
            twin = into is not None and into > gone and where != into
            if where == gone or twin or len(made) == count:
                continue
            theta, log_variance, log_weight = _without(mixture, clients, into, gone)
            theta[gone], theta[where] = theta[where] + half, theta[where] - half
            log_variance[gone] = log_variance[where]
            log_weight[where] -= np.log(2.0)
            log_weight[gone] = log_weight[where]
            made.append(_single(theta, log_variance, log_weight))
    return made


def _look_around(
    anchors: Anchors, few: Anchors, candidates: Candidates, value: Floats, rng: np.random.Generator, looks: int
) -> tuple[Candidates, Floats]:
    """Try variants of the best, at first on few anchors, until they bring nothing new."""
    for look in range(looks):
        best = value.max()
        leaders = distinct(candidates, value, 0.05)[: 2 if look == 0 else 1]
        made = [variants(few, candidates.pick(c), rng, MOVES // len(leaders)) for c in leaders]
        fresh, fresh_value = thinned(few, Candidates.stack(made), 6, 2)
        fresh, fresh_value = anchors.climb(fresh.pick(distinct(fresh, fresh_value, 0.05)[:6]), 30, 1e-3)
        candidates = Candidates.stack([candidates, fresh])
        value = np.concatenate([value, fresh_value])
        if look >= 1 and value.max() < best + 0.01:
            break
    return candidates, value


def _spread_seeds(anchors: Anchors, k: int, starts: int, rng: np.random.Generator) -> Floats:
    """Choose anchors whose own fits are far from those chosen before (greedy k-means++). -> (starts, k, r)."""
    count = len(anchors.rows)
    each = np.arange(starts)
    first = rng.choice(count, size=starts, p=anchors.rows / anchors.rows.sum())
    theta = anchors.fits[first][:, None]
    best = anchors.losses(theta[:, 0])
    for _ in range(1, k):
        excess = np.maximum(best - anchors.least[:, None], 0.0) + 1e-12
        tries = climbing.drawn(np.cumsum(excess, axis=0), rng.random((starts, 3)))
        losses = anchors.losses(anchors.fits[tries.ravel()]).reshape(count, starts, 3)
        winner = np.minimum(losses, best[:, :, None]).sum(axis=0).argmin(axis=1)
        best = np.minimum(best, losses[:, each, winner])
        theta = np.concatenate([theta, anchors.fits[tries[each, winner]][:, None]], axis=1)
    return theta


def _random_starts(anchors: Anchors, k: int, starts: int, rng: np.random.Generator) -> Candidates:
    """Start near the pooled fit, from random memberships."""
    membership = rng.dirichlet(np.full(k, 0.3), size=(len(anchors.rows), max(starts, 4)))
    pooled = _levelled(anchors, np.zeros((membership.shape[1], k, anchors.dim)))
    return maximise(pooled, anchors.sums(pooled.theta, np.zeros(len(pooled)), membership), anchors.rules)


def _levelled(anchors: Anchors, theta: Floats) -> Candidates:
    """Give models (C, k, r) equal weights and the noise that is left when every anchor takes its best."""
    count, k, dim = theta.shape
    losses = anchors.losses(theta.reshape(count * k, dim)).reshape(-1, count, k).min(axis=2).sum(axis=0)
    log_variance = np.log((losses + 1.0) / (anchors.rows.sum() + 1.0))
    return Candidates(theta, np.repeat(log_variance[:, None], k, axis=1), np.full((count, k), -np.log(k)))


def _merges(overlap: Floats, clients: Floats, count: int) -> list[tuple[int | None, int]]:
    """Say which kind to give up: those that share most clients with another (into, gone), and the smallest (None)."""
    size = np.sqrt(np.maximum(np.diag(overlap), 1e-300))
    alike = overlap / np.outer(size, size)
    pairs = sorted(zip(*np.triu_indices(len(clients), 1), strict=True), key=lambda pair: -alike[pair])
    both = [(int(a), int(b)) for a, b in pairs[:count]]
    return [*both, *((b, a) for a, b in both), (None, int(np.argmin(clients)))]


def _without(mixture: Candidates, clients: Floats, into: int | None, gone: int) -> tuple[Floats, Floats, Floats]:
    """Give theta, log variance and log weight after a kind has gone into another (or into none)."""
    theta, log_variance, log_weight = (
        part[0].copy() for part in (mixture.theta, mixture.log_variance, mixture.log_weight)
    )
    if into is not None:
        share = np.maximum(clients[[into, gone]], 1e-12) / np.maximum(clients[[into, gone]], 1e-12).sum()
        theta[into] = share @ theta[[into, gone]]
        log_variance[into] = np.logaddexp.reduce(log_variance[[into, gone]] + np.log(share))
        log_weight[into] = np.logaddexp.reduce(log_weight[[into, gone]])
    return theta, log_variance, log_weight


def _single(theta: Floats, log_variance: Floats, log_weight: Floats) -> Candidates:
    return Candidates(theta[None], log_variance[None], (log_weight - np.logaddexp.reduce(log_weight))[None])
