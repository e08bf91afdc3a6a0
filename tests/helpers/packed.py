"""Clients of all sizes, and in single precision."""

from __future__ import annotations

import numpy as np

from mixfed import Clients


def single(clients: Clients) -> Clients:
    return Clients(clients.phi.astype(np.float32), clients.y, clients.offsets, clients.ids, clients.features)


def panel(n_clients, rows, *, k=2, dim=3, noise=0.3, seed=0, kind=np.float64, shift=0.0, y_shift=0.0):
    """Clients with about equally many rows each, with an intercept."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(rows[0], rows[1] + 1, n_clients)
    owner, labels = np.repeat(np.arange(n_clients), sizes), rng.integers(k, size=n_clients)
    theta, x = 1.5 * rng.normal(size=(k, dim)), rng.normal(size=(len(owner), dim))
    y = np.einsum("nd,nd->n", x, theta[labels[owner]]) + noise * rng.normal(size=len(owner))
    clients = Clients.from_arrays((x + shift).astype(kind), y + y_shift, owner, intercept=True)
    return clients, labels
