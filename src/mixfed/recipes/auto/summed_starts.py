"""The anchors' problem without anchors: the same search in the basis, every step of it a sum over clients.

Where no client may answer alone (``anchors = "summed"``), the server cannot try starts on its own. It asks about all of
them at once instead, in the few dimensions of the basis, so each exchange costs little; but each EM step costs one.
Starts come from the moments: in standard units the all-pairs moment matrix is the second moment of the kinds' models
over the clients, so models drawn from a normal distribution with that second moment have the right size and lie in the
right directions. Then kinds are merged and split where the clients of one differ most.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from ...core import draws
from ...core.arrays import Floats
from ...exchange.base import Query
from ...exchange.mixture import Candidates, MixtureReply, MixtureSums, SplitMoments
from ...exchange.units import StandardUnits
from ..updates import Penalty, distinct, maximise, penalised_likelihood, residual_variance
from .merge_split import splits
from .survey import Survey

_STARTS = 64
_STEPS = (8, 8, 10)
"""EM steps after each of which the better half of the candidates goes on."""
_LOOKS, _LOOK_STEPS, _VARIANTS = 4, 12, 16
"""Looks around the best, EM steps in each, variants tried in each."""
_WORTH = 0.01
"""A look that gains less is the last."""


def summed_candidates(
    survey: Survey, k: int, rules: Penalty, *, seed: int, keep: int
) -> Generator[Query[Any, Any], Any, tuple[Candidates, Penalty]]:
    """Search for mixtures of k kinds. Gives the best few, and the rules by which all mixtures of k kinds are judged."""
    basis = survey.basis[:, survey.columns(k)]
    units = survey.units.in_basis(basis)
    rng = draws.generator(seed, "summed starts", k)
    starts = drawn_starts(basis.T @ survey.moments @ basis, k, rng, rules.family.has_dispersion)
    field = _Field(starts, rules)
    for steps in _STEPS if k > 1 else _STEPS[:1]:
        yield from field.em_steps(units, steps)
        field.thin(max(keep, len(field.candidates) // 2))
    for _ in range(_LOOKS if k > 1 else 0):
        before = field.value[0]
        moments = yield SplitMoments(units, field.candidates.pick(0))
        made = splits(field.candidates.pick(0), field.reply.pick(0), moments.matrices(units.dim), _VARIANTS)
        if not made:
            break
        others = _Field(Candidates.stack(made), field.rules)
        yield from others.em_steps(units, _LOOK_STEPS)
        field.join(others)
        field.thin(keep)
        if field.value[0] < before + _WORTH:
            break
    best = maximise(field.candidates, field.reply, field.rules)
    return Candidates(best.theta @ basis.T, best.log_variance, best.log_weight), field.rules


class _Field:
    """Candidates and what clients said of them, best first."""

    value: Floats
    reply: MixtureReply

    def __init__(self, candidates: Candidates, rules: Penalty) -> None:
        self.candidates, self.rules = candidates, rules

    def em_steps(self, units: StandardUnits, steps: int) -> Generator[Query[Any, Any], Any, None]:
        """Take EM steps on all candidates; the rules follow what the best leaves."""
        for step in range(steps):
            if step:
                self.candidates = maximise(self.candidates, self.reply, self.rules)
            self.reply = yield MixtureSums(units, self.candidates)
            self.value = penalised_likelihood(self.candidates, self.reply, self.rules)
        left = residual_variance(self.reply, int(np.argmax(self.value)))
        self.rules = self.rules.fitting(left)
        self.value = penalised_likelihood(self.candidates, self.reply, self.rules)

    def thin(self, count: int) -> None:
        """Keep the best few that are not near copies."""
        order = distinct(self.candidates, self.value, 0.05)[:count]
        self.candidates, self.reply, self.value = self.candidates.pick(order), self.reply.pick(order), self.value[order]

    def join(self, other: _Field) -> None:
        """Take in other candidates."""
        self.candidates = Candidates.stack([self.candidates, other.candidates])
        self.reply = MixtureReply.stack([self.reply, other.reply])
        self.value = penalised_likelihood(self.candidates, self.reply, self.rules)


def drawn_starts(
    moments: Floats, k: int, rng: np.random.Generator, has_dispersion: bool, count: int = _STARTS
) -> Candidates:
    """Draw models from the second moment (r, r) of the kinds, all alike in weight and noise."""
    size, axes = np.linalg.eigh(moments)
    spread = axes * np.sqrt(np.maximum(size, 0.0))
    count = count if k > 1 else 1
    theta = rng.standard_normal((count, k, len(size))) @ spread.T
    if k == 1:
        theta[:] = 0.0
    noise = np.clip(1.0 - size[size > 0].sum(), 0.05, 1.0) if has_dispersion else 1.0
    return Candidates(theta, np.full((count, k), np.log(noise)), np.full((count, k), -np.log(k)))
