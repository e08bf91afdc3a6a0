"""What clients do: answer a query from their own rows.

`answer` serves any set of clients at once and gives the sum of their answers.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np

from . import draws, kernels
from .arrays import Array, Floats, Ints
from .compiled import over_blocks
from .data import Clients
from .exchange import (
    AnchorReplies,
    ApplyMoment,
    BlockSum,
    Census,
    CensusSum,
    Descend,
    FedProx,
    Mixture,
    ModelSum,
    Peak,
    PeakSum,
    Refine,
    Update,
)
from .losses import SQUARED, Loss


@singledispatch
def answer(query: Any, clients: Clients, who: Array) -> Any:
    """Answer for the clients at places ``who`` (c,), summed."""
    raise TypeError(f"no client can answer a {type(query).__name__}")


@answer.register
def _census(query: Census, clients: Clients, who: Array) -> CensusSum:
    asked = clients.only(who)
    return CensusSum(
        sizes=np.bincount(asked.rows).astype(np.int64),
        low=asked.phi.min(axis=0).astype(np.float64),
        high=asked.phi.max(axis=0).astype(np.float64),
        total=asked.phi.sum(axis=0, dtype=np.float64),
        target=float(asked.y.sum()),
        target_low=float(asked.y.min()),
        target_high=float(asked.y.max()),
    )


@answer.register
def _peak(query: Peak, clients: Clients, who: Array) -> PeakSum:
    asked = clients.only(who)
    return PeakSum(max(over_blocks(kernels.peak, kernels.blocks(asked.offsets), asked.phi, asked.offsets)))


@answer.register
def _apply_moment(query: ApplyMoment, clients: Clients, who: Array) -> BlockSum:
    """Y Q = sum_i a_i (b_i^T Q) for a_i, b_i the residual moments of the client's two rows."""
    anchors, dim, width = query.block.shape
    first = clients.offsets[who]
    left, right = clients.phi[first], clients.phi[first + 1]
    # (c, h): a_i b_i^T carries the product of the two residuals, so the moments need not be built.
    product = (clients.y[first, None] - left @ query.theta.T) * (clients.y[first + 1, None] - right @ query.theta.T)
    if query.transpose:
        left, right = right, left
    # All anchors at once: (c, d) @ (d, h r), weighted, then (d, c) @ (c, h r).
    columns = query.block.transpose(1, 0, 2).reshape(dim, anchors * width)
    inner = (right @ columns).reshape(len(who), anchors, width) * product[:, :, None]
    block = left.T @ inner.reshape(len(who), anchors * width)
    return BlockSum(block.reshape(dim, anchors, width).transpose(1, 0, 2).astype(np.float64), len(who))


@answer.register
def _refine(query: Refine, clients: Clients, who: Array) -> ModelSum:
    asked = clients.only(who)
    sums = over_blocks(
        kernels.refine,
        kernels.blocks(asked.offsets),
        *_packed(asked),
        *_mixture_arguments(query.mixture),
        query.hard,
        query.loss.code,
        *update_arguments(query.update),
    )
    shift, mass, count, loss, likelihood = (sum(parts) for parts in zip(*sums, strict=True))
    return ModelSum(shift, asked.n_rows, mass, count, loss, likelihood)


@singledispatch
def answer_each(query: Any, clients: Clients, who: Array) -> Any:
    """Answer for each of the clients at places ``who`` (h,), one by one."""
    raise TypeError(f"no single client can answer a {type(query).__name__}")


@answer_each.register
def descend(query: Descend, clients: Clients, who: Array) -> AnchorReplies:
    """Take one step of moment descent on each anchor at places ``who`` (h,).

    Notes
    -----
    Where the paper is silent or slips:

    * The leading left singular vector is known up to its sign only. Of the two we take the one with
      <direction, mean of the projected residual moments> >= 0; the other one would climb.
    * E[A] = v v^T with v = U^T Sigma (theta* - theta), so |v|^2 is the singular value of A, and the eigenvalue of
      A A^T that power iteration finds is |v|^4.
    """
    rows = np.stack([_fresh_rows(query, clients, place) for place in who])  # (h, 2 l)
    phi, y = clients.phi[rows].astype(np.float64), clients.y[rows]
    residual = y - np.einsum("hrd,hd->hr", phi, query.theta)
    moments = residual[:, :, None] * (phi @ query.basis)  # (h, 2 l, r)
    left, right = moments[:, : query.pairs], moments[:, query.pairs :]
    matrix = left.transpose(0, 2, 1) @ right / query.pairs  # A, (h, r, r)
    start = draws.normal(query.seed, "power", query.round, clients.keys[who], matrix.shape[1])
    direction, size = power_iteration(matrix, start, query.power_rounds)
    sign = np.where(np.einsum("hr,hr->h", direction, moments.mean(axis=1)) >= 0, 1.0, -1.0)
    heading = np.einsum("hdr,hr->hd", query.basis, sign[:, None] * direction)
    stride = np.where(size > query.threshold, query.rate * size, 0.0)
    return AnchorReplies(query.theta + stride[:, None] * heading, size)


def power_iteration(matrix: Floats, start: Floats, rounds: int) -> tuple[Floats, Floats]:
    """Find the leading left singular vector of A and the root of its singular value.

    matrix (h, r, r), start (h, r) -> direction (h, r) of length one, size (h,).
    """
    square = matrix @ matrix.transpose(0, 2, 1)
    direction = _unit(start)
    for _ in range(rounds):
        direction = _unit(np.einsum("hij,hj->hi", square, direction))
    eigenvalue = np.einsum("hi,hij,hj->h", direction, square, direction)
    return direction, np.maximum(eigenvalue, 0.0) ** 0.25


def memberships(mixture: Mixture, clients: Clients, hard: bool = False, loss: Loss = SQUARED) -> Floats:
    """Give every client's memberships, (n_clients, k). They stay with the clients: no query asks for them."""
    # In units of the noise: squares of a target in units of its own may overflow.
    unit = mixture.noise.max()
    scaled = Mixture(mixture.theta / unit, mixture.weights, mixture.noise / unit)
    arguments = (clients.phi, clients.y / unit, clients.offsets, *_mixture_arguments(scaled), hard, loss.code)
    return np.concatenate(over_blocks(kernels.memberships, kernels.blocks(clients.offsets), *arguments))


def own_models(query: Refine, clients: Clients) -> Floats:
    """Give every client's own estimate of its model: the entry of its kind in its local update, (n_clients, d)."""
    membership = memberships(query.mixture, clients, query.hard, query.loss)
    blocks = kernels.blocks(clients.offsets)
    arguments = (*_packed(clients), query.mixture.theta, membership, query.loss.code, *update_arguments(query.update))
    return np.concatenate(over_blocks(kernels.own_models, blocks, *arguments))


def _fresh_rows(query: Descend, clients: Clients, place: int) -> Array:
    """Draw the 2 l rows of this round, none of which an earlier round has used. -> (2 l,)."""
    begin, end = clients.offsets[place], clients.offsets[place + 1]
    order = np.argsort(draws.draw(query.seed, "fresh rows", 0, clients.keys[place : place + 1], end - begin)[0])
    used = 2 * query.pairs * query.round
    rows: Array = begin + order[used : used + 2 * query.pairs]
    return rows


def _packed(clients: Clients) -> tuple[Array, Floats, Ints]:
    return clients.phi, clients.y, clients.offsets


def _mixture_arguments(mixture: Mixture) -> tuple[Floats, Floats, Floats]:
    with np.errstate(divide="ignore"):
        log_weights = np.log(mixture.weights)
    return np.ascontiguousarray(mixture.theta), log_weights, mixture.noise


def update_arguments(update: Update | None) -> tuple[int, float, int]:
    """Give the kernels' code, step and number of local steps of an update; without one nothing moves."""
    if update is None:
        return kernels.FEDAVG, 0.0, 0
    kind = kernels.FEDPROX if isinstance(update, FedProx) else kernels.FEDAVG
    return kind, float(update.step), update.local_steps


def _unit(vectors: Floats) -> Floats:
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit: Floats = np.divide(vectors, length, out=np.zeros_like(vectors), where=length > 0)
    return unit
