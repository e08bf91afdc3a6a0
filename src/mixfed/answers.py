"""What clients do in the tuning-free recipe: answer its queries from their own rows, in standard units.

Rows are put into standard units block by block, as they are needed: no second copy of the table is kept. This module
adds to the `answer` and `answer_each` of `client`, and is where the pools get them from.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import TypeVar

import numpy as np

from . import kernels
from .arrays import Array, Floats, Ints
from .candidates import (
    Candidates,
    Expect,
    ExpectSum,
    Frame,
    Gram,
    GramSum,
    LocalStep,
    MatrixSum,
    PairMoments,
    Project,
    SplitMoments,
    Statistics,
)
from .client import answer as answer
from .client import answer_each as answer_each
from .client import update_arguments
from .compiled import compiled, over_blocks
from .data import Clients
from .exchange import ModelSum, Replies, Sum, Together
from .losses import SQUARED

S = TypeVar("S", bound=Sum)

_NEGLIGIBLE = 1e-10
"""Memberships below this do not count: they would change no digit that matters and cost most of the time."""
_SURE = 1e-6
"""A client this sure of its kind misses no information worth the name."""


class Block:
    """Some clients' rows in standard units: z (n, d), residual (n,), offsets (m + 1,), rows (m,)."""

    def __init__(self, clients: Clients, frame: Frame, begin: int, end: int) -> None:
        part = slice(clients.offsets[begin], clients.offsets[end])
        self.z, self.residual = frame.standardise(clients.phi[part], clients.y[part])
        self.offsets: Ints = clients.offsets[begin : end + 1] - clients.offsets[begin]
        self.rows: Ints = np.diff(self.offsets)

    def per_client(self, values: Floats) -> Floats:
        """Sum rows (n, ...) within each client. -> (m, ...)."""
        sums: Floats = np.add.reduceat(values, self.offsets[:-1], axis=0)
        return sums

    def per_row(self, values: Floats) -> Floats:
        """Repeat what belongs to a client (m, ...) for each of its rows. -> (n, ...)."""
        return np.repeat(values, self.rows, axis=0)


def summed(clients: Clients, who: Array, frame: Frame, one: Callable[[Block], S]) -> S:
    """Add up what ``one`` says of each block of the clients asked."""
    asked = clients.only(who)
    parts = over_blocks(
        lambda begin, end: one(Block(asked, frame, begin, end)),
        kernels.blocks(asked.offsets),
    )
    return reduce(add, parts)


@answer.register
def _together(query: Together, clients: Clients, who: Array) -> Replies:
    return Replies(tuple(answer(part, clients, who) for part in query.parts))


@answer.register
def _gram(query: Gram, clients: Clients, who: Array) -> GramSum:
    dim = len(query.unit)
    scaled = Frame(
        query.centre, np.diag(1.0 / query.unit), np.zeros(dim), query.target_centre, query.target_unit, None, 1.0
    )

    def one(block: Block) -> GramSum:
        z, y = block.z, block.residual
        return GramSum(z.T @ z, z.T @ y, float(y @ y))

    return summed(clients, who, scaled, one)


@answer.register
def _pair_moments(query: PairMoments, clients: Clients, who: Array) -> MatrixSum:
    """sum_i [(sum e)(sum e)^T - sum e e^T] / (n_i - 1), where e = residual z: all pairs of different rows."""

    def one(block: Block) -> MatrixSum:
        matrix = _pairs(block, block.z * block.residual[:, None], np.ones(len(block.rows)))
        if query.lone:
            alone = block.per_row(block.rows == 1)
            e, square = block.z[alone] * block.residual[alone, None], block.residual[alone] ** 2
            matrix += e.T @ e - square.sum() * np.eye(matrix.shape[0])
        return MatrixSum(matrix)

    return summed(clients, who, query.frame, one)


@answer.register
def _split_moments(query: SplitMoments, clients: Clients, who: Array) -> MatrixSum:
    """Pair moments at each kind's own model, weighted by membership."""

    def one(block: Block) -> MatrixSum:
        membership = _posterior(block, query.mixture, hard=False)[1][:, 0]
        theta = query.mixture.theta[0]
        matrices = []
        for j in range(len(theta)):
            e = block.z * (block.residual - block.z @ theta[j])[:, None]
            matrices.append(_pairs(block, e, membership[:, j]))
        return MatrixSum(np.array(matrices))

    return summed(clients, who, query.frame, one)


@answer_each.register
def _project(query: Project, clients: Clients, who: Array) -> Statistics:
    block = Block(clients.subset(who), query.frame, 0, len(who))
    z = block.z @ query.basis
    return Statistics(
        block.rows.astype(np.float64),
        block.per_client(block.residual**2),
        block.per_client(z * block.residual[:, None]),
        block.per_client(z[:, :, None] * z[:, None, :]),
    )


@answer.register
def _local_step(query: LocalStep, clients: Clients, who: Array) -> ModelSum:
    mixture = query.mixture
    arguments = (
        mixture.theta[0],
        mixture.log_weight[0],
        np.exp(0.5 * mixture.log_variance[0]),
        query.hard,
        SQUARED.code,
        *update_arguments(query.update),
    )

    def one(block: Block) -> ModelSum:
        sums = kernels.refine(0, len(block.rows), block.z, block.residual, block.offsets, *arguments)
        shift, mass, count, loss, likelihood = sums
        return ModelSum(shift, len(block.z), mass, count, loss, likelihood)

    return summed(clients, who, query.frame, one)


@answer.register
def _expect(query: Expect, clients: Clients, who: Array) -> ExpectSum:
    return summed(clients, who, query.frame, lambda block: _expect_block(block, query))


def _expect_block(block: Block, query: Expect) -> ExpectSum:
    candidates = query.candidates
    likelihood, membership, losses = _posterior(block, candidates, query.hard)
    missing = [_missing_information(block, candidates.pick(c), membership[:, c], losses[:, c]) for c in query.informed]
    _, k, dim = candidates.theta.shape
    p = k * (dim + 2)
    return weighted_sums(block, membership, likelihood.sum(axis=0), np.array(missing).reshape(-1, p, p))


def weighted_sums(block: Block, membership: Floats, likelihood: Floats, missing: Floats) -> ExpectSum:
    """Sum the normal equations of a block weighted by memberships (m, C, k)."""
    _, count, k = membership.shape
    dim = block.z.shape[1]
    flat = membership.reshape(-1, count * k)
    square, cross = np.empty(count * k), np.empty((count * k, dim))
    gram = np.empty((count * k, dim, dim))
    for j in range(count * k):
        members = np.flatnonzero(flat[:, j] > _NEGLIGIBLE)
        rows = _rows_of(block, members)
        weight = np.repeat(flat[members, j], block.rows[members])
        z, y = block.z[rows], block.residual[rows]
        weighted = z * weight[:, None]
        square[j], cross[j], gram[j] = y @ (weight * y), y @ weighted, weighted.T @ z
    return ExpectSum(
        likelihood=likelihood,
        clients=membership.sum(axis=0),
        rows=(block.rows @ flat).reshape(count, k),
        square=square.reshape(count, k),
        cross=cross.reshape(count, k, dim),
        gram=gram.reshape(count, k, dim, dim),
        overlap=np.einsum("mcj,mcl->cjl", membership, membership),
        missing=missing,
    )


def _missing_information(block: Block, mixture: Candidates, membership: Floats, losses: Floats) -> Floats:
    """Sum over clients the covariance of their complete score over the kinds. -> (p, p), p = k (d + 2).

    membership (m, k), losses (m, k): squared residuals. The score of kind j is that of (theta_j, log variance_j, log
    weight_j). Clients that are sure of their kind have none.
    """
    k, dim = mixture.theta[0].shape
    p = k * (dim + 2)
    unsure = np.flatnonzero(membership.max(axis=1) < 1 - _SURE)
    if len(unsure) == 0:
        return np.zeros((p, p))
    precision = np.exp(-mixture.log_variance[0])
    rows, sizes, share = _rows_of(block, unsure), block.rows[unsure], membership[unsure]
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    z, y = block.z[rows], block.residual[rows]
    score = np.empty((len(unsure), k, dim + 2))
    for j in range(k):
        residual = y - z @ mixture.theta[0, j]
        score[:, j, :dim] = np.add.reduceat(z * residual[:, None], starts, axis=0) * precision[j]
    score[:, :, dim] = 0.5 * (losses[unsure] * precision - sizes[:, None])
    score[:, :, dim + 1] = 1.0
    weighted = score * share[:, :, None]
    flat = weighted.reshape(len(unsure), p)
    missing = -flat.T @ flat
    for j in range(k):
        own = slice(j * (dim + 2), (j + 1) * (dim + 2))
        missing[own, own] += weighted[:, j].T @ score[:, j]
    return missing


def _posterior(block: Block, candidates: Candidates, hard: bool) -> tuple[Floats, Floats, Floats]:
    """Give log likelihoods (m, C), memberships (m, C, k) and squared residuals (m, C, k) of the block's clients."""
    count, k, dim = candidates.theta.shape
    predicted = block.z @ candidates.theta.reshape(count * k, dim).T
    losses = np.empty((len(block.rows), count, k))
    squared_residuals(predicted, block.residual, block.offsets, losses.reshape(len(block.rows), count * k))
    membership, likelihood = np.empty_like(losses), np.empty(losses.shape[:2])
    posterior(
        losses,
        block.rows.astype(np.float64),
        candidates.log_variance,
        candidates.log_weight,
        hard,
        membership,
        likelihood,
    )
    return likelihood, membership, losses


@compiled
def squared_residuals(predicted: Floats, target: Floats, offsets: Ints, out: Floats) -> None:
    """Sum squared residuals by client. predicted (n, l), target (n,), offsets (m + 1,) -> out (m, l)."""
    out[:] = 0.0
    for i in range(len(offsets) - 1):
        for row in range(offsets[i], offsets[i + 1]):
            for j in range(predicted.shape[1]):
                residual = target[row] - predicted[row, j]
                out[i, j] += residual * residual


@compiled
def posterior(
    losses: Floats,
    rows: Floats,
    log_variance: Floats,
    log_weight: Floats,
    hard: bool,
    membership: Floats,
    likelihood: Floats,
) -> None:
    """Turn squared residuals (m, C, k) into memberships (m, C, k) and log likelihoods (m, C)."""
    clients, count, k = losses.shape
    half_spread = 0.5 * (np.log(2.0 * np.pi) + log_variance)
    half_precision = 0.5 * np.exp(-log_variance)
    for i in range(clients):
        for c in range(count):
            own = membership[i, c]
            for j in range(k):
                own[j] = log_weight[c, j] - rows[i] * half_spread[c, j] - losses[i, c, j] * half_precision[c, j]
            best = np.argmax(own)
            top = own[best]
            total = 0.0
            for j in range(k):
                below = own[j] - top
                own[j] = np.exp(below) if below > -40.0 else 0.0  # exp(-40) is below rounding
                total += own[j]
            if hard:
                own[:] = 0.0
                own[best] = 1.0
                likelihood[i, c] = top
            else:
                own /= total
                likelihood[i, c] = top + np.log(total)


def _pairs(block: Block, e: Floats, weight: Floats) -> Floats:
    """Give sum_i w_i [(sum e)(sum e)^T - sum e e^T] / (n_i - 1). e (n, d), weight (m,) -> (d, d)."""
    share = np.where(block.rows > 1, weight / np.maximum(block.rows - 1, 1), 0.0)
    total = block.per_client(e)
    matrix: Floats = (total * share[:, None]).T @ total - (e * block.per_row(share)[:, None]).T @ e
    return matrix


def _rows_of(block: Block, members: Array) -> Array:
    """Give the places of the members' rows in the block."""
    sizes = block.rows[members]
    ends = np.cumsum(sizes)
    rows: Array = np.arange(ends[-1] if len(ends) else 0) + np.repeat(block.offsets[members] - (ends - sizes), sizes)
    return rows
