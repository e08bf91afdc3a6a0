"""Whole fits find the same by plain and by compiled kernels, whatever the recipe."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.personal import TWO, simulated
from mixfed import AutoSettings, Clients, LocalPool, PaperSettings, fit_auto, fit_paper, simulate
from mixfed.kernels import named

PAPER = {"n_anchors": 8, "n_recruits": 100, "pairs": 20, "rounds": 6, "refine_rounds": 20}


def both(clients, fit):
    """Fit by each of the kernels."""
    found = []
    for name in ("plain", "compiled"):
        pool = LocalPool(clients)
        pool.kernels = named(name)
        found.append(fit(pool))
    plain, compiled = (one.model for one in found)
    assert plain.theta.shape == compiled.theta.shape
    for part in ("theta", "weights", "noise"):
        one, other = getattr(plain, part), getattr(compiled, part)
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-9 * np.abs(one).max())
    assert plain.warnings == compiled.warnings
    assert found[0].traffic.exchanges == found[1].traffic.exchanges


@pytest.mark.slow
@pytest.mark.compiles
@pytest.mark.parametrize("n_clusters", [3, None])
@pytest.mark.parametrize(
    "settings",
    [{}, {"anchors": "summed"}, {"membership": "hard"}, {"noise": "shared"}, {"update": "fedavg", "step": 0.1}],
    ids=str,
)
def test_the_tuning_free_recipe(settings, n_clusters):
    clients = simulate("nested", n_clients=900, dim=5, seed=7).clients
    both(clients, lambda pool: fit_auto(pool, clients.features, n_clusters, AutoSettings(max_clusters=4, **settings)))


@pytest.mark.slow
@pytest.mark.compiles
def test_personal_models():
    X, y, owner, *_ = simulated(3, 600, **TWO)
    clients = Clients.from_arrays(X, y, owner, intercept=True)
    both(clients, lambda pool: fit_auto(pool, clients.features, 2, AutoSettings(personal=True)))


@pytest.mark.slow
@pytest.mark.compiles
@pytest.mark.parametrize("update", ["fedavg", "fedprox"])
def test_the_recipe_of_the_paper(update):
    made = simulate(n_clients=2000, dim=4, n_clusters=2, n_anchors=10, anchor_rows=400, seed=5)
    settings = PaperSettings(1.5, update=update, **PAPER)
    both(made.clients, lambda pool: fit_paper(pool, made.clients.features, 2, settings))
