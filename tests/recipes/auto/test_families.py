"""The tuning-free recipe with classes and counts: the pooled fit, the maximum, errors, and data that tell little."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import statsmodels.api as sm
from scipy.special import logsumexp

from helpers.families import COUNTING, simulated
from mixfed import (
    AutoSettings,
    Clients,
    DataError,
    LocalPool,
    MixedRegressor,
    PaperSettings,
    SettingsError,
    fit_auto,
    label_agreement,
    pack,
)
from mixfed.families.registry import family_named
from mixfed.recipes import fit

EACH = pytest.mark.parametrize("family", COUNTING)


def fitted(clients, k, family, **settings):
    return fit_auto(LocalPool(clients), clients.features, k, AutoSettings(family=family, **settings))


def log_likelihood(model, clients):
    """By a plain loop over clients."""
    family, total = family_named(model.family), 0.0
    for begin, end in zip(clients.offsets[:-1], clients.offsets[1:], strict=True):
        eta = clients.design[begin:end] @ model.theta.T
        rows = family.terms(clients.y[begin:end, None], eta, np.zeros(1)).likelihood
        total += logsumexp(np.log(model.weights) + rows.sum(axis=0))
    return total


def glm(clients, family):
    return sm.GLM(clients.y, clients.design, family=getattr(sm.families, family.title())()).fit(tol=1e-12)


@EACH
def test_one_kind_without_ridge_is_the_generalised_linear_model(family):
    clients = simulated(family)[0]
    model, expected = fitted(clients, 1, family, ridge=0.0).model, glm(clients, family)
    np.testing.assert_allclose(model.theta[0], expected.params, rtol=1e-6)
    np.testing.assert_allclose(model.theta_error[0], expected.bse, rtol=1e-2)
    assert model.log_likelihood == pytest.approx(expected.llf, rel=1e-10)
    assert model.noise is None
    assert model.bic == pytest.approx(4 * np.log(clients.n_rows) - 2 * expected.llf)


@EACH
@pytest.mark.parametrize("anchors", ["single", "summed"])
def test_two_kinds_are_found(family, anchors):
    clients, theta, labels = simulated(family)
    found = fitted(clients, 2, family, anchors=anchors)
    model = found.model
    assert found.stop == "the likelihood is at its maximum"
    assert model.log_likelihood == pytest.approx(log_likelihood(model, clients), rel=1e-9)
    assert label_agreement(model.assign(clients).cluster, labels) > 0.75
    assert not any("ridge" in said for said in model.warnings)
    assert len(theta) == model.n_clusters


@EACH
def test_with_few_large_clients_the_number_of_kinds_is_found(family):
    clients = simulated(family, seed=1, n_clients=500)[0]
    model = fitted(clients, None, family, max_clusters=4).model
    assert model.n_clusters == 2
    assert min(one["bic"] for one in model.details["choice"]) == pytest.approx(model.bic, rel=1e-6)


@EACH
def test_the_score_is_0_at_the_maximum(family):
    """The likelihood without a ridge, by differences, for the models in the units of the table."""
    clients, step = simulated(family)[0], 1e-4
    model = fitted(clients, 2, family, ridge=0.0).model
    for j, place in np.ndindex(2, 4):
        values = []
        for sign in (-1, 1):
            theta = model.theta.copy()
            theta[j, place] += sign * step / np.abs(clients.design[:, place]).mean()
            moved = dataclasses.replace(model, coef=theta[:, :3], intercept=theta[:, 3])
            values.append(log_likelihood(moved, clients))
        assert abs(values[1] - values[0]) / (2 * step) < 1e-3


@EACH
def test_the_ridge_pulls_kinds_together(family):
    clients = simulated(family, n_clients=60)[0]
    gaps = []
    for ridge in (0.0, None, 30.0):
        theta = fitted(clients, 2, family, ridge=ridge).model.theta
        gaps.append(np.linalg.norm((theta[0] - theta[1])[:3] * [1.0, 20.0, 0.1]))
    assert gaps[0] > gaps[1] > gaps[2]


@EACH
def test_units_of_columns_do_not_matter(family):
    clients = simulated(family)[0]
    model = fitted(clients, 2, family).model
    other = Clients(1e3 * clients.phi - 7.0, clients.y, clients.offsets, clients.ids, clients.features)
    again = fitted(other, 2, family).model
    np.testing.assert_allclose(1e3 * again.coef, model.coef, rtol=1e-5, atol=1e-7)
    assert again.log_likelihood == pytest.approx(model.log_likelihood, rel=1e-9)


@EACH
@pytest.mark.parametrize("how", ["separated", "all zeros", "all ones", "one class in a kind"])
def test_data_that_tell_too_little_give_finite_models(family, how):
    clients = simulated(family, n_clients=80)[0]
    y = clients.y.copy()
    if how == "separated":
        y = (clients.phi[:, 0] > 3.0).astype(float)
    elif how == "one class in a kind":
        y[: clients.offsets[40]] = 0.0
    else:
        y[:] = how == "all ones"
    poor = Clients(clients.phi, y, clients.offsets, clients.ids, clients.features)
    model = fitted(poor, 2, family).model
    assert np.isfinite(model.theta).all()
    assert np.isfinite(model.log_likelihood)
    assert np.abs(model.theta).max() < 1e3
    assert np.isfinite(model.assign(poor).probabilities).all()
    if how in ("separated", "one class in a kind") and family == "binomial":
        assert any("held by the ridge" in said for said in model.warnings)


def test_huge_counts_are_fitted():
    clients = simulated("poisson")[0]
    many = Clients(clients.phi, 1e9 * clients.y, clients.offsets, clients.ids, clients.features)
    model = fitted(many, 2, "poisson").model
    assert np.isfinite(model.theta).all()


@pytest.mark.parametrize(
    ("family", "value", "said"),
    [
        ("binomial", 0.5, "besides 0 and 1"),
        ("binomial", 2.0, "besides 0 and 1"),
        ("poisson", -1.0, "negative"),
        ("poisson", 0.5, "no whole numbers"),
    ],
)
def test_targets_of_another_family_are_refused(family, value, said):
    clients = simulated(family, n_clients=30)[0]
    y = clients.y.copy()
    y[7] = value
    with pytest.raises(DataError, match=said):
        fitted(Clients(clients.phi, y, clients.offsets, clients.ids, clients.features), 2, family)


def test_what_is_for_a_normal_target_alone_says_so():
    with pytest.raises(SettingsError, match="personal models are for the family gaussian"):
        AutoSettings(family="poisson", personal=True)
    with pytest.raises(SettingsError, match="goes with another family than gaussian"):
        AutoSettings(ridge=1.0)
    with pytest.raises(SettingsError, match="unknown family 'gamma'"):
        AutoSettings(family="gamma")
    clients = simulated("binomial", n_clients=20)[0]
    with pytest.raises(SettingsError, match="the paper's recipe is for the family gaussian"):
        fit(LocalPool(clients), clients.features, 2, PaperSettings(1.0), loss="logistic")


def test_a_loss_is_a_family_by_another_name():
    clients = simulated("binomial", n_clients=60)[0]
    model = fit(LocalPool(clients), clients.features, 1, AutoSettings(), loss="logistic").model
    assert (model.family, model.loss) == ("binomial", "logistic")


@EACH
@pytest.mark.parametrize(
    "settings", [{"update": "fedprox"}, {"update": "fedavg", "step": 0.2, "local_steps": 1}], ids=["FedProx", "FedAvg"]
)
def test_local_updates_come_near_the_maximum(family, settings):
    clients = simulated(family, n_clients=150)[0]
    exact = fitted(clients, 2, family).model
    found = fitted(clients, 2, family, refine_rounds=3000, **settings)
    assert found.model.log_likelihood == pytest.approx(exact.log_likelihood, abs=2.0)
    if settings["update"] == "fedavg":  # whose single steps have the maximum as their end
        np.testing.assert_allclose(found.model.theta, exact.theta, atol=1e-3)


@EACH
def test_hard_labels_end_where_no_client_changes_its_kind(family):
    clients = simulated(family)[0]
    found = fitted(clients, 2, family, membership="hard", ridge=0.0)
    model = found.model
    assert found.stop == "no client changed its kind"
    logs = []
    for begin, end in zip(clients.offsets[:-1], clients.offsets[1:], strict=True):
        eta = clients.design[begin:end] @ model.theta.T
        logs.append(family_named(family).terms(clients.y[begin:end, None], eta, np.zeros(1)).likelihood.sum(axis=0))
    own = np.repeat((np.array(logs) + np.log(model.weights)).argmax(axis=1), clients.rows)
    for j in range(2):
        whose = clients.phi[own == j], clients.y[own == j], np.array([0, (own == j).sum()])
        rows = Clients(*whose, clients.ids[:1], clients.features)
        np.testing.assert_allclose(model.theta[j], glm(rows, family).params, rtol=1e-4, atol=1e-6)


@EACH
def test_a_packed_folder_gives_the_same_model(family, tmp_path):
    clients = simulated(family)[0]
    columns = {"client": np.repeat(clients.ids, clients.rows), "y": clients.y}
    pq.write_table(pa.table(columns | {f"x_{j}": clients.phi[:, j] for j in range(3)}), tmp_path / "rows.parquet")
    store = pack(tmp_path / "rows.parquet", tmp_path / "packed", "client", "y")
    expected = fitted(clients, 2, family).model
    found = fitted(store, 2, family).model
    np.testing.assert_array_equal(found.theta, expected.theta)
    np.testing.assert_array_equal(found.assign(store).probabilities, expected.assign(clients).probabilities)


@EACH
def test_predictions_are_means_and_intervals_hold_as_many_targets_as_they_say(family):
    clients, _, _ = simulated(family, n_clients=800)
    owner = np.repeat(clients.ids, clients.rows)
    fit = MixedRegressor(2, family=family).fit(clients.phi, clients.y, groups=owner)
    found = fit.predict(clients.phi, groups=owner)
    assert found.mean() == pytest.approx(clients.y.mean(), rel=0.02)
    assert (found > 0).all()
    assert (found < 1).all() or family == "poisson"
    low, high = fit.predict_interval(clients.phi, groups=owner, level=0.9).T
    assert np.mean((low <= clients.y) & (clients.y <= high)) >= 0.89
    assert fit.noise_ is None
    assert fit.log_likelihood_ == fit.model_.log_likelihood
    residuals = fit.model_.details["residuals"]
    middle, counts = np.convolve(residuals["edges"], [0.5, 0.5], "valid"), np.sum(residuals["counts"], axis=0)
    assert middle @ counts / counts.sum() == pytest.approx(0.0, abs=0.05)
    assert middle**2 @ counts / counts.sum() == pytest.approx(1.0, abs=0.1)
