"""The server's mathematics of personal models: from the sums over clients to the next candidates, and to the maximum.

The value of a mixture is its marginal log likelihood with the penalty on noise of `mixtures`. Steps are Newton's,
within the cone of covariances (`cones`), with the information

    (1 - h) Fisher's + h (observed - missing)

at several h, all asked about in one exchange. At h = 0 it is Fisher scoring for known memberships; h = 1 is Newton's
own step. EM is among the trials, for its step follows from the scores alone and does not fail:
Psi + Psi S Psi / n, where S is the sum over the n clients of u u^T - A.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import block_diag, eigh
from scipy.sparse import csr_array

from ...core.arrays import Bools, Floats
from ...core.symmetric import doubled, mirrored, packed, paired, triangle, unpacked
from ...exchange.random_effects import RandomEffects, RandomEffectsReply
from ...exchange.units import StandardUnits
from ...model.fit import Stop
from ..updates import PRIOR_ROWS, RIDGE, SMALLEST_SHARE, Penalty
from .psd_newton import PsdConstraint, climb, unbound
from .singular_newton import SingularDiagonal, singular_diagonal, singular_face

OBSERVED_SHARE = (0.0, 0.8, 1.0)
"""h: how far the information is the observed one, with the missing one taken off."""
_LONE_ROWS = 1e-3
"""Rows added to a kind that is the only one: it needs none, but where rows are fewer than parameters."""
_LARGEST = 1e6
"""A Psi beyond this, in units of the pooled residual, is a step that went astray; sums about it would not be finite."""
_LEAST_BEND = 0.05
"""Where the likelihood bends less than this share of what Fisher's information says, the step is no longer."""
_AS_PROMISED, _FAR = 0.9, 0.05
"""A step along faces gains so much of what it promises, or another is taken; it is not tried where one within the cone
promises more than this for each parameter."""


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
    added = _added_rows(log.shape[1])
    return np.asarray(reply.likelihood - 0.5 * added * (rules.prior_variance * np.exp(-log) + log).sum(axis=1))


def em_step(found: Fitted) -> RandomEffects:
    """Take a step of EM: models by generalised least squares, Psi and noise by their expectations."""
    mixture, reply, rules = found.mixture, found.reply, found.rules
    _, k, dim = mixture.theta.shape
    gram = unpacked(reply.gram[0], dim) + RIDGE * np.exp(-mixture.log_variance[0])[:, None, None] * np.eye(dim)
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
    return RandomEffects(theta[None], log_variance[None], np.log(share / share.sum())[None], moved[None])


def free_parameters(found: Fitted) -> int:
    """Count the parameters of a mixture; columns that are left out have no deviations."""
    return int(_Room(found).slope.size)


def cost_of_diagonal(units: StandardUnits, found: Fitted) -> float:
    """Say how much a full Psi gains over a diagonal one if the likelihood is quadratic; 0 where it bends upwards."""
    room = _Room(found)
    columns = np.linalg.pinv(units.whiten)[:, units.inverse_sd > 0]
    rows, others = triangle(units.dim)
    own = columns[rows] * columns[others]  # the numbers of a full Psi for each of a diagonal one, (v, D)
    ways = block_diag(np.eye(room.split), *[own] * room.k)
    start = np.concatenate([np.zeros(room.split), -room.numbers.ravel()])  # all deviations taken away
    curvature = room.curvature(1.0)
    try:
        best = start + ways @ unbound(ways.T @ curvature @ ways, ways.T @ (room.slope - curvature @ start))
    except np.linalg.LinAlgError:
        return 0.0
    return -room.gain(best)


def model_covariance(found: Fitted) -> Floats | None:
    """Invert the observed information: covariances of each kind's theta, (k, d, d); None if it has no inverse."""
    k, dim = found.mixture.theta[0].shape
    room = _Room(found)
    try:
        whole = room.curvature_along(room.faces(), 1.0)
        inverse = unbound(whole, np.eye(len(whole))[:, : k * dim])
    except np.linalg.LinAlgError:
        return None
    return np.stack([inverse[j : j + dim, j : j + dim] for j in range(0, k * dim, dim)])


def _added_rows(k: int) -> float:
    return PRIOR_ROWS if k > 1 else _LONE_ROWS


def _curvature(found: Fitted, observed_share: float) -> Floats:
    """Give the information, (k q, k q), with a little more so that an empty kind stays where it is."""
    mixture, reply = found.mixture, found.reply
    _, k, dim = mixture.theta.shape
    precision = np.exp(-mixture.log_variance[0])
    q = reply.score.shape[-1]
    ridge = np.concatenate([np.full(dim, 1.0), np.zeros(2), np.full(q - dim - 2, 2.0)])
    prior = 0.5 * _added_rows(k) * found.rules.prior_variance * precision
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


def _slope(found: Fitted) -> Floats:
    """Give the gradient of the value, (k q,)."""
    mixture, reply = found.mixture, found.reply
    _, k, dim = mixture.theta.shape
    slope = reply.score[0].copy()
    precision = np.exp(-mixture.log_variance[0])
    slope[:, dim] += 0.5 * _added_rows(k) * (found.rules.prior_variance * precision - 1.0)
    slope[:, dim + 1] -= reply.clients[0].sum() * np.exp(mixture.log_weight[0])
    return np.asarray(slope.ravel())


def learned(before: Fitted, here: Fitted) -> Fitted:
    """Correct the information by how much the slope has changed on the way here: the step of BFGS."""
    step = _flat(here.mixture) - _flat(before.mixture)
    change, bend = _slope(before) - _slope(here), _curvature(here, 1.0) @ step
    told, expected = float(change @ step), float(step @ bend)
    if min(told, expected) <= _LEAST_BEND * max(told, expected):
        return here
    correction = np.outer(bend, bend) / expected - np.outer(change, change) / told
    missing = here.reply.missing + paired(correction, here.mixture.theta.shape[1])
    return dataclasses.replace(here, reply=dataclasses.replace(here.reply, missing=missing))


def _flat(mixture: RandomEffects) -> Floats:
    """Give the numbers of a mixture in the order of its score, (k q,)."""
    parts = (mixture.theta[0], mixture.log_variance[0, :, None], mixture.log_weight[0, :, None], mixture.spread[0])
    return np.concatenate(parts, axis=1).ravel()


class _Room:
    """The free parameters at a mixture: theta, noise and weights (``split`` of them), then the covariances."""

    def __init__(self, found: Fitted) -> None:
        self.found = found
        self.k, self.dim = found.mixture.theta.shape[1:]
        expected = unpacked(found.reply.expected[0], found.reply.score.shape[-1])
        self.fisher: Floats = expected[:, self.dim + 2 :, self.dim + 2 :]
        """Of the numbers of Psi, (k, v, v)."""
        self.live = self._live()
        self.reduce = self._reduce()
        self.slope: Floats = self.reduce.T @ _slope(found)
        self.numbers = found.mixture.spread[0][:, self.live]
        self.split = self.slope.size - self.numbers.size
        self._curvatures: dict[float, Floats] = {}
        self._steps: dict[float, Floats] = {}

    def _live(self) -> Bools:
        """Say which numbers of Psi there are, (v,): a column that is left out has no information."""
        if self.found.full:
            return np.ones(self.found.mixture.spread.shape[-1], dtype=np.bool_)
        own = np.diagonal(self.fisher.sum(axis=0))
        return np.asarray(own > 0)

    def _reduce(self) -> Any:
        """Say how the k q numbers of a mixture depend on the free ones. -> (k q, f), sparse."""
        k, dim = self.k, self.dim
        places = np.arange(k * (dim + 2 + len(self.live))).reshape(k, -1)
        groups = [
            *places[:, :dim].reshape(-1, 1),
            *([places[:, dim]] if self.found.rules.shared_noise else places[:, dim, None]),
            *places[:-1, dim + 1, None],
            *places[:, dim + 2 :][:, self.live].reshape(-1, 1),
        ]
        owner = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
        return csr_array((np.ones(len(owner)), (np.concatenate(groups), owner)), (places.size, len(groups)))

    def curvature(self, observed_share: float) -> Floats:
        """Give the information of the free parameters, (f, f)."""
        if observed_share not in self._curvatures:
            self._curvatures[observed_share] = np.asarray(
                self.reduce.T @ (self.reduce.T @ _curvature(self.found, observed_share)).T
            )
        return self._curvatures[observed_share]

    def unbound(self, observed_share: float) -> Floats:
        """Take a step wherever it leads, (f,). Raises `LinAlgError` where the likelihood is not concave."""
        if observed_share not in self._steps:
            self._steps[observed_share] = unbound(self.curvature(observed_share), self.slope)
        return self._steps[observed_share]

    def in_cone(self, observed_share: float) -> tuple[Floats, float]:
        """Take a step anywhere within the cone. Gives the step (f,) and what it promises."""
        cone = PsdConstraint(self.k, self.dim if self.found.full else int(self.live.sum()), self.found.full)
        floor = 1e-6 * np.exp(self.found.mixture.log_variance[0]) / self.dim
        return climb(
            self.curvature(observed_share), self.slope, self.unbound(observed_share), self.numbers.ravel(), cone, floor
        )

    def faces(self) -> list[SingularDiagonal]:
        """Find the faces on which the covariances lie."""
        fisher = self.fisher[:, self.live][:, :, self.live]
        slopes = self.slope[self.split :].reshape(self.k, -1)
        find: Callable[..., SingularDiagonal] = (
            partial(singular_face, dim=self.dim) if self.found.full else singular_diagonal
        )
        return [find(*about) for about in zip(self.numbers, slopes, fisher, strict=True)]

    def along(self, faces: Sequence[SingularDiagonal], penalised_likelihood_of: Floats) -> Floats:
        """Turn what is said of the free parameters (f, c) into what it says of directions along faces. -> (p, c)."""
        parts = np.split(penalised_likelihood_of[self.split :], self.k)
        moved = [face.directions.T @ part for face, part in zip(faces, parts, strict=True)]
        return np.concatenate([penalised_likelihood_of[: self.split], *moved])

    def curvature_along(self, faces: Sequence[SingularDiagonal], observed_share: float) -> Floats:
        """Give the information of the directions along faces and what these cost, (p, p)."""
        whole = self.along(faces, self.along(faces, self.curvature(observed_share)).T)
        first = self.split
        for face in faces:
            last = first + len(face.cost)
            whole[first:last, first:last] += face.cost
            first = last
        return whole

    def newton(self, bold: bool) -> tuple[Floats, float]:
        """Take Newton's own step: along the faces if it is short enough to follow them, else anywhere within the cone.

        Gives the step (f,) and what it promises.
        """
        far = _FAR * self.slope.size
        with suppress(np.linalg.LinAlgError):
            if 0.5 * self.slope @ self.unbound(1.0) > far:
                step, promise = self.in_cone(1.0)
                if promise > far:  # other faces may be better
                    return step, promise
        try:
            step, promise = self.along_faces(bold)
        except np.linalg.LinAlgError:
            return self.in_cone(1.0)
        # Faces are curved: on the way along them the likelihood should rise as it would along a line.
        if np.isfinite(promise) and self.gain(step) < _AS_PROMISED * promise:
            return self.in_cone(1.0)
        return step, promise

    def gain(self, step: Floats) -> float:
        """Say what a step (f,) gains if the likelihood is quadratic."""
        return float(self.slope @ step - 0.5 * step @ self.curvature(1.0) @ step)

    def along_faces(self, bold: bool) -> tuple[Floats, float]:
        """Take Newton's own step along the faces. Gives the step (f,) and what it promises.

        Where the likelihood is not concave, there is none, unless ``bold``: then directions in which it bends upwards
        are taken as if it bent downwards as much, which leads away from a saddle; that promises nothing.
        """
        faces = self.faces()
        lean, whole = self.along(faces, self.slope[:, None])[:, 0], self.curvature_along(faces, 1.0)
        promise = np.inf
        try:
            step = unbound(whole, lean)
            promise = float(0.5 * lean @ step)
        except np.linalg.LinAlgError:
            if not bold:
                raise
            bends, axes = eigh(whole, self.curvature_along(faces, 0.0))
            step = axes @ (axes.T @ lean / np.maximum(np.abs(bends), _LEAST_BEND))
        ends = np.cumsum([self.split, *(face.directions.shape[1] for face in faces)])
        parts = np.split(step, ends[:-1])[1:]
        spreads = [face.moved(part) for face, part in zip(faces, parts, strict=True)]
        return np.concatenate([step[: self.split], np.concatenate(spreads) - self.numbers.ravel()]), promise


def newton_steps(
    found: Fitted, heeds: tuple[float, ...], *, bold: bool = False, every: bool = False
) -> tuple[RandomEffects, float]:
    """Take the Newton step of the largest h that gives one, or of ``every`` h. A ``bold`` one does not count as such.

    Gives also what the full step promises; infinite without it.
    """
    room = _Room(found)
    steps, newton_decrement = [], np.inf
    for observed_share in sorted(heeds, reverse=True):
        try:
            if observed_share == 1.0:
                step, newton_decrement = room.newton(bold)
            else:
                step, _ = room.in_cone(observed_share)
        except np.linalg.LinAlgError:
            continue
        moved = _moved(found.mixture, (room.reduce @ step).reshape(room.k, -1), found.full)
        if not np.abs(moved.spread).max() <= _LARGEST:
            newton_decrement = np.inf if observed_share == 1.0 else newton_decrement
            continue
        steps.append(moved)
        if not every and (observed_share < 1.0 or np.isfinite(newton_decrement)):
            break
    return RandomEffects.stack([found.mixture.pick([]), *steps[::-1]]), newton_decrement


def _moved(mixture: RandomEffects, step: Floats, full: bool) -> RandomEffects:
    """Move a mixture by a step (k, q); noise and weights by at most a factor of e or so."""
    dim = mixture.theta.shape[-1]
    log_weight = mixture.log_weight + np.clip(step[None, :, dim + 1], -2.0, 2.0)
    log_weight = np.maximum(log_weight - np.logaddexp.reduce(log_weight[0]), np.log(SMALLEST_SHARE))
    spread = mixture.spread + step[None, :, dim + 2 :]
    return RandomEffects(
        mixture.theta + step[None, :, :dim],
        mixture.log_variance + np.clip(step[None, :, dim], -1.0, 1.0),
        log_weight - np.logaddexp.reduce(log_weight[0]),
        spread if full else np.maximum(spread, 0.0),
    )
