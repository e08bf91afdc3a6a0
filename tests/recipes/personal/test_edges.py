"""Personal models of clients that are out of the ordinary."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.personal import TWO, fit, simulated
from mixfed import AutoSettings, Clients, MixedRegressor
from mixfed.tables.rows import rows_from_arrays


def edge(name):
    rng = np.random.default_rng(3)
    X, y, owner, *_ = simulated(3, 120, **TWO)
    match name:
        case "one feature, no intercept":
            return Clients.from_arrays(X[:, :1], y, owner)
        case "one client":
            return Clients.from_arrays(X[:40], y[:40], np.zeros(40, int), intercept=True)
        case "one row each":
            return Clients.from_arrays(X, y, np.arange(len(y)), intercept=True)
        case "collinear":
            return Clients.from_arrays(np.column_stack([X, X.sum(axis=1)]), y, owner, intercept=True)
        case "constant column":
            return Clients.from_arrays(np.column_stack([X, np.full(len(X), 3.0)]), y, owner, intercept=True)
        case "single precision":
            return Clients.from_arrays(X.astype(np.float32), y, owner, intercept=True)
        case "names":
            return Clients.from_arrays(X, y, np.array([f"client {i}" for i in owner]), intercept=True)
        case "no noise":
            return Clients.from_arrays(X, X @ [1.0, 2.0] + 1.0, owner, intercept=True)
        case "no rows to spare":
            return Clients.from_arrays(X[:3], y[:3], np.array([0, 1, 1]), intercept=True)
        case _:
            return Clients.from_arrays(rng.standard_normal((300, 30)), rng.standard_normal(300), np.arange(300) // 3)


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize(
    "name",
    [
        "one feature, no intercept",
        "one client",
        "one row each",
        "collinear",
        "constant column",
        "single precision",
        "names",
        "no noise",
        "no rows to spare",
        "many features",
    ],
)
def test_edges(name, k):
    clients = edge(name)
    if k > clients.n_clients:
        return
    model = fit(clients, k).model
    known = model.assign(clients)
    rows = rows_from_arrays(
        clients.phi,
        None,
        np.repeat(clients.ids, clients.rows),
        intercept=clients.intercept,
        features=clients.features[: clients.phi.shape[1]],
    )
    prediction, bounds = (
        model.predict(rows, known),
        model.predict_interval(rows, model.assign(clients, uncertainty=True)),
    )
    assert np.isfinite(prediction).all()
    assert np.isfinite(bounds).all()
    assert (bounds[:, 0] <= bounds[:, 1]).all()
    error = np.sqrt(np.mean((prediction - clients.y) ** 2))
    assert error <= 1.01 * clients.y.std() + 1e-6 * np.abs(clients.y).max()


def test_collinear_columns_change_no_prediction():
    first, second = edge("names"), edge("collinear")
    ids = np.repeat(second.ids, second.rows)
    predictions = []
    for clients, names in ((first, first.ids), (second, second.ids)):
        model = fit(clients, 2).model
        rows = rows_from_arrays(clients.phi, None, np.repeat(names, clients.rows), intercept=True)
        by_row = dict(zip(clients.y.tolist(), model.predict(rows, model.assign(clients)).tolist(), strict=True))
        predictions.append(np.array([by_row[value] for value in sorted(by_row)]))
    assert len(ids) == second.n_rows
    np.testing.assert_allclose(predictions[0], predictions[1], atol=1e-4)


def test_one_noise_for_all_kinds():
    X, y, owner, *_ = simulated(7, 300, **TWO)
    model = fit(Clients.from_arrays(X, y, owner, intercept=True), 2, noise="shared").model
    assert model.noise[0] == pytest.approx(model.noise[1])


def test_tied_columns_do_not_break_the_starts():
    """A full set of dummies and an intercept: a diagonal Psi has more columns than there are directions."""
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(300), 4)
    dummies = np.eye(3)[rng.integers(0, 3, len(owner))]
    X = np.column_stack([rng.standard_normal(len(owner)), dummies])
    own = np.where(np.arange(300) % 2, 2.0, -2.0)[owner] + 0.3 * rng.standard_normal(300)[owner]
    y = own * X[:, 0] + dummies @ [0.0, 1.0, 2.0] + 0.3 * rng.standard_normal(len(owner))
    model = MixedRegressor(2, settings=AutoSettings(personal=True)).fit(X, y, groups=owner)
    assert sorted(model.coef_[:, 0].round(1)) == pytest.approx([-2.0, 2.0], abs=0.2)
