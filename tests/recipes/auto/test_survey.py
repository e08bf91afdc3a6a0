"""A search among some clients ends where a search among all does."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.packed import panel
from mixfed import LocalPool, fit_auto, label_agreement, simulate
from mixfed.exchange.pool import Sample
from mixfed.recipes.auto import survey as coarse


@pytest.mark.parametrize(("family", "k", "noise"), [("nested", 4, 0.3), ("noisy", 3, 1.0), ("rare", 3, 0.3)])
def test_a_search_among_some_clients_ends_at_the_maximum_of_all(family, k, noise, monkeypatch):
    clients = simulate(family, n_clients=30_000, dim=6, noise=noise, seed=5).clients
    monkeypatch.setattr(coarse, "SEARCH_ROWS", 100)
    sampled = fit_auto(LocalPool(clients), clients.features, k).model
    assert sampled.details["searched_clients"] < 0.4 * clients.n_clients
    monkeypatch.setattr(coarse, "WORTH_DRAWING", 0.0)
    whole = fit_auto(LocalPool(clients), clients.features, k).model
    assert whole.details["searched_clients"] == clients.n_clients
    np.testing.assert_allclose(sampled.theta, whole.theta, atol=1e-7)
    np.testing.assert_allclose(sampled.weights, whole.weights, atol=1e-7)
    np.testing.assert_allclose(sampled.coef_error, whole.coef_error, rtol=1e-2)
    assert sampled.details["likelihood"] == pytest.approx(whole.details["likelihood"], abs=1e-3)


def test_kinds_that_only_all_clients_tell_apart_are_found(monkeypatch):
    # One kind is rare: too few of its clients are in the sample for BIC to let them count.
    made = simulate(n_clients=20_000, dim=4, n_clusters=3, weights=(0.6, 0.39, 0.01), noise=1.0, seed=2)
    clients = made.clients
    monkeypatch.setattr(coarse, "SEARCH_ROWS", 60)
    monkeypatch.setattr(coarse, "LEAST_DRAWN", 100)
    drawn = coarse.SampleDesign(clients.n_clients, clients.n_rows, clients.dim, 0).draw(
        60 * coarse.SCAN_KINDS * clients.dim
    )
    some = clients.subset(drawn.places(clients.keys))
    assert fit_auto(LocalPool(some), clients.features).model.n_clusters == 2
    found = fit_auto(LocalPool(clients), clients.features).model
    assert found.details["searched_clients"] < clients.n_clients
    assert found.n_clusters == 3


def test_a_sampled_fit_has_no_doubts_about_its_maximum():
    clients = simulate("nested", n_clients=30_000, dim=5, seed=3).clients
    found = fit_auto(LocalPool(clients), clients.features)
    assert found.model.details["searched_clients"] < clients.n_clients
    assert found.model.n_clusters == 4
    assert found.model.warnings == ()
    assert found.stop == "the likelihood is at its maximum"


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("n_clients", "rows"), [(20, 8000), (100, 1000), (300, 800)])
def test_few_clients_with_many_rows_are_all_asked(n_clients, rows, seed):
    clients, labels = panel(n_clients, (rows, rows), k=3, seed=seed)
    for k in (3, None):
        model = fit_auto(LocalPool(clients), clients.features, k, seed=seed).model
        assert model.n_clusters == 3
        assert label_agreement(model.assign(clients).cluster, labels) == 1.0


def test_a_sample_has_clients_enough(monkeypatch):
    crowd = coarse.SampleDesign(n_clients=50_000, n_rows=50_000_000, dim=2, seed=0)
    assert crowd.draw(1000) == Sample(0, 2000 / 50_000)
    assert coarse.SampleDesign(n_clients=5000, n_rows=5_000_000, dim=2, seed=0).draw(1000) is None
