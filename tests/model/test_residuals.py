"""Residuals, against a plain loop."""

from __future__ import annotations

import numpy as np
import pytest

from mixfed import LocalPool, Model, Store, fit_auto, pack, simulate
from mixfed.core import draws
from mixfed.exchange.local_update import Mixture
from mixfed.model.assignment import Assignment
from mixfed.model.residuals import residuals
from mixfed.tables.write import write_parquet


def test_residuals_are_counted_in_units_of_the_noise():
    made = simulate("mirror", n_clients=400, dim=3, noise=0.5, seed=0)
    clients = made.clients
    model = fit_auto(LocalPool(clients), clients.features, 2).model
    found = residuals(model, clients, model.assign(clients))
    counts = np.zeros((2, len(found["edges"]) - 1))
    chances = model.assign(clients).probabilities
    for i in range(clients.n_clients):
        for row in range(clients.offsets[i], clients.offsets[i + 1]):
            for j in range(2):
                rest = (clients.y[row] - clients.phi[row] @ model.coef[j]) / model.noise[j]
                place = min(max(int(np.floor((rest + 5) / 0.25)), 0), counts.shape[1] - 1)
                counts[j, place] += chances[i, j]
    np.testing.assert_allclose(found["counts"], counts, atol=0.06)


@pytest.mark.parametrize(("n_clients", "rows"), [(5, 100_000), (150_000, 2)])
def test_residuals_of_many_rows_are_those_of_a_sample(tmp_path, n_clients, rows):
    made = simulate(n_clients=n_clients, dim=2, n_clusters=2, n_anchors=n_clients, anchor_rows=rows, seed=0)
    clients, kinds = made.clients, np.eye(2)[made.labels]
    model = Model.from_mixture(
        Mixture(made.theta, np.full(2, 0.5), np.full(2, 0.3)), clients.features, loss="squared", recipe="auto", seed=3
    )
    found = residuals(model, clients, Assignment(clients.ids, clients.rows, kinds))
    share = 200_000 / clients.n_rows
    starts = draws.uniform(3, "residuals", 0, clients.keys)[:, 0]
    upto = np.floor(share * np.arange(rows + 1) + starts[:, None])  # a row is taken when this rises
    taken = (np.diff(upto) > 0).ravel()
    rest = (clients.y - np.einsum("nd,nd->n", clients.phi, made.theta[np.repeat(made.labels, rows)]))[taken] / 0.3
    kind = np.repeat(made.labels, rows)[taken]
    counts = [np.histogram(np.clip(rest[kind == j], -4.99, 4.99), found["edges"])[0] for j in range(2)]
    np.testing.assert_allclose(found["counts"], counts, atol=0.06)
    assert found["rows"] == taken.sum() == pytest.approx(200_000, rel=0.01)
    inside = np.array(found["counts"])[:, 16:24].sum(axis=1) / np.array(found["counts"]).sum(axis=1)
    np.testing.assert_allclose(inside, 0.6827, atol=0.02)  # of a normal distribution, within one standard deviation
    write_parquet(tmp_path / "t.parquet", made.columns())
    packed = Store.open(pack(tmp_path / "t.parquet", tmp_path / "packed", "client", "y").path, intercept=False)
    assert residuals(model, packed, Assignment(clients.ids, clients.rows, kinds)) == found
