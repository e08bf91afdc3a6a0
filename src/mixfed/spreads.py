"""The server's mathematics of personal models: from the sums over clients to the next candidates, and to the maximum.

The value of a mixture is its marginal log likelihood with the penalty on noise of `mixtures`. Steps are Newton's, within
the cone of covariances (`cones`), with the information

    (1 - h) Fisher's + h (observed - missing)

at several h, all asked about in one exchange. At h = 0 it is Fisher scoring for known memberships; h = 1 is Newton's own
step. EM is among the trials, for its step follows from the scores alone and does not fail:
Psi + Psi S Psi / n, where S is the sum over the n clients of u u^T - A.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import block_diag, cho_factor, cho_solve

from .arrays import Floats
from .candidates import Candidates, Frame
from .cones import Cone, climb
from .deviations import Deviate, DeviateSum, Spreads, doubled, packed, unpacked
from .faces import edge_of, face_of, moved_edge
from .mixtures import PRIOR_ROWS, RIDGE, SMALLEST_SHARE, Rules
from .run import Stop

_SHARES = (0.05, 0.4, 0.8)
"""Shares of a kind's variance that start as deviations."""
_HEED = (0.0, 0.8, 1.0)
"""h: how far the information is the observed one, with the missing one taken off."""
_SHORTER = (0.4, 0.1, 0.02)
"""Where no step is better, so much of it is tried."""
_LONE_ROWS = 1e-3
"""Rows added to a kind that is the only one: it needs none, but where rows are fewer than parameters."""
_MANY = 160
"""From so many parameters on, information is dear: it is asked for one trial only."""
NEAR, CONVERGED = 0.05, 1e-6
"""What Newton's step promises when a mixture is near its maximum, and when that step is the last."""
_MOST_ROUNDS = 30


@dataclass(frozen=True, eq=False)
class Fitted:
    """A mixture with deviations, and what all clients said of it."""

    mixture: Spreads
    """One candidate."""
    full: bool
    value: float
    likelihood: float
    reply: DeviateSum
    """The sums at the mixture, for one candidate, with its information."""
    rules: Rules
    decrement: float = np.inf
    """What another Newton step would promise."""
    stop: Stop = Stop.ROUNDS


def started(frame: Frame, mixture: Candidates, full: bool) -> Spreads:
    """Make candidates of a plain mixture: some of each kind's variance becomes deviations, alike in all directions."""
    _, k, dim = mixture.theta.shape
    variance = np.exp(mixture.log_variance[0])
    live = frame.stretch > 0
    unit = packed(np.eye(dim)) / dim if full else live / live.sum()
    parts = [
        Spreads(
            mixture.theta[:1],
            np.log((1.0 - share) * variance)[None],
            mixture.log_weight[:1],
            (share * variance[:, None] * unit)[None],
        )
        for share in _SHARES
    ]
    return Spreads.stack(parts)


def values(candidates: Spreads, reply: DeviateSum, rules: Rules) -> Floats:
    """Give the penalised log likelihood of each candidate, (C,)."""
    log = candidates.log_variance
    added = _added_rows(log.shape[1])
    return np.asarray(reply.likelihood - 0.5 * added * (rules.prior_variance * np.exp(-log) + log).sum(axis=1))


def improve(
    frame: Frame, start: Spreads, full: bool, rules: Rules, *, near: float = NEAR, alone: bool = False
) -> Generator[Deviate, DeviateSum, Fitted]:
    """Bring the best of some candidates near its maximum: a conversation, see `refine`.

    ``alone`` starts with Newton's full step only, as is right near the maximum, until it fails.
    """
    _, k, dim = start.theta.shape
    many = k * (dim + 2 + start.spread.shape[2]) > _MANY
    trials, informed = start, tuple(range(len(start)))
    best: Fitted | None = None
    for round_ in range(_MOST_ROUNDS):
        reply = yield Deviate(frame, trials, full, informed)
        value = values(trials, reply, rules)
        c = int(np.argmax(value))
        better = best is None or value[c] > best.value
        if better and c not in informed:
            trials, informed = trials.pick(c), (0,)
            reply = yield Deviate(frame, trials, full, informed)
            c = 0
        gain = np.inf if best is None else float(value.max() - best.value)
        if better:
            said = reply.pick(c, [informed.index(c)])
            best = Fitted(trials.pick(c), full, float(value.max()), float(said.likelihood[0]), said, rules)
            steps, decrement = _steps(best, (1.0,) if alone else _HEED)
            best = dataclasses.replace(best, decrement=decrement)
        assert best is not None
        if best.decrement < near:
            return dataclasses.replace(best, stop=Stop.MAXIMUM)
        if not better or (alone and not len(steps)):
            if round_ and not better and not alone and len(trials) and gain > -1e-7:
                break  # as good as it gets, to rounding
            alone = False
            steps, _ = _steps(best, _HEED)
            steps = Spreads.stack([_between(best.mixture, steps.pick(c), share) for c in range(len(steps)) for share in _SHORTER])
        trials = steps if alone else Spreads.stack([em_step(best), steps])
        informed = (len(trials) - 1,) if many else tuple(range(len(trials)))
    assert best is not None
    return best


def last_step(found: Fitted) -> Fitted:
    """Take one more Newton step, unasked: what it gains is known to more digits than matter."""
    steps, decrement = _steps(found, (1.0,))
    if not len(steps):
        return found
    gain = min(decrement, found.decrement)
    return dataclasses.replace(found, mixture=steps, value=found.value + gain, likelihood=found.likelihood + gain)


def em_step(found: Fitted) -> Spreads:
    """Take a step of EM: models by generalised least squares, Psi and noise by their expectations."""
    mixture, reply, rules = found.mixture, found.reply, found.rules
    _, k, dim = mixture.theta.shape
    gram = reply.gram[0] + RIDGE * np.exp(-mixture.log_variance[0])[:, None, None] * np.eye(dim)
    theta = mixture.theta[0] + np.linalg.solve(gram, reply.score[0, :, :dim, None])[..., 0]
    variance, added = np.exp(mixture.log_variance[0]), _added_rows(k)
    # E[noise] of all rows is their variance plus twice the derivative by its logarithm.
    squares = reply.rows[0] * variance + 2.0 * variance * reply.score[0, :, dim] + added * rules.prior_variance
    rows = reply.rows[0] + added
    if rules.shared_noise:
        squares, rows = np.full(k, squares.sum()), np.full(k, rows.sum())
    share = np.maximum(reply.clients[0] / reply.clients[0].sum(), SMALLEST_SHARE)
    clients = np.maximum(reply.clients[0], 1e-9)[:, None]
    slope, spread = reply.score[0, :, dim + 2 :], mixture.spread[0]
    if found.full:
        slope = unpacked(slope / (0.5 * doubled(dim)), dim)
        whole = unpacked(spread, dim)
        moved = packed(whole + whole @ slope @ whole / clients[:, :, None])
    else:
        moved = spread + 2.0 * spread**2 * slope / clients
    log_variance = np.log(np.maximum(squares / rows, 1e-3 * variance))
    return Spreads(theta[None], log_variance[None], np.log(share / share.sum())[None], moved[None])


def free_parameters(found: Fitted) -> int:
    """Count the parameters of a mixture; columns that are left out have no deviations."""
    return int(_parameters(found.mixture, found.rules, _live(found)).shape[1])


def model_covariance(found: Fitted) -> Floats | None:
    """Invert the observed information: covariances of each kind's theta, (k, d, d); None if it has no inverse."""
    k, dim = found.mixture.theta[0].shape
    reduce_ = _parameters(found.mixture, found.rules, _live(found))
    try:
        inverse = cho_solve(cho_factor(reduce_.T @ _curvature(found, 1.0) @ reduce_), np.eye(reduce_.shape[1]))
    except np.linalg.LinAlgError:
        return None
    whole = reduce_ @ inverse @ reduce_.T
    return np.stack([whole[j : j + dim, j : j + dim] for j in range(0, len(whole), len(whole) // k)])


def _added_rows(k: int) -> float:
    return PRIOR_ROWS if k > 1 else _LONE_ROWS


def _live(found: Fitted) -> Floats:
    """Say which numbers of Psi there are: a column that is left out has no information."""
    if found.full:
        return np.ones(found.mixture.spread.shape[-1]) > 0
    dim = found.mixture.theta.shape[-1]
    return np.asarray(np.diagonal(found.reply.expected[0].sum(axis=0))[dim + 2 :] > 0)


def _parameters(mixture: Spreads, rules: Rules, live: Floats) -> Floats:
    """Say how the k q numbers of a mixture depend on the free ones, those of Psi being the last. -> (k q, free)."""
    _, k, dim = mixture.theta.shape
    places = np.arange(k * (dim + 2 + len(live))).reshape(k, -1)
    unit = np.eye(places.size)
    noise = unit[places[:, dim]]
    columns = [
        *unit[places[:, :dim].ravel()],
        *([noise.sum(axis=0)] if rules.shared_noise else noise),
        *unit[places[:-1, dim + 1]],
        *unit[places[:, dim + 2 :][:, live].ravel()],
    ]
    return np.array(columns).T


def _curvature(found: Fitted, heed: float) -> Floats:
    """Give the information, (k q, k q), with a little more so that an empty kind stays where it is."""
    mixture, reply = found.mixture, found.reply
    _, k, dim = mixture.theta.shape
    precision = np.exp(-mixture.log_variance[0])
    own = (1.0 - heed) * reply.expected[0] + heed * reply.observed[0]
    q = own.shape[-1]
    ridge = np.concatenate([np.full(dim, 1.0), np.zeros(2), np.full(q - dim - 2, 2.0)])
    prior = 0.5 * _added_rows(k) * found.rules.prior_variance * precision
    for j in range(k):
        own[j] += RIDGE * np.diag(np.where(ridge > 0, precision[j] ** ridge, 0.0))
        own[j, dim, dim] += prior[j] + RIDGE
    whole: Floats = block_diag(*own) - heed * reply.missing[0]
    share, total = np.exp(mixture.log_weight[0]), reply.clients[0].sum()
    places = np.arange(k) * q + dim + 1
    whole[np.ix_(places, places)] += total * (np.diag(share) - np.outer(share, share))
    return whole


def _slope(found: Fitted) -> Floats:
    """Give the gradient of the value, (k q,)."""
    mixture, reply = found.mixture, found.reply
    _, k, dim = mixture.theta.shape
    slope = reply.score[0].copy()
    precision = np.exp(-mixture.log_variance[0])
    slope[:, dim] += 0.5 * _added_rows(k) * (found.rules.prior_variance * precision - 1.0)
    slope[:, dim + 1] -= reply.clients[0].sum() * np.exp(mixture.log_weight[0])
    return np.asarray(slope.ravel())


def _steps(found: Fitted, heeds: tuple[float, ...]) -> tuple[Spreads, float]:
    """Take a Newton step for each h that gives one. Gives also what the full one promises; infinite without it."""
    mixture = found.mixture
    _, k, dim = mixture.theta.shape
    live = _live(found)
    reduce_ = _parameters(mixture, found.rules, live)
    slope = reduce_.T @ _slope(found)
    cone = Cone(k, dim if found.full else int(live.sum()), found.full)
    numbers = mixture.spread[0][:, live].ravel()
    floor = 1e-6 * np.exp(mixture.log_variance[0]) / dim
    steps, decrement = [mixture.pick([])], np.inf
    for heed in heeds:
        curvature = reduce_.T @ _curvature(found, heed) @ reduce_
        try:
            if heed == 1.0:
                step, decrement = _along_faces(found, curvature, slope, numbers.reshape(k, -1), live)
            else:
                step, _ = climb(curvature, slope, numbers, cone, floor)
        except np.linalg.LinAlgError:
            continue
        steps.append(_moved(mixture, (reduce_ @ step).reshape(k, -1), found.full))
    return Spreads.stack(steps), decrement


def _along_faces(
    found: Fitted, curvature: Floats, slope: Floats, numbers: Floats, live: Floats
) -> tuple[Floats, float]:
    """Take Newton's own step along the faces on which the covariances, numbers (k, v), lie. See `faces`.

    curvature (f, f), slope (f,). Gives the step (f,) and what it promises; raises `LinAlgError` if there is none.
    """
    dim, (k, v) = found.mixture.theta.shape[2], numbers.shape
    split = len(slope) - numbers.size
    fisher = found.reply.expected[0][:, dim + 2 :, dim + 2 :][:, live][:, :, live]
    faces = []
    for own, lean, bend in zip(numbers, slope[split:].reshape(k, v), fisher, strict=True):
        face = face_of(own, lean, bend, dim) if found.full else edge_of(own, lean, bend)
        if face is None:
            raise np.linalg.LinAlgError
        faces.append(face)
    ways: Floats = block_diag(np.eye(split), *(face.directions for face in faces))
    cost = block_diag(np.zeros((split, split)), *(face.cost for face in faces))
    lean = ways.T @ slope
    step = cho_solve(cho_factor(ways.T @ curvature @ ways + cost), lean)
    ends = np.cumsum([split, *(face.directions.shape[1] for face in faces)])
    parts = np.split(step, ends[:-1])[1:]
    moved = [face.moved(part) if found.full else moved_edge(face, part) for face, part in zip(faces, parts, strict=True)]
    return np.concatenate([step[:split], np.concatenate(moved) - numbers.ravel()]), float(0.5 * lean @ step)


def _moved(mixture: Spreads, step: Floats, full: bool) -> Spreads:
    """Move a mixture by a step (k, q); noise and weights by at most a factor of e or so."""
    dim = mixture.theta.shape[-1]
    log_weight = mixture.log_weight + np.clip(step[None, :, dim + 1], -2.0, 2.0)
    log_weight = np.maximum(log_weight - np.logaddexp.reduce(log_weight[0]), np.log(SMALLEST_SHARE))
    spread = mixture.spread + step[None, :, dim + 2 :]
    return Spreads(
        mixture.theta + step[None, :, :dim],
        mixture.log_variance + np.clip(step[None, :, dim], -1.0, 1.0),
        log_weight - np.logaddexp.reduce(log_weight[0]),
        spread if full else np.maximum(spread, 0.0),
    )


def _between(first: Spreads, second: Spreads, share: float) -> Spreads:
    """Go a share of the way from one mixture to another: covariances stay covariances."""
    pairs = ((getattr(first, item.name), getattr(second, item.name)) for item in dataclasses.fields(Spreads))
    theta, log_variance, log_weight, spread = ((1.0 - share) * a + share * b for a, b in pairs)
    return Spreads(theta, log_variance, log_weight - np.logaddexp.reduce(log_weight[0]), spread)
