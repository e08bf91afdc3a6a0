"""Personal models within a kind: against known truths, in other units, and from disk."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from helpers.personal import TWO, fit, simulated
from mixfed import Clients, MixedRegressor, label_agreement, simulate
from mixfed.clients.store import Store
from mixfed.evaluation.metrics import bottleneck_matching
from mixfed.tables.rows import rows_from_arrays


@pytest.mark.slow
def test_the_form_of_psi_is_chosen_anew_for_every_number_of_kinds():
    """With too few kinds the deviations stand for kinds, and are full; with all four they are diagonal."""
    made = simulate("nested", n_clients=500, dim=5, seed=0)
    clients = made.clients
    owners = np.repeat(clients.ids, clients.rows)
    for seed in (0, 7):
        model = MixedRegressor(personal=True, random_state=seed).fit(clients.phi, clients.y, groups=owners)
        assert model.n_clusters_ == 4
        assert label_agreement(model.client_labels_, made.labels) > 0.9


@pytest.mark.slow
def test_truth_is_recovered_within_sampling_error(two):
    model = two[-1]
    assert model.n_clusters == 2
    order = bottleneck_matching(model.theta, np.array(TWO["theta"]))
    errors = np.column_stack([model.coef_error, model.intercept_error])[order]
    assert (np.abs(model.theta[order] - TWO["theta"]) < 4 * errors).all()
    assert (errors < 0.1).all()
    np.testing.assert_allclose(model.noise[order], TWO["noise"], rtol=0.06)
    np.testing.assert_allclose(model.weights[order], TWO["weights"], atol=0.04)
    for psi, truth in zip(model.deviation[order], np.array(TWO["psi"]), strict=True):
        # The error of a variance is about its size (with that of the noise) times sqrt(2 / clients of the kind).
        size = np.diag(truth) + 0.3
        assert (np.abs(psi - truth) < 4.5 * np.sqrt(np.outer(size, size)) * np.sqrt(2 / 1000)).all()


def test_the_answer_does_not_depend_on_units():
    X, y, owner, *_ = simulated(7, 300, **TWO)
    first = fit(Clients.from_arrays(X, y, owner, intercept=True), 2).model
    unit, shift = np.array([1e6, 1e-5]), np.array([3e6, 2e-5])
    other = Clients.from_arrays(X * unit + shift, 1e4 * y - 7e4, owner, intercept=True)
    second = fit(other, 2).model
    np.testing.assert_allclose(second.coef * unit / 1e4, first.coef, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(second.noise / 1e4, first.noise, rtol=1e-5)
    slopes = second.deviation[:, :2, :2] * np.outer(unit, unit) / 1e8
    np.testing.assert_allclose(slopes, first.deviation[:, :2, :2], rtol=1e-3, atol=1e-5)
    rows = rows_from_arrays(X, None, owner, intercept=True)
    moved = rows_from_arrays(X * unit + shift, None, owner, intercept=True)
    expected = first.predict(rows, first.assign(Clients.from_arrays(X, y, owner, intercept=True)))
    np.testing.assert_allclose((second.predict(moved, second.assign(other)) + 7e4) / 1e4, expected, atol=1e-4)


def test_rows_on_disk_give_the_same_model(tmp_path):
    from mixfed import pack

    X, y, owner, *_ = simulated(7, 200, **TWO)
    table = pa.table({"client": owner, "a": X[:, 0], "b": X[:, 1], "y": y})
    import pyarrow.parquet as pq

    pq.write_table(table, tmp_path / "rows.parquet")
    pack(tmp_path / "rows.parquet", tmp_path / "packed", "client", "y")
    on_disk = Store.open(tmp_path / "packed")
    in_memory = Clients.from_file(tmp_path / "rows.parquet", "client", "y")
    first, second = fit(on_disk, 2).model, fit(in_memory, 2).model
    np.testing.assert_array_equal(first.deviation, second.deviation)
    np.testing.assert_array_equal(first.assign(on_disk).effects, second.assign(in_memory).effects)


def test_the_bic_of_a_mixed_model_is_that_of_statsmodels():
    sm = pytest.importorskip("statsmodels.api")
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(60), 8)
    x = rng.normal(size=(480, 1))
    y = x[:, 0] * (1 + 0.5 * rng.normal(size=60))[owner] + 0.3 * rng.normal(size=480)
    made = Clients.from_arrays(x, y, owner)
    model = fit(made, 1, personal=True).model
    mixed = sm.MixedLM(y, x, owner, exog_re=x).fit(reml=False)
    assert model.details["likelihood"] == pytest.approx(mixed.llf, abs=0.05)
    assert model.bic == pytest.approx(3 * np.log(480) - 2 * mixed.llf, abs=0.1)
