"""How many kinds there are, and the criterion that says so."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.auto import fit
from mixfed import bottleneck_distance, simulate


@pytest.mark.slow
@pytest.mark.parametrize(
    "design",
    [
        {"n_clusters": 1, "dim": 5, "n_clients": 500},
        {"what": "mirror", "n_clients": 1000},
        {"what": "rare", "n_clients": 3000},
        {"what": "nested", "n_clients": 2500},
        {"n_clusters": 6, "dim": 12, "n_clients": 2500},
    ],
    ids=lambda design: design.get("what") or str(design["n_clusters"]),
)
def test_the_number_of_kinds_is_found(design):
    made = simulate(seed=11, **design)
    found = fit(made.clients)
    assert found.model.n_clusters == len(made.theta)
    choice = found.model.details["choice"]
    assert [entry["n_clusters"] for entry in choice] == list(range(1, len(choice) + 1))
    assert min(choice, key=lambda entry: entry["bic"])["n_clusters"] == len(made.theta)
    likelihood = [entry["likelihood"] for entry in choice]
    assert np.all(np.diff(likelihood[: len(made.theta)]) > 0)


@pytest.mark.slow
def test_the_number_of_kinds_is_found_by_sums_in_a_basis_narrower_than_the_features():
    clients = simulate(n_clients=400, dim=9, n_clusters=3, noise=0.5, seed=0).clients
    summed, single = fit(clients, anchors="summed"), fit(clients)
    assert bottleneck_distance(summed.model.theta, single.model.theta) < 1e-6


def test_the_reported_bic_is_that_of_the_reported_likelihood():
    made = simulate("mirror", n_clients=500, dim=3, seed=0)
    model = fit(made.clients).model
    final = {"n_clusters": model.n_clusters, "likelihood": model.details["likelihood"], "bic": model.bic}
    for entry in [*model.details["choice"], final]:
        free = entry["n_clusters"] * (3 + 1) + entry["n_clusters"] - 1
        assert entry["bic"] == pytest.approx(free * np.log(made.clients.n_rows) - 2 * entry["likelihood"])


def test_the_bic_is_that_of_statsmodels():
    """Of one kind: a linear model, with all constants; theirs takes the noise to be no parameter."""
    sm = pytest.importorskip("statsmodels.api")
    made = simulate(n_clusters=1, n_clients=200, dim=3, seed=1).clients
    model = fit(made, 1).model
    ols = sm.OLS(made.y, made.phi).fit()
    assert model.details["likelihood"] == pytest.approx(ols.llf, abs=0.01)  # a kind is given two more rows
    assert model.bic == pytest.approx(ols.bic + np.log(made.n_rows), abs=0.02)
