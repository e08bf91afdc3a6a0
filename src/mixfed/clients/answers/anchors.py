"""What anchors answer one by one, and what their recruits answer for them: the rows' part of the paper's Phase 1."""

from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from ...core import draws
from ...core.arrays import Array, Floats
from ...exchange.anchors import AnchorEquations, AnchorReplies, ApplyMoment, BlockSum, Descend, Expand, Project
from ...families.registry import family_named
from ..blocks import summed
from ..packed import Clients
from ..store import ClientData
from .dispatch import answer_all, answer_one_by_one
from .units import kernel_rows, pooled_model


@answer_all.register
def _apply_moment(query: ApplyMoment, clients: ClientData, kernels: ModuleType) -> BlockSum:
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


@answer_one_by_one.register
def descend(query: Descend, clients: Clients, kernels: ModuleType) -> AnchorReplies:
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
    direction, size = kernels.power_iteration(matrix, start, query.power_rounds)
    sign = np.where(np.einsum("hr,hr->h", direction, moments.mean(axis=1)) >= 0, 1.0, -1.0)
    heading = np.einsum("hdr,hr->hd", query.basis, sign[:, None] * direction)
    stride = np.where(size > query.threshold, query.rate * size, 0.0)
    return AnchorReplies(query.theta + stride[:, None] * heading, size)


def _fresh_rows(query: Descend, clients: Clients, place: int) -> Array:
    """Draw the 2 l rows of this round, none of which an earlier round has used. -> (2 l,)."""
    begin, end = clients.offsets[place], clients.offsets[place + 1]
    order = np.argsort(draws.draw(query.seed, "fresh rows", 0, clients.keys[place : place + 1], end - begin)[0])
    used = 2 * query.pairs * query.round
    rows: Array = begin + order[used : used + 2 * query.pairs]
    return rows


@lru_cache(maxsize=1)
def _scaled_basis(query: Project | Expand, precision: np.dtype[Any]) -> Array:
    """Give the basis for shifted and scaled columns, (D, r)."""
    return np.ascontiguousarray(query.units.whiten @ query.basis, dtype=precision)


@answer_one_by_one.register
def _project(query: Project, clients: Clients, kernels: ModuleType) -> AnchorEquations:
    units, kind = query.units, clients.phi.dtype
    models = pooled_model(units, kind), _scaled_basis(query, kind)
    equations = kernels.project(*kernel_rows(clients, units), *models, clients.weight)
    return AnchorEquations(_mass(clients), *equations)


def _mass(clients: Clients) -> Floats:
    """Give the sum of each client's weights, or its number of rows. -> (m,)."""
    if clients.weight is None:
        return clients.rows.astype(np.float64)
    return np.add.reduceat(clients.weight, clients.offsets[:-1])


@answer_one_by_one.register
def _expand(query: Expand, clients: Clients, kernels: ModuleType) -> AnchorEquations:
    units, kind = query.units, clients.phi.dtype
    about = pooled_model(units, kind), _scaled_basis(query, kind), query.ridge
    rows = *kernel_rows(clients, units), *about, clients.offset, clients.weight
    return AnchorEquations(_mass(clients), *kernels.expand(family_named(units.family), *rows))
