"""Rows with weights and offsets: as rows given more often, and as a known part of the linear predictor."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pytest
import statsmodels.api as sm

from helpers.families import COUNTING, simulated
from mixfed import AutoSettings, Clients, DataError, LocalPool, MixedRegressor, Model, SettingsError, fit_auto
from mixfed.families.registry import family_named
from mixfed.tables.roles import Extras

EVERY = pytest.mark.parametrize("family", ["gaussian", *COUNTING])
RNG = np.random.default_rng(8)


def rows_of(family, **options):
    """-> X, y, owner, offset; what comes of the predictors and an offset of a spread of 1."""
    clients, theta, labels = simulated(family, **options)
    owner = np.repeat(clients.ids, clients.rows)
    offset = np.random.default_rng(1).standard_normal(len(owner)) + 2.0
    scaled = np.column_stack([(clients.phi - 3.0) / np.array([1.0, 20.0, 0.1]), np.ones(len(owner))])
    eta = np.einsum("nd,nd->n", scaled, theta[labels[owner]]) + offset - 2.0
    y = family_named(family).draw(np.random.default_rng(2), eta, np.full(1, 0.25))
    return clients.phi, y, owner, offset


def glm(family, X, y, **more):
    kind = getattr(sm.families, family.title())()
    return sm.GLM(y, sm.add_constant(X), family=kind, **more).fit(tol=1e-12)


def fitted(family, k, X, y, owner, **more):
    ridge = None if family == "gaussian" else 0.0
    return MixedRegressor(k, family=family, settings=AutoSettings(ridge=ridge)).fit(X, y, groups=owner, **more).model_


@EVERY
def test_one_kind_is_the_generalised_linear_model_with_offset_and_weights(family):
    X, y, owner, offset = rows_of(family)
    weight = RNG.integers(1, 4, len(y)).astype(float)
    model = fitted(family, 1, X, y, owner, offset=offset, sample_weight=weight)
    expected = glm(family, X, y, offset=offset, freq_weights=weight)
    np.testing.assert_allclose(model.theta[0], np.roll(expected.params, -1), rtol=1e-6)
    np.testing.assert_allclose(model.theta_error[0], np.roll(expected.bse, -1), rtol=1e-2)
    if family != "gaussian":
        assert model.log_likelihood == pytest.approx(expected.llf, rel=1e-9)


@EVERY
@pytest.mark.parametrize("k", [1, 2])
def test_weights_of_two_are_rows_given_twice(family, k):
    X, y, owner, offset = rows_of(family)
    twice = np.repeat(np.arange(len(y)), 2)
    weighted = fitted(family, k, X, y, owner, offset=offset, sample_weight=np.full(len(y), 2.0))
    doubled = fitted(family, k, X[twice], y[twice], owner[twice], offset=offset[twice])
    for name in ("theta", "theta_error", "weights", "log_likelihood"):
        np.testing.assert_allclose(getattr(weighted, name), getattr(doubled, name), rtol=1e-5)
    np.testing.assert_allclose(weighted.scale, doubled.scale, rtol=1e-6)


@EVERY
def test_weights_of_one_and_offsets_of_a_constant_change_nothing(family):
    X, y, owner, _ = rows_of(family)
    plain = fitted(family, 2, X, y, owner)
    other = fitted(family, 2, X, y, owner, offset=np.full(len(y), 1.5), sample_weight=np.ones(len(y)))
    np.testing.assert_allclose(other.coef, plain.coef, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(other.intercept, plain.intercept - 1.5, rtol=1e-5, atol=1e-7)
    assert other.log_likelihood == pytest.approx(plain.log_likelihood, rel=1e-9)


@EVERY
def test_rows_of_weight_0_are_left_out(family):
    X, y, owner, offset = rows_of(family, n_clients=80)
    kept = RNG.random(len(y)) < 0.7
    with_zeros = fitted(family, 2, X, y, owner, offset=offset, sample_weight=kept.astype(float))
    without = fitted(family, 2, X[kept], y[kept], owner[kept], offset=offset[kept], sample_weight=np.ones(kept.sum()))
    np.testing.assert_array_equal(with_zeros.theta, without.theta)


@EVERY
def test_predictions_and_kinds_know_the_offset(family):
    X, y, owner, offset = rows_of(family)
    found = MixedRegressor(2, family=family).fit(X, y, groups=owner, offset=offset)
    known = found.predict(X, groups=owner, offset=offset)
    assert np.corrcoef(known, y)[0, 1] > np.corrcoef(found.predict(X, groups=owner), y)[0, 1]
    again = found.assign(X, y, owner, offset=offset)
    np.testing.assert_allclose(again.probabilities, found.client_proba_, atol=1e-12)
    low, high = found.predict_interval(X, groups=owner, offset=offset).T
    assert np.mean((low <= y) & (y <= high)) >= 0.88
    eta = X @ found.coef_.T + found.intercept_ + offset[:, None]
    logs = family_named(family).terms(y[:, None], eta, 2 * np.log(found.model_.scale)).likelihood
    own = np.log(found.weights_) + np.add.reduceat(logs, np.flatnonzero(np.diff(owner, prepend=-1)), axis=0)
    share = np.exp(own - own.max(axis=1, keepdims=True))
    np.testing.assert_allclose(found.client_proba_, share / share.sum(axis=1, keepdims=True), atol=1e-8)


def test_columns_of_a_table_say_exposure_and_weight(tmp_path):
    X, y, owner, offset = rows_of("poisson")
    weight = RNG.integers(1, 4, len(y)).astype(float)
    columns = {"who": owner, "y": y, "t": np.exp(offset), "times": weight, "a": X[:, 0], "b": X[:, 1], "c": X[:, 2]}
    clients = Clients.from_frame(pa.table(columns), "who", "y", extras=Extras(exposure="t", weight="times"))
    assert clients.features == ("a", "b", "c", "(intercept)")
    model = fit_auto(LocalPool(clients), clients.features, 2, AutoSettings(family="poisson", ridge=0.0)).model
    expected = fitted("poisson", 2, X, y, owner, offset=offset, sample_weight=weight)
    np.testing.assert_allclose(model.theta, expected.theta, rtol=1e-8)
    model = dataclasses.replace(model, client_column="who", exposure_column="t")
    model.save(tmp_path / "model.json")
    model = Model.load(tmp_path / "model.json")
    by_frame = model.predict(pa.table(columns))
    eta = X @ model.coef.T + model.intercept + offset[:, None]
    np.testing.assert_allclose(by_frame, np.exp(eta) @ model.weights, rtol=1e-10)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("offset", -np.inf, "the offset"),
        ("offset", np.nan, "the offset"),
        ("sample_weight", -1.0, "the weights must not be negative: that of row 4 is"),
        ("sample_weight", np.inf, "the weights"),
    ],
)
def test_what_cannot_be_an_offset_or_a_weight_is_refused(name, value, said):
    X, y, owner, _ = rows_of("poisson", n_clients=20)
    bad = np.ones(len(y))
    bad[4] = value
    with pytest.raises(DataError, match=said):
        MixedRegressor(2, family="poisson").fit(X, y, groups=owner, **{name: bad})
    with pytest.raises(DataError, match="one value per row"):
        MixedRegressor(2, family="poisson").fit(X, y, groups=owner, **{name: bad[1:]})


def test_what_has_no_weights_says_so():
    X, y, owner, _ = rows_of("gaussian", n_clients=60)
    with pytest.raises(SettingsError, match="weights go with the recipe 'auto'"):
        MixedRegressor(2, personal=True).fit(X, y, groups=owner, sample_weight=np.ones(len(y)))
    with pytest.raises(SettingsError, match="an offset or an exposure"):
        Extras("a", "b")
