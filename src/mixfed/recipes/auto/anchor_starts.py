"""Candidates from the anchors: their problem is solved on the server from many starts, which costs no exchange."""

import numpy as np

from ...core import draws
from ...core.arrays import Floats
from ...core.threads import side_by_side
from ...exchange.mixture import Candidates
from ...kernels import plain
from ..updates import PRIOR_SHARE, Penalty, distinct, maximise, residual_variance
from .anchors import Anchors, thinned
from .merge_split import variants
from .survey import Survey

STARTS = 15
"""Starts seeded from anchors' own fits; a third as many more start from random memberships."""
AGREE = 0.8
"""If as many as this share of a quarter of the starts end in the best place, nothing is looked for around it."""
MORE = 4
"""Times that as many starts again are made while fewer agree."""
LOOKS = 4
MOVES = 48
"""Variants tried in each look around the best."""


def settle(anchors: Anchors, k: int, rng: np.random.Generator) -> Penalty:
    """Find what a good mixture of k models leaves, roughly, and the rules that fit it."""
    if k == 1 or not anchors.rules.family.has_dispersion:
        return anchors.rules
    candidates, rules = _levelled(anchors, _spread_seeds(anchors, k, 8, rng)), anchors.rules
    for _ in range(4):
        judged = anchors.with_penalty(rules)
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
    candidates, value = anchors.em_steps(candidates.pick(distinct(candidates, value, 0.05)[: max(keep, 10)]), 40, 1e-3)
    if not agreed:
        candidates, value = _look_around(anchors, few, candidates, value, rng, 1 if quick else LOOKS)
    return candidates.pick(distinct(candidates, value, 0.05)[:keep])


def _agreeing(value: Floats) -> int:
    return int(np.sum(value > value.max() - 1.0))


def _many_starts(anchors: Anchors, few: Anchors, k: int, rng: np.random.Generator) -> tuple[Candidates, Floats]:
    """Climb from many starts, at first on few anchors. -> the best quarter, and their values."""
    seeds = [_levelled(few, _spread_seeds(few, k, STARTS, rng)), _random_starts(few, k, STARTS // 3, rng)]
    return anchors.em_steps(thinned(few, Candidates.stack(seeds), 8, 2)[0], 9, 0.01)


def _look_around(
    anchors: Anchors, few: Anchors, candidates: Candidates, value: Floats, rng: np.random.Generator, looks: int
) -> tuple[Candidates, Floats]:
    """Try variants of the best, at first on few anchors, until they bring nothing new."""
    for look in range(looks):
        best = value.max()
        leaders = distinct(candidates, value, 0.05)[: 2 if look == 0 else 1]
        made = [variants(few, candidates.pick(c), rng, MOVES // len(leaders)) for c in leaders]
        fresh, fresh_value = thinned(few, Candidates.stack(made), 6, 2)
        fresh, fresh_value = anchors.em_steps(fresh.pick(distinct(fresh, fresh_value, 0.05)[:6]), 30, 1e-3)
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
        tries = plain.drawn(np.cumsum(excess, axis=0), rng.random((starts, 3)))
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
    if not anchors.rules.family.has_dispersion:
        return Candidates(theta, np.zeros((count, k)), np.full((count, k), -np.log(k)))
    losses = anchors.losses(theta.reshape(count * k, dim)).reshape(-1, count, k).min(axis=2).sum(axis=0)
    log_variance = np.log((losses + 1.0) / (anchors.rows.sum() + 1.0))
    return Candidates(theta, np.repeat(log_variance[:, None], k, axis=1), np.full((count, k), -np.log(k)))


def anchor_candidates(survey: Survey, k: int, *, seed: int, quick: bool) -> tuple[Candidates, Penalty]:
    """Search the anchors for mixtures of k kinds: counted so that they stand for all clients, and as they are.

    Gives also the rules by which all mixtures of k kinds are judged.
    """
    anchors = survey.anchors
    assert anchors is not None
    keep, columns = survey.worth_keeping(k, quick), survey.columns(k)
    inside = anchors.within(columns)
    rules = settle(inside.with_weights(survey.anchor_weights).sieve(k), k, draws.generator(seed, "rules", k))

    views = {"starts": survey.anchor_weights} | ({} if quick else {"other starts": anchors.weight})

    def look(view: str) -> Candidates:
        rng = draws.generator(seed, view, k)
        return search(inside.with_weights(views[view]).with_penalty(rules), k, rng, max(2, keep // 2), quick=quick)

    reduced = Candidates.stack(list(side_by_side(look, views)))
    theta = reduced.theta @ survey.basis[:, columns].T
    return Candidates(theta, reduced.log_variance, reduced.log_weight), rules
