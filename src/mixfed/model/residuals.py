"""What the models leave over: residuals over their noise, or as quantiles of a standard normal target, counted."""

from typing import Any

import numpy as np

from ..clients.packed import Clients, offsets_of
from ..clients.store import ClientData
from ..core import draws
from ..core.arrays import Floats
from ..core.threads import side_by_side
from .assignment import Assignment
from .model import Model

_RESIDUAL_ROWS = 200_000
"""Rows whose residuals are looked at, about: enough for the shape of a distribution."""
_FARTHEST, _BINS = 5.0, 40
"""Residuals are counted up to so many standard deviations on each side, in so many bins."""
_GOLDEN = 0.5 * (np.sqrt(5.0) - 1.0)
"""By multiples of it, numbers are spread evenly."""


def residuals(model: Model, clients: ClientData, assigned: Assignment) -> dict[str, Any]:
    """Count residuals in units of each kind's noise, or quantile residuals where there is none.

    If rows are many, a sample of them is looked at.

    ``assigned`` has all clients, in their order. Gives ``edges`` (b + 1,), ``counts`` (k, b), weighted by memberships,
    in whose first and last bin is also what lies beyond, and how many ``rows`` were looked at.
    """
    share = min(1.0, _RESIDUAL_ROWS / clients.n_rows)
    start = draws.uniform(model.seed, "residuals", 0, clients.keys)[:, 0]
    taken = np.floor(share * clients.rows + start).astype(np.int64)
    family = model.target_family
    scale, edges = np.where(model.scale > 0, model.scale, 1.0), np.linspace(-_FARTHEST, _FARTHEST, _BINS + 1)

    def one(span: tuple[int, int]) -> Floats:
        block, part = clients.block(*span), slice(*span)
        owner = np.repeat(np.arange(block.n_clients), taken[part])
        offsets = offsets_of(taken[part])
        # Every so many rows of a client, from one on that its key tells.
        nth = np.arange(1, len(owner) + 1) - offsets[owner]
        place = np.ceil((nth - start[part][owner]) / share).astype(np.int64) - 1
        rows = block.offsets[owner] + np.minimum(place, block.rows[owner] - 1)
        offset = None if block.offset is None else block.offset[rows]
        some = Clients(block.phi[rows], block.y[rows], offsets, block.ids, block.features, offset).of_family(family)
        if family.quadratic:
            residual = (some.y[:, None] - some.phi @ model.coef.T - model.intercept) / scale
        else:  # between the quantiles of one less than a target and of the target one is drawn
            chance = draws.uniform(model.seed, "quantiles", 0, block.keys)[owner, 0]
            chance = (chance + nth * _GOLDEN) % 1.0
            eta = some.phi @ model.coef.T + model.intercept
            eta += 0.0 if some.offset is None else some.offset[:, None]
            residual = family.residuals(some.y[:, None], eta, scale**2, chance[:, None])
        if model.factor is not None:
            # Rows lie around their kind by its noise and by what its clients deviate.
            own = np.stack([((some.design @ factor) ** 2).sum(axis=1) for factor in model.factor], axis=1)
            residual *= scale / np.sqrt(scale**2 + own)
        place = np.clip(np.searchsorted(edges, residual, side="right") - 1, 0, _BINS - 1)
        member = assigned.probabilities[part][owner]
        return np.stack([np.bincount(place[:, j], member[:, j], _BINS) for j in range(model.n_clusters)])

    counts = np.sum(list(side_by_side(one, clients.blocks)), axis=0)
    return {"edges": np.round(edges, 6).tolist(), "counts": np.round(counts, 1).tolist(), "rows": int(taken.sum())}
