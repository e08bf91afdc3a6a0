"""What clients do: answer a query from their own rows.

`answer` serves all clients that are held in one place at once and gives the sum of their answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce, singledispatch
from operator import add
from typing import Any, TypeVar

import numpy as np

from . import draws, kernels, local, moments
from .arrays import Array, Floats, Ints
from .compiled import one_blas_thread, side_by_side
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
    Sum,
    Update,
)
from .losses import SQUARED, Loss
from .store import Held

T = TypeVar("T")
S = TypeVar("S", bound=Sum)


def over_blocks(one: Callable[[Clients], T], clients: Held) -> Iterator[T]:
    """Say what ``one`` says of each block of the clients, on all cores, in order."""
    return side_by_side(lambda edges: one(clients.block(*edges)), clients.blocks)


def summed(one: Callable[[Clients], S], clients: Held) -> S:
    """Add up what ``one`` says of each block of the clients, in order."""
    return reduce(add, over_blocks(one, clients))


@singledispatch
def answer(query: Any, clients: Held) -> Any:
    """Answer for all clients held here, summed."""
    raise TypeError(f"no client can answer a {type(query).__name__}")


@answer.register
def _census(query: Census, clients: Held) -> CensusSum:
    def one(block: Clients) -> CensusSum:
        sizes = np.bincount(block.rows).astype(np.int64)
        looked = moments.census(block.phi, block.y, block.dim)
        return CensusSum(sizes, *looked, single=block.phi.dtype == np.float32)

    return summed(one, clients)


@answer.register
def _peak(query: Peak, clients: Held) -> PeakSum:
    largest = max(over_blocks(lambda block: kernels.peak(block.design, block.offsets), clients))
    return PeakSum(moments.round_up(largest))  # one client's own is not to be told


@answer.register
def _apply_moment(query: ApplyMoment, clients: Held) -> BlockSum:
    """Y Q = sum_i a_i (b_i^T Q) for a_i, b_i the residual moments of the client's two rows."""
    anchors, dim, width = query.block.shape

    def one(block: Clients) -> BlockSum:
        first, phi = block.offsets[:-1], block.design
        left, right = phi[first], phi[first + 1]
        # (c, h): a_i b_i^T carries the product of the two residuals, so the moments need not be built.
        product = (block.y[first, None] - left @ query.theta.T) * (block.y[first + 1, None] - right @ query.theta.T)
        if query.transpose:
            left, right = right, left
        # All anchors at once: (c, d) @ (d, h r), weighted, then (d, c) @ (c, h r).
        columns = query.block.transpose(1, 0, 2).reshape(dim, anchors * width)
        inner = (right @ columns).reshape(len(first), anchors, width) * product[:, :, None]
        moved = left.T @ inner.reshape(len(first), anchors * width)
        return BlockSum(moved.reshape(dim, anchors, width).transpose(1, 0, 2).astype(np.float64), len(first))

    return summed(one, clients)


@answer.register
def _refine(query: Refine, clients: Held) -> ModelSum:
    update = update_arguments(query.update)

    def one(block: Clients) -> ModelSum:
        rows, models = _packed(block), _mixture_arguments(query.mixture, block.phi.dtype)
        return model_sum(block, kernels.refine(*rows, *models, query.hard, query.loss.code, *update))

    return summed(one, clients)


def model_sum(block: Clients, sums: tuple[Floats, Floats, Floats, Floats, float]) -> ModelSum:
    """Name what the kernel gives."""
    shift, mass, count, loss, likelihood = sums
    return ModelSum(shift, block.n_rows, mass, count, loss, likelihood)


@singledispatch
def answer_each(query: Any, clients: Clients) -> Any:
    """Answer for each of the clients, one by one."""
    raise TypeError(f"no single client can answer a {type(query).__name__}")


@answer_each.register
def descend(query: Descend, clients: Clients) -> AnchorReplies:
    """Take one step of moment descent on each anchor (h of them).

    Notes
    -----
    Where the paper is silent or slips:

    * The leading left singular vector is known up to its sign only. Of the two we take the one with
      <direction, mean of the projected residual moments> >= 0; the other one would climb.
    * E[A] = v v^T with v = U^T Sigma (theta* - theta), so |v|^2 is the singular value of A, and the eigenvalue of
      A A^T that power iteration finds is |v|^4.
    """
    rows = np.stack([_fresh_rows(query, clients, place) for place in range(clients.n_clients)])  # (h, 2 l)
    phi, y = clients.design[rows].astype(np.float64), clients.y[rows]
    residual = y - np.einsum("hrd,hd->hr", phi, query.theta)
    moments = residual[:, :, None] * (phi @ query.basis)  # (h, 2 l, r)
    left, right = moments[:, : query.pairs], moments[:, query.pairs :]
    matrix = left.transpose(0, 2, 1) @ right / query.pairs  # A, (h, r, r)
    start = draws.normal(query.seed, "power", query.round, clients.keys, matrix.shape[1])
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


def memberships(mixture: Mixture, clients: Held, hard: bool = False, loss: Loss = SQUARED) -> Floats:
    """Give every client's memberships, (n_clients, k). They stay with the clients: no query asks for them."""
    # In units of the noise: squares of a target in units of its own may overflow.
    unit = mixture.noise.max()
    scaled = Mixture(mixture.theta / unit, mixture.weights, mixture.noise / unit)

    def one(block: Clients) -> Floats:
        # In double precision, whatever that of the rows: here nothing is centred, and an offset would cost the digits.
        phi, y, offsets = block.design.astype(np.float64, copy=False), block.y / unit, block.offsets
        return kernels.memberships(phi, y, offsets, *_mixture_arguments(scaled, phi.dtype), hard, loss.code)

    with one_blas_thread():
        return np.concatenate(list(over_blocks(one, clients)))


def _fresh_rows(query: Descend, clients: Clients, place: int) -> Array:
    """Draw the 2 l rows of this round, none of which an earlier round has used. -> (2 l,)."""
    begin, end = clients.offsets[place], clients.offsets[place + 1]
    order = np.argsort(draws.draw(query.seed, "fresh rows", 0, clients.keys[place : place + 1], end - begin)[0])
    used = 2 * query.pairs * query.round
    rows: Array = begin + order[used : used + 2 * query.pairs]
    return rows


def _packed(clients: Clients) -> tuple[Array, Floats, Ints]:
    return clients.design, clients.y, clients.offsets


def _mixture_arguments(mixture: Mixture, precision: Any) -> tuple[Array, Floats, Floats]:
    """Give the models (d, k) in the precision of the rows, log weights and noise."""
    with np.errstate(divide="ignore"):
        log_weights = np.log(mixture.weights)
    return np.ascontiguousarray(mixture.theta.T, dtype=precision), log_weights, mixture.noise


def update_arguments(update: Update | None) -> tuple[int, float, int]:
    """Give the kernels' code, step and number of local steps of an update; without one nothing moves."""
    if update is None:
        return local.FEDAVG, 0.0, 0
    kind = local.FEDPROX if isinstance(update, FedProx) else local.FEDAVG
    return kind, float(update.step), update.local_steps


def _unit(vectors: Floats) -> Floats:
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit: Floats = np.divide(vectors, length, out=np.zeros_like(vectors), where=length > 0)
    return unit
