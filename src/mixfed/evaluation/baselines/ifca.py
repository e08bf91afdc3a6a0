"""IFCA (Ghosh, Chung, Yin, Ramchandran 2020): each client picks its best model, then one gradient step.

Clients are weighted by their rows, which its authors' own code does not do and which it needs when clients are unequal.
By an identity of the paper this is Phase 2 with FedAvg, one local step and hard labels.
"""

import numpy as np

from ...core.arrays import Floats
from ...exchange.pool import Pool
from ...recipes.paper import fedx
from ...recipes.settings import PaperSettings


def fit_ifca(pool: Pool, start: Floats, step: float, rounds: int) -> Floats:
    """Run IFCA from models start (k, d). -> (k, d)."""
    settings = PaperSettings(separation=1.0, step=step, local_steps=1, refine_rounds=rounds)
    state, info = fedx.init(start, pool), None
    while fedx.stopped(state, info, settings) is None:
        state, info = fedx.step(state, pool, settings)
    return state.mixture.theta


def random_start(k: int, dim: int, radius: float, rng: np.random.Generator) -> Floats:
    """Draw models of a given norm in random directions. -> (k, dim)."""
    raw = rng.standard_normal((k, dim))
    return np.asarray(radius * raw / np.linalg.norm(raw, axis=1, keepdims=True))
