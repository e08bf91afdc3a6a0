"""A second look around a maximum: two kinds become one, another is split; kept if the likelihood gains."""

from collections.abc import Generator
from typing import Any

import numpy as np

from ...core.arrays import Floats
from ...exchange.base import Query
from ...exchange.mixture import Candidates, MixtureReply, SplitMoments
from ..updates import distinct
from .anchors import Anchors, thinned
from .refine import NEAR, Maximum, refine
from .survey import Survey


def look_again(
    survey: Survey, found: Maximum, rng: np.random.Generator, near: float = NEAR
) -> Generator[Query[Any, Any], Any, Maximum]:
    """Look for a better maximum around one: kinds merged and split, by the anchors and by the moments of all."""
    keep = survey.worth_asking(found.mixture.theta.shape[1])
    moments = yield SplitMoments(survey.units, found.mixture)
    split = splits(found.mixture, found.reply, moments.matrices(survey.units.dim), keep // 2)
    candidates = Candidates.stack([*split, _variants(survey, found, rng, keep)])
    if len(candidates) == 0:
        return found
    # It may be short of its own maximum, which is no other.
    promised = 2.0 * found.newton_decrement if np.isfinite(found.newton_decrement) else 0.0
    bar = found.value + promised + 1e-3
    better = yield from refine(survey.units, candidates, found.rules, incumbent=bar, home=found.mixture, near=near)
    return better or found


def _variants(survey: Survey, found: Maximum, rng: np.random.Generator, keep: int) -> Candidates:
    """Let the anchors, if there are any, say which variants of a mixture are worth a try."""
    if survey.anchors is None:
        return found.mixture.pick([])
    k = found.mixture.theta.shape[1]
    columns = survey.columns(k)
    anchors, basis = survey.anchors.within(columns).with_penalty(found.rules), survey.basis[:, columns]
    inside = Candidates(found.mixture.theta @ basis, found.mixture.log_variance, found.mixture.log_weight)
    base = anchors.em_steps(inside, 30, 1e-3)[1][0]
    few = anchors.sieve(k)
    made, value = thinned(few, variants(few, inside, rng, 24), 6, 1)
    made, value = anchors.em_steps(made.pick(distinct(made, value, 0.05)[:keep]), 25, 1e-3)
    other = [c for c in distinct(made, value, 0.05) if abs(value[c] - base) > 0.05][: (keep + 1) // 2]
    made = made.pick(np.array(other, dtype=int))
    return Candidates(made.theta @ basis.T, made.log_variance, made.log_weight)


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
        where = int(rng.integers(k))
        where = (where + 1) % k if where == gone else where
        variant = _begun_anew(mixture, clients, into, gone, where)
        misfit = membership[:, where] * np.maximum(losses[:, where] - anchors.least, 0.0) + 1e-12
        variant.theta[0, gone] = anchors.fits[rng.choice(len(misfit), p=misfit / misfit.sum())]
        made.append(variant)
    return Candidates.stack(made)


def splits(mixture: Candidates, reply: MixtureReply, moments: Floats, count: int) -> list[Candidates]:
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
            variant = _begun_anew(mixture, clients, into, gone, where)
            variant.theta[0, gone] += half
            variant.theta[0, where] -= half
            made.append(variant)
    return made


def _merges(overlap: Floats, clients: Floats, count: int) -> list[tuple[int | None, int]]:
    """Say which kind to give up: those that share most clients with another (into, gone), and the smallest (None)."""
    size = np.sqrt(np.maximum(np.diag(overlap), 1e-300))
    alike = overlap / np.outer(size, size)
    pairs = sorted(zip(*np.triu_indices(len(clients), 1), strict=True), key=lambda pair: -alike[pair])
    both = [(int(a), int(b)) for a, b in pairs[:count]]
    return [*both, *((b, a) for a, b in both), (None, int(np.argmin(clients)))]


def _begun_anew(mixture: Candidates, clients: Floats, into: int | None, gone: int, where: int) -> Candidates:
    """Let a kind go into another (or into none), and begin anew as half of the clients of the kind ``where``."""
    theta, log_variance, log_weight = (
        part[0].copy() for part in (mixture.theta, mixture.log_variance, mixture.log_weight)
    )
    if into is not None:
        share = np.maximum(clients[[into, gone]], 1e-12) / np.maximum(clients[[into, gone]], 1e-12).sum()
        theta[into] = share @ theta[[into, gone]]
        log_variance[into] = np.logaddexp.reduce(log_variance[[into, gone]] + np.log(share))
        log_weight[into] = np.logaddexp.reduce(log_weight[[into, gone]])
    theta[gone], log_variance[gone] = theta[where], log_variance[where]
    log_weight[[where, gone]] = log_weight[where] - np.log(2.0)
    return Candidates(theta[None], log_variance[None], (log_weight - np.logaddexp.reduce(log_weight))[None])
