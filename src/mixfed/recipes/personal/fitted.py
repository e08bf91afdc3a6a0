"""A mixture with random effects and what all clients said of it: its value, gradient and information.

The information is (1 - h) Fisher's + h (observed - missing), h being the ``observed_share``: at h = 0 it is Fisher
scoring for known memberships; h = 1 is Newton's own.
"""

from dataclasses import dataclass

import numpy as np

from ...core.arrays import Floats
from ...core.symmetric import mirrored, unpacked
from ...exchange.random_effects import RandomEffects, RandomEffectsReply
from ...model.fit import Stop
from ..updates import PRIOR_ROWS, RIDGE, Penalty

_LONE_ROWS = 1e-3
"""Rows added to a kind that is the only one: it needs none, but where rows are fewer than parameters."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """A mixture with deviations, and what all clients said of it."""

    mixture: RandomEffects
    """One candidate."""
    full: bool
    value: float
    likelihood: float
    reply: RandomEffectsReply
    """The sums at the mixture, for one candidate, with its information."""
    rules: Penalty
    newton_decrement: float = np.inf
    """What another Newton step would promise."""
    stop: Stop = Stop.ROUNDS
    next_step: RandomEffects | None = None
    """Where that step leads, if it is at hand."""


def penalised_likelihood_of(candidates: RandomEffects, reply: RandomEffectsReply, rules: Penalty) -> Floats:
    """Give the penalised log likelihood of each candidate, (C,)."""
    log = candidates.log_variance
    added = added_rows(log.shape[1])
    return np.asarray(reply.likelihood - 0.5 * added * (rules.prior_variance * np.exp(-log) + log).sum(axis=1))


def added_rows(k: int) -> float:
    """Say how many rows the penalty adds to each of k kinds."""
    return PRIOR_ROWS if k > 1 else _LONE_ROWS


def information(found: Fitted, observed_share: float) -> Floats:
    """Give the information, (k q, k q), with a little more so that an empty kind stays where it is."""
    mixture, reply = found.mixture, found.reply
    _, k, dim = mixture.theta.shape
    precision = np.exp(-mixture.log_variance[0])
    q = reply.score.shape[-1]
    ridge = np.concatenate([np.full(dim, 1.0), np.zeros(2), np.full(q - dim - 2, 2.0)])
    prior = 0.5 * added_rows(k) * found.rules.prior_variance * precision
    whole = mirrored(-observed_share * reply.missing[0], k)
    known = unpacked((1.0 - observed_share) * reply.expected[0] + observed_share * reply.observed[0], q)
    for j in range(k):
        own = whole[j * q : (j + 1) * q, j * q : (j + 1) * q]
        own += known[j]
        own += RIDGE * np.diag(np.where(ridge > 0, precision[j] ** ridge, 0.0))
        own[dim, dim] += prior[j] + RIDGE
    share, total = np.exp(mixture.log_weight[0]), reply.clients[0].sum()
    places = np.arange(k) * q + dim + 1
    whole[np.ix_(places, places)] += total * (np.diag(share) - np.outer(share, share))
    return whole


def gradient(found: Fitted) -> Floats:
    """Give the gradient of the value, (k q,)."""
    mixture, reply = found.mixture, found.reply
    _, k, dim = mixture.theta.shape
    slope = reply.score[0].copy()
    precision = np.exp(-mixture.log_variance[0])
    slope[:, dim] += 0.5 * added_rows(k) * (found.rules.prior_variance * precision - 1.0)
    slope[:, dim + 1] -= reply.clients[0].sum() * np.exp(mixture.log_weight[0])
    return np.asarray(slope.ravel())
