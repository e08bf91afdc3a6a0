"""The server's mathematics of mixtures: what the sums over clients say about the next candidates.

A candidate's value is its log likelihood plus a penalty on noise,

    value = sum_i log sum_j w_j prod_rows N(residual | z theta_j, s_j^2) - 1/2 sum_j n_0 (v_0 / s_j^2 + log s_j^2),

as if every kind had n_0 more rows of variance v_0. Without it a kind of a few rows that lie on a plane would have
infinite likelihood. v_0 is a small share of the variance that a mixture of as many kinds leaves (`Penalty.fitting`), so
a real kind does not feel it, however little noise there is. Families whose target has no noise have another penalty,

    value = log likelihood - tau / 2 sum_j |theta_j|^2,

theta being the difference from the pooled model: without it a kind whose rows are all 0, say, would run off.

Newton steps use Louis' identity: observed information = complete - missing, where the complete information comes
from the weighted normal equations and the missing one from clients that are unsure of their kind.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array

from ..core.arrays import Array, Bools, Floats
from ..core.symmetric import mirrored, unpacked
from ..exchange.mixture import Candidates, MixtureReply
from ..families.base import Family
from ..families.gaussian import GAUSSIAN

PRIOR_ROWS = 2.0
"""n_0: rows added to each kind."""
PRIOR_SHARE = 0.05
"""v_0, as a share of the residual variance of the mixture."""
RIDGE = 1e-7
"""Rows added to each direction of a kind's normal equations, so that an empty kind stays at the pooled fit."""
SMALLEST_SHARE = 1e-7
LONGEST_STEP, LONGEST_NEWTON = 1.5, 4.5
"""Of a model in a round of EM, and of Newton, where the likelihood is not quadratic."""
NEARBY = 0.01
"""Mixtures whose models are this near, as a share of the distance between kinds, climb to the same maximum."""


@dataclass(frozen=True)
class Penalty:
    """What is asked of a mixture besides a high likelihood."""

    shared_noise: bool = False
    """Whether all kinds have one noise."""
    prior_variance: float = PRIOR_SHARE
    """v_0, the pooled fit's residuals having variance 1."""
    ridge: float = 0.0
    """tau."""
    family: Family = GAUSSIAN

    @property
    def stiffness(self) -> float:
        """What is added to the diagonal of a kind's normal equations."""
        return RIDGE + self.ridge

    def fitting(self, residual_variance: float) -> Penalty:
        """Adapt v_0 to what a mixture leaves; never to nothing at all."""
        if not self.family.has_dispersion:
            return self
        return dataclasses.replace(self, prior_variance=PRIOR_SHARE * max(residual_variance, 1e-16))


def penalised_likelihood(candidates: Candidates, reply: MixtureReply, rules: Penalty) -> Floats:
    """Give the penalised log likelihood of each candidate, (C,)."""
    return np.asarray(reply.likelihood - penalties(candidates, rules))


def penalties(candidates: Candidates, rules: Penalty) -> Floats:
    """Give what is taken off the log likelihood of each candidate, (C,)."""
    if not rules.family.has_dispersion:
        return np.asarray(0.5 * rules.ridge * (candidates.theta**2).sum(axis=(1, 2)))
    variance = candidates.log_variance
    return np.asarray(0.5 * PRIOR_ROWS * (rules.prior_variance * np.exp(-variance) + variance).sum(axis=1))


def maximise(candidates: Candidates, reply: MixtureReply, rules: Penalty) -> Candidates:
    """Solve the weighted normal equations of every kind: the M step of EM, or one Newton step of it, capped."""
    _, k, dim = reply.score.shape
    gram = reply.matrices + rules.stiffness * np.eye(dim)
    pull = reply.score - rules.stiffness * candidates.theta
    step: Floats = np.linalg.solve(gram, pull[..., None])[..., 0].astype(np.float64)
    share = np.maximum(reply.clients / reply.clients.sum(axis=1, keepdims=True), SMALLEST_SHARE)
    log_weight = np.log(share / share.sum(axis=1, keepdims=True))
    if not rules.family.has_dispersion:
        return Candidates(candidates.theta + capped(step, LONGEST_STEP), candidates.log_variance, log_weight)
    if not rules.family.quadratic:
        step = capped(step, LONGEST_STEP)
    squares, rows = squares_after(reply, step) if rules.family.quadratic else reply.squares, reply.rows
    if rules.shared_noise:
        squares = np.repeat(squares.sum(axis=1, keepdims=True) / k, k, axis=1)
        rows = np.repeat(rows.sum(axis=1, keepdims=True) / k, k, axis=1)
    variance = (squares + PRIOR_ROWS * rules.prior_variance) / (rows + PRIOR_ROWS)
    return Candidates(candidates.theta + step, np.log(variance), log_weight)


def capped(step: Floats, longest: float) -> Floats:
    """Shorten the steps (..., d) of models that are longer: where the likelihood is not quadratic they go too far."""
    length = np.linalg.norm(step, axis=-1, keepdims=True)
    return np.asarray(step * np.minimum(1.0, longest / np.maximum(length, 1e-300)))


def residual_variance(reply: MixtureReply, c: int) -> float:
    """Give the variance that candidate c leaves over all kinds."""
    return float(reply.squares[c].sum() / reply.rows[c].sum())


def squares_after(reply: MixtureReply, step: Floats) -> Floats:
    """Give the weighted sums of squared residuals after the models have moved by a step (C, k, d). -> (C, k)."""
    left = (
        reply.squares
        - 2.0 * np.einsum("cjd,cjd->cj", reply.score, step)
        + np.einsum("cjd,cjde,cje->cj", step, reply.matrices, step)
    )
    return np.asarray(np.maximum(left, 0.0))


def newton(
    candidates: Candidates,
    reply: MixtureReply,
    c: int,
    missing: Floats,
    dampings: tuple[float, ...],
    rules: Penalty,
    halved: bool = False,
) -> tuple[Candidates, float]:
    """Take damped Newton steps from candidate c, whose missing information is known, by pairs of kinds.

    A damping of 0 leaves out the missing information and is an EM step; 1 is Newton's own step. Gives a candidate for
    each damping that gave a step, the last being the least damped, and how much likelihood Newton's full step promises:
    infinite where the likelihood is not concave. If ``halved``, half of Newton's own step comes before it.
    """
    k, dim = candidates.theta[c].shape
    gradient, complete = _score(candidates, reply, c, rules), complete_information(candidates, reply, c, rules)
    reduce_, missing = _free(k, dim, rules), mirrored(missing, k)
    slope = reduce_.T @ gradient.ravel()
    steps, newton_decrement = [candidates.pick([])], np.inf
    for damping in dampings:
        information = reduce_.T @ (complete - damping * missing) @ reduce_
        try:
            step = cho_solve(cho_factor(information), slope)
        except np.linalg.LinAlgError:
            continue
        if damping == 1.0:
            newton_decrement = float(0.5 * slope @ step)
        step = (reduce_ @ step).reshape(k, dim + 2)
        if not rules.family.quadratic:
            step[:, :dim] = capped(step[:, :dim], LONGEST_NEWTON)
        steps.append(after_step(candidates.pick(c), step))
        if halved and damping == 1.0:
            steps.insert(-1, after_step(candidates.pick(c), 0.5 * step))
    return Candidates.stack(steps), newton_decrement


def covariance(candidates: Candidates, reply: MixtureReply, c: int, missing: Floats, rules: Penalty) -> Floats | None:
    """Invert the observed information: covariances of each kind's theta, (k, d, d); None if it has no inverse."""
    k, dim = candidates.theta[c].shape
    reduce_ = _free(k, dim, rules)
    information = reduce_.T @ (complete_information(candidates, reply, c, rules) - mirrored(missing, k)) @ reduce_
    try:
        inverse = cho_solve(cho_factor(information), np.eye(len(information)))
    except np.linalg.LinAlgError:
        return None
    return np.array([inverse[j : j + dim, j : j + dim] for j in range(0, k * dim, dim)])


_NO_NUMBERS = np.zeros(0, dtype=np.bool_)


def _free(k: int, dim: int, rules: Penalty) -> Any:
    return parameters(k, dim, rules.shared_noise, has_dispersion=rules.family.has_dispersion)


def parameters(
    k: int, dim: int, shared_noise: bool, numbers: Bools = _NO_NUMBERS, *, has_dispersion: bool = True
) -> Any:
    """Say how the numbers of a mixture (theta, log variance, log weight of each kind) depend on the free ones.

    Log weights count from that of the last kind; a noise that is shared is one number, and one that there is not is
    none. Of a kind's other ``numbers``
    (v,), if it has any, some may be left out. -> (k (d + 2 + v), free), sparse.
    """
    places = np.arange(k * (dim + 2 + len(numbers))).reshape(k, -1)
    groups = [
        *places[:, :dim].reshape(-1, 1),
        *(([places[:, dim]] if shared_noise else places[:, dim, None]) if has_dispersion else ()),
        *places[:-1, dim + 1, None],
        *places[:, dim + 2 :][:, numbers].reshape(-1, 1),
    ]
    owner = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    return csr_array((np.ones(len(owner)), (np.concatenate(groups), owner)), (places.size, len(groups)))


def complete_information(candidates: Candidates, reply: MixtureReply, c: int, rules: Penalty) -> Floats:
    """Give the information if the kinds were known, (p, p) with p = k (d + 2)."""
    k, dim = candidates.theta[c].shape
    precision, kinds = np.exp(-candidates.log_variance[c]), np.arange(k)
    complete, ridged = np.zeros((k, dim + 2, k, dim + 2)), unpacked(reply.gram[c], dim) + rules.stiffness * np.eye(dim)
    complete[kinds, :dim, kinds, :dim] = precision[:, None, None] * ridged
    told = rules.family.dispersion_information * reply.squares[c]
    complete[kinds, dim, kinds, dim] = 0.5 * precision * (told + PRIOR_ROWS * rules.prior_variance)
    share, total = np.exp(candidates.log_weight[c]), reply.clients[c].sum()
    complete[:, -1, :, -1] = total * (np.diag(share) - np.outer(share, share))
    return complete.reshape(k * (dim + 2), k * (dim + 2))


def _score(candidates: Candidates, reply: MixtureReply, c: int, rules: Penalty) -> Floats:
    """Give the gradient of a candidate's value. -> (k, d + 2)."""
    theta, precision = candidates.theta[c], np.exp(-candidates.log_variance[c])
    slope = (reply.score[c] - rules.stiffness * theta) * precision[:, None]
    noise = 0.5 * (reply.squares[c] * precision - reply.rows[c] + PRIOR_ROWS * (rules.prior_variance * precision - 1.0))
    weight = reply.clients[c] - reply.clients[c].sum() * np.exp(candidates.log_weight[c])
    return np.column_stack([slope, noise, weight])


def after_step(candidate: Candidates, step: Floats) -> Candidates:
    """Move one candidate by a step (k, d + 2); noise and weights by at most a factor of e or so."""
    log_weight = candidate.log_weight + np.clip(step[None, :, -1], -2.0, 2.0)
    log_weight = np.maximum(log_weight - np.logaddexp.reduce(log_weight[0]), np.log(SMALLEST_SHARE))
    return Candidates(
        candidate.theta + step[None, :, :-2],
        candidate.log_variance + np.clip(step[None, :, -2], -1.0, 1.0),
        log_weight - np.logaddexp.reduce(log_weight[0]),
    )


def distinct(candidates: Candidates, value: Floats, tolerance: float) -> Array:
    """Give the places of the candidates, best first, without those that are near copies of a better one."""
    kept: list[int] = []
    copies = np.zeros(len(value), dtype=bool)
    shares = np.sort(candidates.log_weight, axis=1)
    for c in np.argsort(-value, kind="stable").tolist():
        twins = (
            abs(value[c] - value[other]) < tolerance and np.abs(shares[c] - shares[other]).max() < 0.05
            for other in kept
        )
        if not copies[c] and not any(twins):
            kept.append(c)
            copies |= nearby(candidates, candidates.pick(c))
    return np.array(kept)


def nearby(candidates: Candidates, home: Candidates) -> Bools:
    """Say which candidates have each of their models near another one of one mixture, so that both climb to one place.

    Near is a small share of the least distance between that mixture's own. -> (C,)
    """
    own = home.theta[0]
    gaps = np.linalg.norm(own[:, None] - own[None], axis=2)[~np.eye(len(own), dtype=bool)]
    distance = np.linalg.norm(candidates.theta[:, :, None] - own, axis=3)
    near = distance < NEARBY * gaps.min(initial=np.inf)
    return np.asarray(near.any(axis=1).all(axis=1) & near.any(axis=2).all(axis=1))
