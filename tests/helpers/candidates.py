"""Candidates for mixtures, and what one client says of them by a plain loop."""

from __future__ import annotations

import numpy as np

from helpers.clients import client_rows
from mixfed.exchange.mixture import Candidates
from mixfed.exchange.units import StandardUnits


def random_mixtures(rng, count, k, dim):
    """Make candidates."""
    weight = np.log(rng.dirichlet(np.full(k, 2.0), size=count))
    return Candidates(rng.standard_normal((count, k, dim)), rng.uniform(-1, 1, (count, k)), weight)


def plain_frame(dim: int) -> StandardUnits:
    """Units in which nothing is changed."""
    return StandardUnits(np.zeros(dim), np.ones(dim), np.eye(dim), np.zeros(dim), 0.0, 1.0, None, 1.0)


def random_candidates(seed: int, count: int, k: int, dim: int) -> Candidates:
    rng = np.random.default_rng([seed, 8])
    weight = np.log(rng.dirichlet(np.full(k, 2.0), size=count))
    return Candidates(rng.standard_normal((count, k, dim)), rng.uniform(-1, 1, (count, k)), weight)


def standard_rows(clients, frame, i):
    phi, y = client_rows(clients, i)
    x = (phi - frame.centre) * frame.inverse_sd
    return x @ frame.whiten, (y - frame.target_centre - x @ frame.slope) / frame.scale


def log_density(z, y, candidates, c):
    """log of w_j prod N(y | z theta_j, s_j^2) of one client, (k,)."""
    squares = np.array([np.sum((y - z @ theta) ** 2) for theta in candidates.theta[c]])
    variance = np.exp(candidates.log_variance[c])
    return candidates.log_weight[c] - 0.5 * len(y) * np.log(2 * np.pi * variance) - squares / (2 * variance)
