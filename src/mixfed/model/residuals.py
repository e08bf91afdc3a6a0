"""What the models leave over: residuals over their noise, counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..exchange.pool import Sample

if TYPE_CHECKING:
    from ..clients.store import Held
    from .assignment import Assignment
    from .model import Model


def residuals(model: Model, clients: Held, assigned: Assignment) -> dict[str, Any]:
    """Count residuals in units of each kind's noise, on a sample of the clients if there are many.

    ``assigned`` has all clients, in their order. Gives ``edges`` (b + 1,), ``counts`` (k, b), weighted by memberships,
    in whose first and last bin is also what lies beyond, and how many ``clients`` were looked at.
    """
    share = min(_RESIDUAL_CLIENTS / clients.n_clients, _RESIDUAL_ROWS / clients.n_rows)
    places = Sample(model.seed, share).places(clients.keys) if share < 1 else np.arange(clients.n_clients)
    some = clients.subset(places) if share < 1 else clients.block(0, clients.n_clients)
    member = np.repeat(assigned.probabilities[places], some.rows, axis=0)
    scale = np.where(model.noise > 0, model.noise, 1.0)
    residual = (some.y[:, None] - some.phi @ model.coef.T - model.intercept) / scale
    if model.factor is not None:
        # Rows lie around their kind by its noise and by what its clients deviate.
        own = np.stack([((some.design @ factor) ** 2).sum(axis=1) for factor in model.factor], axis=1)
        residual *= scale / np.sqrt(scale**2 + own)
    edges = np.linspace(-_FARTHEST, _FARTHEST, _BINS + 1)
    place = np.clip(np.searchsorted(edges, residual, side="right") - 1, 0, _BINS - 1)
    counts = [np.bincount(place[:, j], member[:, j], _BINS) for j in range(model.n_clusters)]
    return {
        "edges": np.round(edges, 6).tolist(),
        "counts": np.round(counts, 1).tolist(),
        "clients": some.n_clients,
    }


_RESIDUAL_CLIENTS, _RESIDUAL_ROWS = 20_000, 200_000
"""Clients and rows whose residuals are looked at, about: enough for the shape of a distribution."""


_FARTHEST, _BINS = 5.0, 40
"""Residuals are counted up to so many standard deviations on each side, in so many bins."""
