"""The search of the tuning-free recipe: refinements for all numbers of kinds, and which of them is best.

for each k: propose -> refine -> BIC -> for the best k: refine, look again
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ...core import draws
from ...core.arrays import Floats
from ...exchange.base import Query, T
from ...exchange.local_update import Update
from ...exchange.mixture import Candidates, MixtureReply, MixtureSums
from ...exchange.pool import Sample
from ...exchange.random_effects import RandomEffectsReply, RandomEffectsSums
from ...exchange.units import StandardUnits
from ...families.student import Student
from ...model.fit import TOO_FEW
from ..bic import bic
from ..conversation import Conversation, converse
from ..recorder import Recorder
from ..settings import AutoSettings
from ..standardise import from_user
from ..updates import Penalty
from .anchor_starts import anchor_candidates
from .degrees import FIRST_DEGREES, find_degrees
from .info import Info
from .merge_split import look_again
from .refine import NEAR, Maximum, polish, refine, refine_hard, refine_locally
from .summed_starts import drawn_starts, summed_candidates
from .survey import Survey

if TYPE_CHECKING:
    from ..personal.fitted import Fitted

_FIRST_LOOK = 4
"""Numbers of kinds tried at once to begin with; then as many as it takes to see that more are worse."""
_CLIENTS_PER_KIND = 5
"""When the number of kinds is to be found, there are at most as many as give each so many clients."""
_LEAST_CLIENTS, _LEAST_ROWS = 3, 2
"""A kind that counts has so many clients, and so many rows for each coefficient and its noise."""
_TRIAL_ROUNDS = 5
"""Rounds of local updates that show which candidate to go on with."""
_BUDGET = 24
_LOOK_EXCHANGES = 11
"""Another look is taken while it, and what comes after, is likely to end within the budget: 30 exchanges, of which the
survey takes 4, and a federation one to enrol its sites and one to give them the model."""
_DRAWN = 6
"""Mixtures drawn from the moments, beside those that anchors propose, where the likelihood is not quadratic."""
_NEXT_DEGREES = 0.05
"""First step of log nu where a sample has told it."""
_STRIDE = 4.0
"""From the clients who were searched, a step leads over so many times as many to all of them."""
PATIENCE = 2
"""So many numbers of kinds beyond the best must be worse before the search ends."""


class Selection:
    """The refinements of one fit, for all numbers of kinds."""

    def __init__(
        self, run: Recorder, survey: Survey, settings: AutoSettings, seed: int, n_clusters: int | None = None
    ) -> None:
        self.run, self.survey, self.settings, self.seed = run, survey, settings, seed
        self.n_clusters = n_clusters
        """As many kinds as the caller wants; None if that is to be found."""
        self.scanned: dict[int, Maximum] = {}
        self.sample: Sample | None = None
        """Clients asked while candidates are sought; None for all."""
        self.searched_clients = 0
        """How many these were."""
        self.exchanges = 0
        """Exchanges of the search: those of the recipe, wherever the clients live."""

    def choose(self, most: int) -> None:
        """Fit ever more kinds, several numbers in the same exchanges, until more of them are worse."""
        most = self.supported(most)
        tried, wanted = 0, _FIRST_LOOK
        while tried < most and wanted > 0:
            ks = range(tried + 1, min(tried + wanted, most) + 1)
            self.scan(ks)
            tried = ks[-1]
            wanted = PATIENCE - (tried - self.best())

    def scan(self, ks: Iterable[int]) -> None:
        """Fit numbers of kinds, near enough to compare them."""
        self.sample = self.survey.scanned()
        results = self.converse("kinds", [self._quick(k) for k in ks], self.sample)
        self.scanned |= {k: found for k, found in zip(ks, results, strict=True) if found is not None}

    def supported(self, most: int) -> int:
        """Give the most kinds that the data could tell: some clients for each, and more rows than parameters."""
        census = self.survey.census
        rows = census.n_rows // (3 * (self.survey.units.dim + 2))
        return max(1, min(most, census.n_clients // _CLIENTS_PER_KIND, rows))

    def best(self) -> int:
        """Give the number of kinds with the best BIC, of those whose every kind is one.

        Once there are enough to leave nothing but rounding, more would only tell roundings apart.
        """
        sound = sorted(filter(self.enough_data, self.scanned))
        exact = (k for k in sound if self.survey.is_exact(self.scanned[k].reply))
        return next(exact, None) or min(sound, key=lambda k: self.bic(self.scanned[k]))

    def more_kinds(self, found: Maximum, most: int, start: Floats | None) -> Maximum:
        """See whether all clients tell more kinds apart than the sample, if it was one, did."""
        soft = self.settings.local_update is None and not self.settings.hard
        if self.survey.scanned() is None or not soft:
            return found
        for k in range(found.mixture.theta.shape[1], self.supported(most)):
            if k + 1 not in self.scanned:
                self.scan([k + 1])
            wider = self.scanned[k + 1]
            more = self._parameters(wider) - self._parameters(found)
            bar = found.value + 0.5 * bic(0.0, more, float(found.reply.rows[0].sum()))
            another = refine(self.survey.units, wider.mixture, wider.rules, incumbent=bar, em_rounds=2)
            better = self.one("kinds", another)
            if better is None or not self.has_enough_data(better.reply):
                break
            found = self.finish(k + 1, start)
        return found

    def tried(self) -> list[dict[str, Any]]:
        """Say which numbers of kinds were tried, for the model's details."""
        return [
            {
                "n_clusters": k,
                "likelihood": self.likelihood(one),
                "bic": self.bic(one),
                "rows": round(float(one.reply.rows.sum())),
                "reason": "" if self.enough_data(k) else TOO_FEW,
                "sound": self.enough_data(k),
            }
            for k, one in sorted(self.scanned.items())
        ]

    def enough_data(self, k: int) -> bool:
        """Say whether each of k kinds has clients and rows enough to be more than a chance likeness."""
        return k == 1 or self.has_enough_data(self.scanned[k].reply)

    def has_enough_data(self, reply: MixtureReply | RandomEffectsReply) -> bool:
        """Say so by what was said of a mixture."""
        clients, rows = reply.clients.min(), reply.rows.min()
        return bool(clients >= _LEAST_CLIENTS and rows >= _LEAST_ROWS * (self.survey.units.dim + 1))

    def bic(self, found: Maximum) -> float:
        """Give the criterion of a maximum among the clients that were asked about it."""
        return bic(self.likelihood(found), self._parameters(found), float(found.reply.rows[0].sum()))

    def _parameters(self, found: Maximum) -> int:
        """Count the free numbers of a mixture."""
        k, dim = map(int, found.mixture.theta.shape[1:])
        noises = (1 if self.settings.shared_noise else k) if found.rules.family.has_dispersion else 0
        return k * dim + noises + k - 1 + isinstance(found.rules.family, Student)

    def finish(self, k: int, start: Floats | None, *, everyone: bool = True) -> Maximum:
        """Refine k kinds to the maximum and look around it; unless ``everyone`` is asked, it is that of a sample."""
        units, settings, survey = self.survey.units, self.settings, self.survey
        self.sample = None if survey.anchors is not None else survey.scanned()
        proposed, rules = self.one("summed starts", self._propose(k, quick=False), self.sample)
        before = self.exchanges
        candidates = [proposed]
        if k in self.scanned:
            candidates.append(self.scanned[k].mixture)
        if start is not None and start.ndim == 2 and len(start) == k:
            candidates.append(_levelled(units, start))
        if not rules.family.rescales and k > 1:  # the anchors' expansions may mislead
            candidates.append(self._drawn(k))
        batch = Candidates.stack(candidates)
        self.sample = None
        if settings.local_update is not None:
            return self._locally(batch, settings.local_update, rules)
        if settings.hard:
            return self.one("refine", refine_hard(units, batch, rules))
        self.sample = survey.searched(proposed, rules)
        found = self.one("refine", refine(units, batch, rules, near=self._near()), self.sample)
        assert found is not None  # without an incumbent, one of them wins
        rng = draws.generator(self.seed, "second look", k)
        while k > 1 and self.exchanges - before + _LOOK_EXCHANGES <= _BUDGET:
            better = self.one("second look", look_again(survey, found, rng, self._near()), self.sample)
            if better is found:
                break
            found = better
        if self.sample is None:
            return self._with_degrees(self.one("refine", polish(units, found)))
        if not everyone:
            return found
        found = self._with_degrees(found, self.sample)
        units, rules = self._units_of(found), found.rules
        more = survey.design.draw(_STRIDE * self.sample.share * survey.design.n_rows)
        if more is not None:  # a step on the way from few clients to all
            if rules.family.quadratic:
                found = self.one("refine", polish(units, found, steps=1), more)
            else:  # the sample's maximum is farther from that of all, and one step is no way there
                climbed = self.one("refine", refine(units, found.mixture, rules, em_rounds=0, near=self._near()), more)
                found = climbed or found
        return self._with_degrees(self.one("refine", polish(units, found, elsewhere=True)), first=_NEXT_DEGREES)

    def _with_degrees(self, found: Maximum, who: Sample | None = None, first: float = FIRST_DEGREES) -> Maximum:
        """Find the degrees of freedom, if the family has any."""
        if not isinstance(found.rules.family, Student):
            return found
        return self.one("degrees", find_degrees(self.survey.units, found, first), who)

    def _units_of(self, found: Maximum) -> StandardUnits:
        """Give the units with the degrees of freedom that were found."""
        if not isinstance(found.rules.family, Student):
            return self.survey.units
        return dataclasses.replace(self.survey.units, family=found.rules.family.wire_name)

    def _drawn(self, k: int) -> Candidates:
        """Draw a few mixtures from the second moment of the kinds."""
        basis = self.survey.basis[:, self.survey.columns(k)]
        rng = draws.generator(self.seed, "drawn starts", k)
        drawn = drawn_starts(basis.T @ self.survey.moments @ basis, k, rng, False, _DRAWN)
        return dataclasses.replace(drawn, theta=drawn.theta @ basis.T)

    def _near(self) -> float:
        """Say how near to its maximum a mixture is to be judged: a sample's need not be met to the digit."""
        return NEAR if self.sample is None else 20.0 * NEAR

    def _locally(self, batch: Candidates, update: Update, rules: Penalty) -> Maximum:
        """Try each candidate for a few rounds of local updates, then go on with the best."""
        units, rounds = self.survey.units, self.settings.refine_rounds
        # So that a step means the same whatever a row tells.
        update = dataclasses.replace(update, step=update.step / self.survey.mean_weight)
        tries = [refine_locally(units, batch.pick(c), update, _TRIAL_ROUNDS, rules) for c in range(len(batch))]
        best = max(self.converse("local updates", list(tries)), key=lambda found: found.value)
        return self.one("local updates", refine_locally(units, best.mixture, update, rounds, rules))

    def likelihood(self, found: Maximum | Fitted) -> float:
        """Log likelihood in the target's units, with all constants."""
        return self._in_units(found.likelihood, found.reply)

    def _in_units(self, likelihood: float, asked: MixtureReply | RandomEffectsReply) -> float:
        """Give a log likelihood of standard units in the target's, with all constants."""
        return float(likelihood - asked.rows[0].sum() * np.log(self.survey.units.scale))

    def _quick(self, k: int) -> Conversation:
        """Fit k kinds near enough."""
        candidates, rules = yield from self._propose(k, quick=True)
        return (yield from refine(self.survey.units, candidates, rules))

    def _propose(self, k: int, *, quick: bool) -> Generator[Query[Any, Any], Any, tuple[Candidates, Penalty]]:
        """Search for candidates: by the anchors, which takes no exchange, or by sums."""
        if self.survey.anchors is not None:
            found, rules = anchor_candidates(self.survey, k, seed=self.seed, quick=quick)
            return found, dataclasses.replace(rules, family=self.survey.rules.family)
        rules, keep = self.survey.rules, self.survey.worth_keeping(k, quick)
        return (yield from summed_candidates(self.survey, k, rules, seed=self.seed, keep=keep))

    def one(self, phase: str, conversation: Generator[Query[Any, Any], Any, T], who: Sample | None = None) -> T:
        """Lead one conversation."""
        return cast(T, self.converse(phase, [conversation], who)[0])

    def converse(self, phase: str, conversations: list[Conversation], who: Sample | None = None) -> list[Any]:
        """Lead conversations side by side, and report every exchange."""
        round_ = 0
        last: tuple[StandardUnits, Floats] | None = None

        def report(queries: Sequence[Query[Any, Any]], replies: Sequence[Any]) -> None:
            nonlocal round_, last
            round_ += 1
            self.exchanges += 1
            said = [
                (query, reply)
                for query, reply in zip(queries, replies, strict=True)
                if isinstance(query, MixtureSums | RandomEffectsSums)
            ]
            if said and self.sample == who:
                self.searched_clients = round(float(said[0][1].clients[0].sum()))
            info = Info()
            if said:
                info = Info(
                    max(self._in_units(reply.likelihood.max(), reply) for _, reply in said),
                    sum(len(reply.likelihood) for _, reply in said),
                    round(float(said[0][1].rows[0].sum())),
                )
            if len(said) == 1:
                (query, reply), before = said[0], last
                last = query.units, query.candidates.theta[np.argmax(reply.likelihood)]
                if before is not None and before[0] is last[0]:  # else in other units
                    gaps = np.linalg.norm(last[1][:, None] - before[1][None], axis=2)
                    info = dataclasses.replace(info, movement=float(gaps.min(axis=1).max()))
            self.run.report(phase, round_, 0, info)

        return converse(self.run.pool, conversations, report, who)


def _levelled(units: StandardUnits, start: Floats) -> Candidates:
    """Make a candidate of the caller's models, all alike in weight and noise."""
    k = len(start)
    return Candidates(from_user(units, start)[None], np.zeros((1, k)), np.full((1, k), -np.log(k)))
