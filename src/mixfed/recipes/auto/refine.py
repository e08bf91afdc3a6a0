"""Refinement on all clients: from candidates to the maximum of the likelihood, in few exchanges.

Each function here is a *conversation*: a generator that yields a query and is sent the reply. Whoever drives it decides
where the clients live, and can lead several conversations (one for each number of kinds, say) through shared
exchanges with `converse`.

A few EM steps on all candidates at once show which are worth more. The best go on with Newton steps: from the
observed information, at several dampings, all asked about in one exchange, with the EM step among them as the one that
cannot fail (`refine`). Near its maximum the winner goes on alone with full Newton steps (`polish`). So the maximum is
reached to rounding in about ten exchanges, where EM would need hundreds; and where there are more clients than it takes
to tell candidates apart, only the last few exchanges ask them all.
"""

import dataclasses
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.arrays import Floats, Ints
from ...core.errors import SettingsError
from ...exchange.local_update import ModelSum, Update
from ...exchange.mixture import Candidates, LocalStep, MixtureReply, MixtureSums
from ...exchange.units import StandardUnits
from ...model.fit import Stop
from ..updates import (
    Penalty,
    distinct,
    maximise,
    nearby,
    newton,
    penalised_likelihood,
    penalties,
    residual_variance,
)

EM_ROUNDS = 4
_KEPT = (1.0, 1.0, 0.75, 0.5)
"""Share of the candidates that goes on after each EM round."""
_PATIENCE = 20.0
"""A candidate goes on if so many gains like its last would bring it to the best."""
_RUNNERS = (6, 4, 4, 3, 3, 2)
"""Candidates that go on after each Newton round, at most."""
MANY = 160
"""From so many parameters on, information is dear: it is asked for the leader only, at fewer dampings."""
_DAMPINGS = (0.8, 0.97, 1.0)
_DAMPINGS_MANY = (0.9, 1.0)
_MOST_ROUNDS = 20
_MOST_HARD_ROUNDS = 500
NEAR = 0.05
"""Newton's promise, in units of log likelihood, below which a mixture is near enough to its maximum to be judged."""
CONVERGED = 1e-9
"""The same, below which it is at its maximum."""
EXACT = 1e-13
"""The same, below which the step after it leads to the maximum to rounding, whatever way led there."""
MOST_POLISH = 12
_CLOSE = 0.02
"""Once Newton has promised less than this for each parameter (a fifth of a standard error), the curvature no longer
changes by anything that matters."""


@dataclass(frozen=True, eq=False)
class Maximum:
    """A mixture at its maximum, and what all clients said of it."""

    mixture: Candidates
    """One candidate."""
    value: float
    likelihood: float
    reply: MixtureReply
    """The sums at the mixture, for one candidate."""
    rules: Penalty
    """By which it was judged."""
    newton_decrement: float
    """What another Newton step would promise."""
    stop: Stop = Stop.ROUNDS
    next_step: Candidates | None = None
    """Where that step leads."""


def refine(
    units: StandardUnits,
    candidates: Candidates,
    rules: Penalty,
    *,
    incumbent: float = -np.inf,
    home: Candidates | None = None,
    em_rounds: int = EM_ROUNDS,
    near: float = NEAR,
) -> Generator[MixtureSums, MixtureReply, Maximum | None]:
    """Bring the best candidate near its maximum; None if none gets above the value of an incumbent.

    Candidates that come ``home``, to a mixture whose maximum is known, are given up.
    """
    candidates, value = yield from _warm_up(units, candidates, rules, em_rounds, incumbent, home)
    if len(candidates) == 0:
        return None
    _, k, dim = candidates.theta.shape
    many = k * (dim + 2) > MANY
    field = _Field(candidates, np.arange(len(candidates)), value, (0,) if many else tuple(range(len(candidates))))
    best = leader = None
    for round_ in range(_MOST_ROUNDS):
        reply = yield MixtureSums(units, field.trials, field.informed)
        runners = _rank(field, reply, _DAMPINGS_MANY if many else _DAMPINGS, rules)
        leader = runners[0].found
        for runner in runners:
            if runner.found.newton_decrement < near and (best is None or runner.found.value > best.value):
                best = dataclasses.replace(runner.found, next_step=runner.steps.pick([-1]))
        bar = max(leader.value, incumbent, best.value if best else -np.inf)
        going = [
            runner
            for runner in runners
            if runner.found.newton_decrement >= near and _has_hope(runner, runner is runners[0], bar, round_)
            if home is None or not nearby(runner.found.mixture, home)[0]
        ][: _RUNNERS[min(round_, len(_RUNNERS) - 1)]]
        if not going:
            break
        field = _next_field(going, maximise(field.trials, reply, rules), many)
    end = best or leader
    return end if end is not None and end.value > incumbent else None


def polish(
    units: StandardUnits, found: Maximum, *, elsewhere: bool = False, steps: int = MOST_POLISH
) -> Generator[MixtureSums, MixtureReply, Maximum]:
    """Take full Newton steps from near the maximum, and let the rules follow from the mixture itself.

    So the result does not depend on which clients first made the rules. Close to the maximum the curvature is known
    from the step before and only scores are asked for, half of the work. Where a step fails, EM and damped steps help.
    If the mixture was found ``elsewhere``, with other clients, their curvature is good enough for the first step. With
    fewer ``steps`` the result may be short of the maximum.
    """
    start = mixture = found.mixture if found.next_step is None else found.next_step
    rules, before, last = found.rules, -np.inf, np.inf if elsewhere else found.newton_decrement
    curved = found.reply if elsewhere and len(found.reply.missing) else None
    # Where the likelihood is not quadratic the curvature is never that of before: a step by it would not be exact.
    numbers = start.theta.size + start.log_variance.size + start.log_weight.size
    close = _CLOSE * numbers if rules.family.quadratic else 0.0
    for step in range(steps):
        if curved is not None and (step == 0 or last < close):
            reply = yield MixtureSums(units, mixture, curvature=False)
            times = reply.rows.sum() / curved.rows.sum()
            reply = dataclasses.replace(reply, gram=times * curved.gram, missing=times * curved.missing)
        else:
            reply = yield MixtureSums(units, mixture, (0,))
        rules = rules.fitting(residual_variance(reply, 0))
        value = float(penalised_likelihood(mixture, reply, rules)[0])
        ahead, newton_decrement = newton(mixture, reply, 0, reply.missing[0], (1.0,), rules)
        next_ = ahead if len(ahead) else None
        found = Maximum(mixture, value, float(reply.likelihood[0]), reply, rules, newton_decrement, next_step=next_)
        if next_ is None or value < before - 1.0:
            if steps < MOST_POLISH:
                break
            rounds = EM_ROUNDS if rules.family.quadratic else 0
            helped = yield from refine(units, Candidates.stack([start, mixture]), rules, em_rounds=rounds)
            if helped is None or helped.next_step is None:
                found = helped or found
                break
            mixture, before, last, curved = helped.next_step, helped.value, helped.newton_decrement, None
            continue
        # The promise falls with the square of itself, so the one after the next step is known before it is taken.
        enough = CONVERGED if rules.family.rescales else EXACT  # another place may have come by another way
        bound = rules.family.quadratic and newton_decrement**3 < CONVERGED * last**2 < np.inf
        if newton_decrement < enough or (newton_decrement < NEAR and bound):
            value += newton_decrement  # what the last step gains, to more digits than matter
            likelihood = value + float(penalties(ahead, rules)[0])
            return dataclasses.replace(found, mixture=ahead, value=value, likelihood=likelihood, stop=Stop.MAXIMUM)
        curved = None if newton_decrement > 0.1 * last else reply  # slow: it has changed after all
        mixture, before, last = ahead, value, newton_decrement
    return found


def refine_hard(
    units: StandardUnits, candidates: Candidates, rules: Penalty
) -> Generator[MixtureSums, MixtureReply, Maximum]:
    """Alternate hard labels and exact models until the best candidate's labels no longer change.

    After a few rounds the best goes on alone, and only clients that changed their kind are asked to sum anew.
    """
    stop, gram, since = Stop.ROUNDS, np.zeros(()), None
    for round_ in range(_MOST_HARD_ROUNDS):
        reply = yield MixtureSums(units, candidates, hard=True, since=since)
        settled = since is not None and not reply.gram.any()
        reply = dataclasses.replace(reply, gram=reply.gram + gram)
        value = penalised_likelihood(candidates, reply, rules)
        best = int(np.argmax(value))
        moved = maximise(candidates, reply, rules)
        if settled or np.abs(moved.theta[best] - candidates.theta[best]).max() < 1e-12:
            stop = Stop.LABELS
            break
        if round_ >= EM_ROUNDS:
            moved = moved.pick(best)
            if rules.family.quadratic:  # else second moments depend on the models
                gram, since = reply.gram[[best]], candidates.pick(best)
        candidates = moved
    said = reply.pick(best)
    return Maximum(candidates.pick(best), float(value[best]), float(said.likelihood[0]), said, rules, np.inf, stop)


def refine_locally(
    units: StandardUnits, mixture: Candidates, update: Update, rounds: int, rules: Penalty
) -> Generator[LocalStep | MixtureSums, Any, Maximum]:
    """Let clients move their own copies of the models (FedAvg, FedProx) and average them within each kind.

    Each kind is divided by its own mass, so the pace does not depend on its share, as the paper's would. Only the last
    exchange asks for d x d sums: for the standard errors.
    """
    stop, best = Stop.ROUNDS, -np.inf
    for _ in range(rounds):
        reply: ModelSum = yield LocalStep(units, mixture, update, hard=False)
        best = max(best, reply.likelihood)
        if not np.isfinite(reply.likelihood) or reply.likelihood < best - abs(best):
            raise SettingsError(f"the local updates diverge at step = {update.step:g}: take a smaller step")
        mass = np.maximum(reply.mass, 1e-12)
        pull = update.step * update.local_steps * rules.ridge * mixture.theta[0]
        shift = (reply.shift - pull) / mass[:, None]
        squares = 2.0 * (np.full_like(mass, reply.loss.sum() / mass.sum()) if rules.shared_noise else reply.loss / mass)
        share = np.maximum(reply.clients / reply.clients.sum(), 1e-7)
        log_variance = np.log(np.maximum(squares, rules.prior_variance / reply.rows))[None]
        mixture = Candidates(
            mixture.theta + shift[None],
            log_variance if rules.family.has_dispersion else mixture.log_variance,
            np.log(share / share.sum())[None],
        )
        if np.abs(shift).max() < 1e-9:
            stop = Stop.STILL
            break
    final: MixtureReply = yield MixtureSums(units, mixture, (0,))
    value = float(penalised_likelihood(mixture, final, rules)[0])
    return Maximum(mixture, value, float(final.likelihood[0]), final, rules, np.inf, stop)


def _warm_up(
    units: StandardUnits, candidates: Candidates, rules: Penalty, rounds: int, incumbent: float, home: Candidates | None
) -> Generator[MixtureSums, MixtureReply, tuple[Candidates, Floats]]:
    """Take EM steps on all candidates and keep the best, ever fewer. -> candidates, their values one step ago."""
    count = len(candidates)
    value: Floats = np.full(count, -np.inf)
    for round_ in range(rounds):
        reply = yield MixtureSums(units, candidates)
        before, value = value, penalised_likelihood(candidates, reply, rules)
        candidates = maximise(candidates, reply, rules)
        order = distinct(candidates, value, 0.05 if round_ else 0.0)
        order = order[: max(4, int(np.ceil(count * _KEPT[round_])))]
        if round_:
            hope = value + _PATIENCE * np.maximum(value - before, 1.0)
            order = order[hope[order] > max(value.max(), incumbent)]
        if home is not None:
            order = order[~nearby(candidates.pick(order), home)]
        candidates, value = candidates.pick(order), value[order]
        if len(candidates) == 0:
            break
    return candidates, value


@dataclass(frozen=True, eq=False)
class _Field:
    """What one exchange asks about: trials, each of a runner that was somewhere before."""

    trials: Candidates
    owner: Ints
    """(C,): whose trial it is."""
    before: Floats
    """(runners,): the value where each was."""
    informed: tuple[int, ...]
    """Trials whose missing information is asked for."""


@dataclass(frozen=True, eq=False)
class _Runner:
    """Where the best trial of a runner led."""

    place: int
    """Of that trial in the exchange."""
    found: Maximum
    steps: Candidates
    """Newton's steps from there."""
    gain: float


def _rank(field: _Field, reply: MixtureReply, dampings: tuple[float, ...], rules: Penalty) -> list[_Runner]:
    """Take each runner's best trial; of runners that met, one. The best comes first."""
    value = penalised_likelihood(field.trials, reply, rules)
    own = [np.flatnonzero(field.owner == runner) for runner in np.unique(field.owner)]
    firsts = np.array([trials[np.argmax(value[trials])] for trials in own])
    ranked = []
    for c in firsts[distinct(field.trials.pick(firsts), value[firsts], 0.01)].tolist():
        said = reply.pick(c, [field.informed.index(c)] if c in field.informed else [])
        steps, newton_decrement = field.trials.pick([]), np.inf
        if len(said.missing):
            informed, halved = said.missing[0], not rules.family.quadratic
            steps, newton_decrement = newton(field.trials, reply, c, informed, dampings, rules, halved)
        found = Maximum(
            field.trials.pick(c), float(value[c]), float(reply.likelihood[c]), said, rules, newton_decrement
        )
        ranked.append(_Runner(c, found, steps, float(value[c] - field.before[field.owner[c]])))
    return ranked


def _has_hope(runner: _Runner, leads: bool, bar: float, round_: int) -> bool:
    """Say whether a runner may yet be the best: by what Newton promises, or else by its last gain."""
    found = runner.found
    if leads and found.value >= bar:
        return True
    promise = (
        found.newton_decrement if np.isfinite(found.newton_decrement) else _PATIENCE * max(runner.gain, 0.0) + 1e-3
    )
    return found.newton_decrement > 1e-6 and found.value + (10.0 if round_ < 4 else 3.0) * promise > bar + 1e-3


def _next_field(going: list[_Runner], climbed: Candidates, many: bool) -> _Field:
    """Give each runner its EM step and its Newton steps to try."""
    parts: list[Candidates] = []
    owner: list[int] = []
    informed: list[int] = []
    for rank, runner in enumerate(going):
        steps = runner.steps
        if len(steps) and runner.found.newton_decrement <= 1e-3:
            steps = steps.pick([-1])  # so near the maximum the full step is the one
        if not many or (rank == 0 and len(steps) == 0):
            informed.append(len(owner))
        informed += range(len(owner) + 1, len(owner) + 1 + len(steps))
        parts += [climbed.pick(runner.place), steps]
        owner += [rank] * (1 + len(steps))
    before = np.array([runner.found.value for runner in going])
    return _Field(Candidates.stack(parts), np.array(owner), before, tuple(informed))
