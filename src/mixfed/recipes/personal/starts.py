"""Several starts of personal models, of which the best goes on: mixtures of mixed models have many maxima.

The starts are drawn from the mixed model of one kind: kinds are clients whose deviations it can only call large.
"""

import math
from collections.abc import Generator, Sequence

import numpy as np

from ...exchange.random_effects import RandomEffects, RandomEffectsReply, RandomEffectsSums, roots
from ...exchange.units import StandardUnits
from ..conversation import Talk
from ..updates import Penalty
from .climb import newton_rounds
from .fitted import Fitted, penalised_likelihood_of

_SIFTED, _KEPT = 6, 0.5
"""After so many rounds, this share of the starts goes on: earlier, the best may still look bad."""
_ROUNDS = 16
_HALF, _WOBBLE = 0.5, 0.3
"""Of the one kind's deviations, so much stays within each kind; kinds' log variances differ by so much."""


def drawn(units: StandardUnits, single: Fitted, k: int, count: int, rng: np.random.Generator) -> list[RandomEffects]:
    """Draw starts of k kinds: models as those of clients of the one kind, which deviate by half as much."""
    mixture = single.mixture
    root = roots(units, mixture.covariance[0], single.full)[0]
    starts = []
    for _ in range(count):
        wobble = rng.standard_normal((1, 1 if single.rules.shared_noise else k))
        noise = np.repeat(mixture.log_variance[:, :1], k, axis=1) + _WOBBLE * wobble
        theta = mixture.theta[0, 0] + rng.standard_normal((1, k, root.shape[1])) @ root.T
        covariance = np.repeat(_HALF * mixture.covariance, k, axis=1)
        starts.append(RandomEffects(theta, noise, np.full((1, k), -np.log(k)), covariance))
    return starts


def multi_start(
    units: StandardUnits,
    starts: Sequence[RandomEffects],
    full: bool,
    rules: Penalty,
    near: float,
    *,
    hurry: bool = False,
) -> Generator[RandomEffectsSums, RandomEffectsReply, Fitted]:
    """Improve several starts in the same exchanges, half of them to the end, and give the best: a conversation."""
    tracks = [
        Talk(newton_rounds(units, start, full, rules, near=near, hurry=hurry, rounds=_ROUNDS)) for start in starts
    ]
    best = dict.fromkeys(tracks, -np.inf)
    round_ = 0
    while going := [track for track in tracks if track.query is not None]:
        reply = yield _together([track.query for track in going])
        place = told = 0
        for track in going:
            size, some = len(track.query.candidates), len(track.query.informed)
            own = reply.pick(np.arange(place, place + size), range(told, told + some))
            best[track] = max(best[track], penalised_likelihood_of(track.query.candidates, own, rules).max())
            track.hear(own)
            place, told = place + size, told + some
        round_ += 1
        if round_ == _SIFTED:
            ranked = sorted(tracks, key=lambda track: -best[track])
            tracks = ranked[: max(2, math.ceil(_KEPT * len(ranked)))]
    found: list[Fitted] = [track.found for track in tracks]
    return max(found, key=lambda one: one.value)


def _together(queries: Sequence[RandomEffectsSums]) -> RandomEffectsSums:
    """Ask several queries as one about all their candidates."""
    offsets = np.cumsum([0, *(len(query.candidates) for query in queries)])
    informed = [offset + c for offset, query in zip(offsets, queries, strict=False) for c in query.informed]
    first = queries[0]
    return RandomEffectsSums(
        first.units,
        RandomEffects.stack([query.candidates for query in queries]),
        first.full,
        tuple(map(int, informed)),
        any(query.fisher for query in queries),
    )
