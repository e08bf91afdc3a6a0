"""The way to the maximum of personal models: conversations, as those of `refine` are for plain mixtures.

`newton_rounds` takes Newton's steps at several h, with EM among the trials, all in one exchange. From what a sample
found `polish_random_effects` goes on with all clients, of whom it asks scores for the most part.
"""

import dataclasses
from collections.abc import Generator, Sequence

import numpy as np

from ...core.symmetric import packed
from ...exchange.mixture import Candidates
from ...exchange.random_effects import RandomEffects, RandomEffectsReply, RandomEffectsSums
from ...exchange.units import StandardUnits
from ...model.fit import Stop
from ..auto.refine import MANY, NEAR
from ..updates import Penalty
from .fitted import Fitted, penalised_likelihood_of
from .updates import OBSERVED_SHARE, em_step, learned, newton_steps

_SHARES = (0.05, 0.4, 0.8)
"""Shares of a kind's variance that start as deviations."""
_SHORTER = (0.4, 0.1, 0.02)
"""Where no step is better, so much of it is tried."""
POLISHED = 5e-4
"""The same for each parameter where the curvature is borrowed: they are then off by a fiftieth of a standard error or
so."""
_MOST_ROUNDS, _MOST_POLISH = 30, 10
_STEADY = 0.3
"""Where the promise falls by less than this, the curvature is asked for anew."""
_FOLLOWED, _SETTLED = 4, 1e-6
"""Times that the rules are adapted to the noise in the last step, unless they change by less than a share for each row:
the more rows there are, the less the step depends on them."""
_ROUNDING = 1e-7
"""A loss of less likelihood than that is no loss."""


def started(units: StandardUnits, mixture: Candidates, full: bool) -> RandomEffects:
    """Make candidates of a plain mixture: some of each kind's variance becomes deviations, alike in all directions."""
    dim = mixture.theta.shape[2]
    variance = np.exp(mixture.log_variance[0])
    live = units.inverse_sd > 0
    unit = packed(np.eye(dim)) / dim if full else live / live.sum()
    parts = [
        RandomEffects(
            mixture.theta[:1],
            np.log((1.0 - share) * variance)[None],
            mixture.log_weight[:1],
            (share * variance[:, None] * unit)[None],
        )
        for share in _SHARES
    ]
    return RandomEffects.stack(parts)


def newton_rounds(
    units: StandardUnits,
    start: RandomEffects,
    full: bool,
    rules: Penalty,
    *,
    near: float = NEAR,
    alone: bool = False,
    hurry: bool = False,
    rounds: int = _MOST_ROUNDS,
) -> Generator[RandomEffectsSums, RandomEffectsReply, Fitted]:
    """Bring the best of some candidates near its maximum: a conversation, see `refine`.

    ``alone`` starts with Newton's full step only, as is right near the maximum, until it fails. In a ``hurry``, it is
    enough that a round gains as little as Newton may promise, and EM is asked about only where Newton's step fails.
    """
    _, k, dim = start.theta.shape
    many = k * (dim + 2 + start.covariance.shape[2]) > MANY  # then it is asked for one trial only
    trials, informed = start, () if (many or hurry) and len(start) > 1 else tuple(range(len(start)))
    best: Fitted | None = None
    fisher = True
    for _ in range(rounds):
        reply = yield RandomEffectsSums(units, trials, full, informed, fisher)
        value = penalised_likelihood_of(trials, reply, rules)
        c = int(np.argmax(value))
        gain = np.inf if best is None else float(value[c] - best.value)
        if gain > 0:
            if c not in informed:
                trials, informed, c = trials.pick(c), (0,), 0
                reply = yield RandomEffectsSums(units, trials, full, informed, fisher)
            said, last = reply.pick(c, [informed.index(c)]), np.inf if best is None else best.newton_decrement
            if best is not None and not fisher:
                said = _borrowed(said, best.reply, ("expected",))
            best = Fitted(trials.pick(c), full, float(value.max()), float(said.likelihood[0]), said, rules)
            steps, newton_decrement = newton_steps(
                best, OBSERVED_SHARE, bold=not many and not alone, every=not many and not alone
            )
            best = dataclasses.replace(best, newton_decrement=newton_decrement)
            alone = alone and len(steps) > 0
            # Where the likelihood is concave, Fisher's information hardly matters: that of before will do.
            fisher = not (many and np.isfinite(newton_decrement))
        assert best is not None
        # The promise falls with the square of itself, so the one after the next step is known before it is taken.
        if best.newton_decrement < near or (
            alone and best.newton_decrement < NEAR and best.newton_decrement**3 < near * last**2 < np.inf
        ):
            return dataclasses.replace(best, stop=Stop.MAXIMUM)
        if -_ROUNDING < gain <= 0 or (hurry and 0 < gain < near):
            break  # as good as it gets
        failed = gain <= 0 or not len(steps)
        if failed:
            alone = False
            steps, _ = newton_steps(best, OBSERVED_SHARE[:2], every=True)
            ways = [_between(best.mixture, steps.pick(c), share) for c in range(len(steps)) for share in _SHORTER]
            steps = RandomEffects.stack([steps.pick([]), *ways])
        trials = steps if alone or (hurry and not failed) else RandomEffects.stack([em_step(best), steps])
        informed = (len(trials) - 1,) if many else tuple(range(len(trials)))
    assert best is not None
    return best


def polish_random_effects(
    units: StandardUnits, found: Fitted, rules: Penalty, polished: float = POLISHED
) -> Generator[RandomEffectsSums, RandomEffectsReply, Fitted]:
    """Take Newton's steps on more clients from what a sample found, whose curvature serves as long as it is of use.

    So most often only scores are asked for. Ends at the maximum, where another step promises less than ``polished`` for
    each parameter, or where a step fails.
    """
    near = polished * found.reply.score.size
    mixture, curved, before, last = found.mixture, found.reply, -np.inf, np.inf
    ahead, share, ask = mixture, 1.0, False
    for _ in range(_MOST_POLISH):
        reply = yield RandomEffectsSums(units, mixture, found.full, (0,) if ask else (), fisher=False)
        value = float(penalised_likelihood_of(mixture, reply, rules)[0])
        if value < before:  # too far: some of the way is tried
            share *= _SHORTER[0]
            if share < _SHORTER[-1]:
                break
            mixture, ask = _between(found.mixture, ahead, share), False
            continue
        share = 1.0
        reply = _borrowed(reply, curved, ("expected",) if ask else RandomEffectsReply.INFORMATION)
        here = Fitted(mixture, found.full, value, float(reply.likelihood[0]), reply, rules)
        if not ask and np.isfinite(last):
            here = learned(found, here)
        curved = here.reply
        ahead, newton_decrement = newton_steps(here, OBSERVED_SHARE)
        found = dataclasses.replace(here, newton_decrement=newton_decrement, next_step=ahead if len(ahead) else None)
        if found.next_step is None:
            break
        # The promise falls by about as much in each step: the one after the next step is known before it is taken.
        if newton_decrement < near or newton_decrement**2 < near * last < np.inf:
            return dataclasses.replace(found, stop=Stop.MAXIMUM)
        ask = newton_decrement > _STEADY * last
        mixture, before, last = ahead, value, newton_decrement
    return found


def next_sample(
    units: StandardUnits, found: Fitted, rules: Penalty, polished: float
) -> Generator[RandomEffectsSums, RandomEffectsReply, Fitted]:
    """Bring what a smaller sample found near the maximum of a larger one, by scores, and ask for the curvature there.

    Fisher's information stays that of the smaller sample.
    """
    found = yield from polish_random_effects(units, found, rules, polished)
    mixture = found.mixture if found.next_step is None else found.next_step
    reply = yield RandomEffectsSums(units, mixture, found.full, (0,), fisher=False)
    reply = _borrowed(reply, found.reply, ("expected",))
    value = float(penalised_likelihood_of(mixture, reply, rules)[0])
    if value < found.value:
        return found
    return Fitted(mixture, found.full, value, float(reply.likelihood[0]), reply, rules)


def _borrowed(reply: RandomEffectsReply, curved: RandomEffectsReply, names: Sequence[str]) -> RandomEffectsReply:
    """Take information from what others said: as much more as there are more rows."""
    times = reply.rows.sum() / curved.rows.sum()
    return dataclasses.replace(reply, **{name: times * getattr(curved, name) for name in names})


def last_step(found: Fitted) -> Fitted:
    """Take one more Newton step, unasked, by the rules that follow from where it leads."""
    mixture, gain, before = found.mixture, 0.0, 0.0
    if found.next_step is not None:
        mixture, gain, before = found.next_step, found.newton_decrement, found.rules.prior_variance
    for _ in range(_FOLLOWED):
        here = following(found, mixture)
        if abs(here.rules.prior_variance - before) < _SETTLED * before * found.reply.rows.sum():
            break
        before = here.rules.prior_variance
        steps, gain = newton_steps(here, (1.0,))
        if not len(steps):
            return found
        mixture = steps
    end = following(found, mixture)
    return dataclasses.replace(end, mixture=mixture, value=end.value + gain, likelihood=found.likelihood + gain)


def following(found: Fitted, mixture: RandomEffects) -> Fitted:
    """Judge a fit by the rules that follow from the noise of a mixture."""
    rows = found.reply.rows[0]
    rules = found.rules.fitting(float(rows @ np.exp(mixture.log_variance[0]) / rows.sum()))
    value = float(penalised_likelihood_of(found.mixture, found.reply, rules)[0])
    return dataclasses.replace(found, rules=rules, value=value)


def _between(first: RandomEffects, second: RandomEffects, share: float) -> RandomEffects:
    """Go a share of the way from one mixture to another: covariances stay covariances."""
    pairs = ((getattr(first, item.name), getattr(second, item.name)) for item in dataclasses.fields(RandomEffects))
    theta, log_variance, log_weight, covariance = ((1.0 - share) * a + share * b for a, b in pairs)
    return RandomEffects(theta, log_variance, log_weight - np.logaddexp.reduce(log_weight[0]), covariance)
