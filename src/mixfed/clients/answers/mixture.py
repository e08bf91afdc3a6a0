"""What clients do in the tuning-free recipe: answer its queries from their own rows.

The compiled sums (`moments`, `posterior`, `marginal`) are over shifted and stretched columns x, and the large ones are
answered so: who adds them up turns the total into standard units. This module adds to the `answer` and `answer_each` of
`client`, and is where the pools get them from.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from ...core.arrays import Array, Floats, Ints
from ...core.symmetric import packed, unpacked
from ...exchange.anchors import Project, Statistics
from ...exchange.base import ASKED_AT_ONCE, Replies, Together
from ...exchange.local_update import ModelSum
from ...exchange.mixture import Candidates, Expect, ExpectNumbers, LocalStep, SplitMoments
from ...exchange.moments import Gram, GramSum, PairMoments, PairSum
from ...exchange.random_effects import Deviate, DeviateSum, LeaveOut, LeftOutSum, information, roots
from ...exchange.units import Frame
from ...families.base import SQUARED
from ...kernels import gaussian as posterior
from ...kernels import moments
from ...kernels import tiles as kernels
from ..packed import Clients
from ..store import Held
from .local_update import answer as answer
from .local_update import answer_each as answer_each
from .local_update import model_sum, over_blocks, summed, update_arguments


def _rows(block: Clients, frame: Frame) -> tuple[Array, Floats, Ints, Array, Array, float, float]:
    """Give the kernels' first arguments: a block's rows and how to shift and stretch them, in their own precision."""
    return block.phi, block.y, block.offsets, *_units(frame, block.phi.dtype)


@lru_cache(maxsize=ASKED_AT_ONCE)
def _units(frame: Frame, precision: np.dtype[Any]) -> tuple[Array, Array, float, float]:
    return frame.centre.astype(precision), frame.stretch.astype(precision), frame.target_centre, frame.scale


@lru_cache(maxsize=ASKED_AT_ONCE)
def _looked_at(frame: Frame) -> tuple[Frame, Callable[[Clients], Clients]]:
    """Give the frame in which to look at rows, and what takes them there: into standard units, if they are narrow."""
    if not frame.narrow:
        return frame, lambda block: block
    names = tuple(f"z_{j}" for j in range(frame.dim))

    def take(block: Clients) -> Clients:
        return Clients(*frame.standardise(block.design, block.y), block.offsets, block.ids, names)

    return Frame.plain(frame.dim), take


@lru_cache(maxsize=ASKED_AT_ONCE)
def _pooled(frame: Frame, precision: np.dtype[Any]) -> Array:
    """Give the pooled model, which is 0 in standard units, as the kernels take models, (D, 1)."""
    return np.ascontiguousarray(frame.models(np.zeros((1, frame.dim))), dtype=precision)


@lru_cache(maxsize=ASKED_AT_ONCE)
def _models(candidates: Candidates, frame: Frame, precision: np.dtype[Any]) -> Array:
    """Give the models of all candidates, one behind another, as the kernels take them, (D, L)."""
    return np.ascontiguousarray(frame.models(candidates.theta.reshape(-1, frame.dim)), dtype=precision)


@lru_cache(maxsize=ASKED_AT_ONCE)
def _identity(frame: Frame) -> Floats:
    """Give the identity of z as a packed matrix of x."""
    back = np.linalg.pinv(frame.whiten)
    return packed(back.T @ back)


@lru_cache(maxsize=1)
def _stretched_basis(query: Project, precision: np.dtype[Any]) -> Array:
    """Give the basis for shifted and stretched columns, (D, r)."""
    return np.ascontiguousarray(query.frame.whiten @ query.basis, dtype=precision)


def _memberships(block: Clients, frame: Frame, candidates: Candidates, hard: bool) -> Floats:
    """Give the memberships of a block's clients under each candidate, (m, L)."""
    return _said(block, Expect(frame, candidates, hard=hard, curvature=False))[-1]


def _said(block: Clients, query: Expect) -> tuple[Floats, Floats, Floats]:
    """Give what the kernel says of the candidates of a query to a block, whose rows are looked at in its frame."""
    candidates, since = query.candidates, query.since
    models, nobody = _models(candidates, query.frame, block.phi.dtype), np.empty((0, candidates.log_weight.size))
    return posterior.expect(
        *_rows(block, query.frame),
        models,
        candidates.log_variance,
        candidates.log_weight,
        query.hard,
        query.curvature,
        np.array(query.informed, np.int64),
        nobody if since is None else _memberships(block, query.frame, since, query.hard),
    )


@answer.register
def _together(query: Together, clients: Held) -> Replies:
    return Replies(tuple(answer(part, clients) for part in query.parts))


@answer.register
def _gram(query: Gram, clients: Held) -> GramSum:
    def one(block: Clients) -> GramSum:
        kind = block.phi.dtype
        shift, stretch = query.centre.astype(kind), (1.0 / query.unit).astype(kind)
        units = (shift, stretch, query.target_centre, query.target_unit)
        return GramSum(*moments.second_moments(block.phi, block.y, *units))

    return summed(one, clients)


@answer.register
def _pair_moments(query: PairMoments, clients: Held) -> PairSum:
    """sum_i [(sum e)(sum e)^T - sum e e^T] / (n_i - 1), where e = residual x: all pairs of different rows."""
    frame, taken = _looked_at(query.frame)

    def one(block: Clients) -> PairSum:
        block = taken(block)
        ones = np.ones((block.n_clients, 1))
        pairs = moments.pair_moments(*_rows(block, frame), _pooled(frame, block.phi.dtype), ones)
        if not query.lone:
            return PairSum(pairs, int(block.rows[block.rows > 1].sum()))
        alone = block.subset(np.flatnonzero(block.rows == 1))
        x, residual = frame.stretched(alone.design, alone.y)
        e = x * residual[:, None]
        return PairSum(pairs + packed(e.T @ e) - residual @ residual * _identity(frame), block.n_rows)

    return summed(one, clients)


@answer.register
def _split_moments(query: SplitMoments, clients: Held) -> PairSum:
    """Pair moments at each kind's own model, weighted by membership."""
    mixture = query.mixture
    frame, taken = _looked_at(query.frame)

    def one(block: Clients) -> PairSum:
        block = taken(block)
        rows, models = _rows(block, frame), _models(mixture, frame, block.phi.dtype)
        membership = _memberships(block, frame, mixture, hard=False)
        return PairSum(moments.pair_moments(*rows, models, membership), block.n_rows)

    return summed(one, clients)


@answer_each.register
def _project(query: Project, clients: Clients) -> Statistics:
    frame, kind = query.frame, clients.phi.dtype
    models = _pooled(frame, kind), _stretched_basis(query, kind)
    return Statistics(clients.rows.astype(np.float64), *moments.project(*_rows(clients, frame), *models))


@answer.register
def _local_step(query: LocalStep, clients: Held) -> ModelSum:
    mixture = query.mixture
    arguments = (
        np.ascontiguousarray(mixture.theta[0].T),
        mixture.log_weight[0],
        np.exp(0.5 * mixture.log_variance[0]),
        query.hard,
        SQUARED.code,
        *update_arguments(query.update),
    )

    def one(block: Clients) -> ModelSum:
        z, residual = query.frame.standardise(block.design, block.y)
        return model_sum(block, kernels.refine(z, residual, block.offsets, *arguments))

    return summed(one, clients)


@answer.register
def _expect(query: Expect, clients: Held) -> ExpectNumbers:
    frame, taken = _looked_at(query.frame)
    query = query if frame is query.frame else dataclasses.replace(query, frame=frame)

    def one(block: Clients) -> ExpectNumbers:
        numbers, missing, _ = _said(taken(block), query)
        return ExpectNumbers(numbers, missing)

    return summed(one, clients)


@answer.register
def _deviate(query: Deviate, clients: Held) -> DeviateSum:
    """Sum over clients in the units of Psi."""
    from ...kernels import random_effects as marginal

    frame, candidates, full = query.frame, query.candidates, query.full
    count, k, dim = candidates.theta.shape
    theta, spread = candidates.theta.reshape(count * k, dim), candidates.spread.reshape(count * k, -1)
    if not full:
        theta = theta @ frame.whiten.T
    width = theta.shape[1]
    matrices = unpacked(spread, width) if full else spread[:, None, :]
    # One layout of every array: each other one would be compiled for itself.
    theta, matrices, log_variance, log_weight, whiten = map(
        np.ascontiguousarray, (theta, matrices, candidates.log_variance, candidates.log_weight, frame.whiten)
    )
    units = (frame.centre, frame.stretch, frame.slope, np.array([frame.target_centre, frame.scale]), whiten)
    informed = np.full(count, -1)
    informed[list(query.informed)] = np.arange(len(query.informed))

    def one(block: Clients) -> tuple[Floats, ...]:
        mixture = (theta, matrices, full, log_variance, log_weight)
        return marginal.expect(block.phi, block.y, block.offsets, *units, *mixture, informed, query.fisher)

    def both(first: tuple[Floats, ...], second: tuple[Floats, ...]) -> tuple[Floats, ...]:
        for total, more in zip(first, second, strict=True):
            total += more  # in place: the information is large
        return first

    likelihood, people, rows, gram, score, overlap, *rest, missing = reduce(both, over_blocks(one, clients))
    return DeviateSum(
        likelihood,
        people.reshape(count, k),
        rows.reshape(count, k),
        gram.reshape(count, k, -1),
        score.reshape(count, k, -1),
        overlap,
        *information(query, gram, score, *rest),
        missing,
    )


@answer.register
def _leave_out(query: LeaveOut, clients: Held) -> LeftOutSum:
    from ...kernels import leave_one_out as leaving

    candidates = query.candidates
    theta = candidates.theta.reshape(-1, query.frame.dim)
    spread = roots(query.frame, candidates.spread.reshape(len(theta), -1), query.full)
    models, spread, log_variance, log_weight = map(
        np.ascontiguousarray, (theta.T, spread, candidates.log_variance, candidates.log_weight)
    )

    def one(block: Clients) -> LeftOutSum:
        z, y = query.frame.standardise(block.design, block.y)
        mixture = (models, spread, log_variance, log_weight)
        return LeftOutSum(*leaving.leave_out(np.ascontiguousarray(z), y, block.offsets, *mixture, query.small))

    return summed(one, clients)
