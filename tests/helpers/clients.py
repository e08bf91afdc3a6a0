"""Clients with random rows, in units that nobody would choose."""

from __future__ import annotations

import numpy as np

from mixfed.clients.memberships import memberships
from mixfed.clients.packed import Clients
from mixfed.exchange.local_update import LocalUpdate
from mixfed.exchange.units import StandardUnits


def random_frame(seed: int, columns: int, dim: int | None = None) -> StandardUnits:
    """Units that nobody would choose, for columns of a table seen in some dimensions."""
    rng = np.random.default_rng([seed, 7])
    whiten = rng.standard_normal((columns, dim or columns))
    centre, inverse_sd, slope = rng.standard_normal(columns), rng.uniform(0.5, 2, columns), rng.standard_normal(columns)
    return StandardUnits(centre, inverse_sd, whiten, slope, 0.3, 1.7, None, 1.0)


def random_clients(seed: int, sizes: list[int], dim: int, *, single: bool = False) -> Clients:
    """Clients with the given row counts, random rows and shuffled ids."""
    rng = np.random.default_rng(seed)
    rows = sum(sizes)
    phi = rng.standard_normal((rows, dim)).astype(np.float32 if single else np.float64)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    ids = rng.permutation(10 * len(sizes))[: len(sizes)]
    return Clients(phi, rng.standard_normal(rows), offsets, ids, tuple(f"x_{j}" for j in range(dim)))


def client_rows(clients: Clients, i: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows and targets of one client, in float64."""
    part = slice(clients.offsets[i], clients.offsets[i + 1])
    return clients.phi[part].astype(np.float64), clients.y[part]


def own_models(query: LocalUpdate, clients: Clients) -> np.ndarray:
    """Every client's own estimate of its model: the entry of its kind in its local update, (n_clients, d)."""
    kinds = memberships(query.mixture, clients, query.hard).argmax(axis=1)
    from helpers.exchanges import answer  # which has clients of its own

    alone = (answer(query, clients.subset(np.array([i]))) for i in range(clients.n_clients))
    return np.array([query.mixture.theta[j] + reply.mean_shift()[j] for j, reply in zip(kinds, alone, strict=True)])
