"""Clients whose targets are classes or counts."""

from __future__ import annotations

import numpy as np

from mixfed.clients.packed import Clients
from mixfed.families.registry import family_named

COUNTING = ("binomial", "poisson")


def simulated(family: str, seed: int = 0, n_clients: int = 300, dim: int = 3, k: int = 2, size: float = 1.2):
    """Clients of 3 to 12 rows and a few of 60, with an intercept. -> clients, theta (k, dim + 1), labels."""
    rng = np.random.default_rng([seed, 5])
    theta = rng.standard_normal((k, dim + 1))
    theta *= size / np.linalg.norm(theta, axis=1, keepdims=True)
    sizes = rng.integers(3, 13, n_clients)
    sizes[:15] = 60
    labels = rng.integers(k, size=n_clients)
    owner = np.repeat(np.arange(n_clients), sizes)
    x = rng.standard_normal((len(owner), dim)) * np.array([1.0, 20.0, 0.1])[:dim] + 3.0
    design = np.column_stack([(x - 3.0) / np.array([1.0, 20.0, 0.1])[:dim], np.ones(len(x))])
    eta = np.einsum("nd,nd->n", design, theta[labels[owner]])
    y = family_named(family).draw(rng, eta, np.ones(1))
    return Clients.from_arrays(x, y, owner, intercept=True), theta, labels
