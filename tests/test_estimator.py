"""MixedRegressor is a real scikit-learn regressor."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.metrics import r2_score
from sklearn.model_selection import GroupKFold, KFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from helpers.clients import random_clients
from helpers.families import simulated as classes_or_counts
from mixfed import (
    AutoSettings,
    DataError,
    MixedClassifier,
    MixedRegressor,
    PaperSettings,
    SettingsError,
    bottleneck_distance,
    label_agreement,
    simulate,
)
from mixfed.recipes.paper.theory import least_gap
from mixfed.tables.rows import rows_from_arrays


@parametrize_with_checks([MixedRegressor(), MixedClassifier()])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def problem():
    made = simulate(n_clients=800, dim=3, n_clusters=2, layout="mirror", seed=1)
    clients = made.clients
    return made, clients.phi, clients.y, np.repeat(clients.ids, clients.rows)


def test_the_attributes_of_the_contract(problem):
    made, X, y, groups = problem
    model = MixedRegressor(n_clusters="auto", random_state=0).fit(X, y, groups=groups)
    assert model.coef_.shape == (2, 3)
    assert model.intercept_.shape == model.weights_.shape == model.noise_.shape == (2,)
    assert model.coef_error_.shape == (2, 3)
    np.testing.assert_array_equal(model.clients_, made.clients.ids)
    assert model.client_labels_.shape == (800,)
    assert model.client_proba_.shape == (800, 2)
    assert bottleneck_distance(model.coef_, made.theta) < 0.05
    assert label_agreement(model.client_labels_, made.labels) > 0.98
    assert model.score(X, y) < 0.1  # without groups: the mean over mirrored kinds says nothing
    assert np.corrcoef(model.predict(X, groups=groups), y)[0, 1] > 0.95


def test_clients_never_seen_are_assigned_from_a_few_rows(problem):
    made, X, y, groups = problem
    seen = groups < 600
    model = MixedRegressor(2).fit(X[seen], y[seen], groups=groups[seen])
    kinds = model.assign(X[~seen], y[~seen], groups=groups[~seen])
    assert label_agreement(kinds.cluster, made.labels[600:]) > 0.97
    np.testing.assert_allclose(kinds.probabilities.sum(axis=1), 1)
    assert len(kinds) == len(np.asarray(kinds)) == 200
    np.testing.assert_array_equal(np.asarray(kinds), kinds.cluster)
    strangers = model.predict(X[~seen], groups=groups[~seen])
    acquainted = model.predict(X[~seen], groups=groups[~seen], history=kinds)
    assert np.corrcoef(acquainted, y[~seen])[0, 1] > 0.95 > np.corrcoef(strangers, y[~seen])[0, 1]
    np.testing.assert_allclose(
        model.predict(X[seen], groups=groups[seen], history=kinds), model.predict(X[seen], groups=groups[seen])
    )


def test_cross_validation_routes_the_groups(problem):
    _, X, y, groups = problem
    with config_context(enable_metadata_routing=True):
        model = MixedRegressor(2).set_fit_request(groups=True).set_predict_request(groups=True)
        scores = cross_validate(model, X, y, params={"groups": groups}, cv=GroupKFold(3), error_score="raise")
        assert scores["test_score"].shape == (3,)
        split = KFold(3, shuffle=True, random_state=0)
        scores = cross_validate(MixedRegressor(2), X, y, params={"groups": groups}, cv=split, error_score="raise")
        for score, (train, test) in zip(scores["test_score"], split.split(X), strict=True):
            alone = MixedRegressor(2).fit(X[train], y[train], groups=groups[train])
            assert score == pytest.approx(r2_score(y[test], alone.predict(X[test], groups=groups[test])))
            assert score > alone.score(X[test], y[test])
        pipeline = make_pipeline(StandardScaler(), MixedRegressor(2).set_fit_request(groups=True))
        cross_validate(pipeline, X, y, params={"groups": groups}, cv=GroupKFold(3), error_score="raise")


def test_pipelines_with_scaling_and_polynomials(problem):
    made, _, _, _ = problem
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (made.clients.n_rows, 1))
    kind = np.repeat(made.labels, made.clients.rows)
    y = np.where(kind == 1, x[:, 0] ** 2, 3 - x[:, 0]) + 0.1 * rng.standard_normal(len(x))
    groups = np.repeat(made.clients.ids, made.clients.rows)
    with config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(
            StandardScaler(), PolynomialFeatures(2, include_bias=False), MixedRegressor().set_fit_request(groups=True)
        )
        pipeline.fit(x, y, groups=groups)
    model = pipeline[-1]
    assert model.n_clusters_ == 2
    assert label_agreement(model.client_labels_, made.labels) > 0.95


def test_clone_pickle_and_data_frames(problem):
    _, X, y, groups = problem
    frame = pd.DataFrame(X, columns=["price", "size", "age"])
    model = MixedRegressor(2, fit_intercept=False).fit(frame, y, groups=[f"store {group}" for group in groups])
    assert model.model_.features == ("price", "size", "age")
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    fresh = clone(model)
    assert not hasattr(fresh, "coef_")
    assert fresh.get_params() == model.get_params()
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["size", "price", "age"]])


def test_the_papers_recipe_is_an_argument():
    made = simulate(n_clients=2000, dim=4, n_clusters=2, n_anchors=10, anchor_rows=400, seed=5)
    groups = np.repeat(made.clients.ids, made.clients.rows)
    settings = PaperSettings(
        separation=least_gap(made.theta), n_anchors=8, n_recruits=300, pairs=30, rounds=6, refine_rounds=200
    )
    model = MixedRegressor(2, recipe="paper", settings=settings, fit_intercept=False, start=np.ones(4))
    model.fit(made.clients.phi, made.clients.y, groups=groups)
    assert bottleneck_distance(model.coef_, made.theta) < 0.05
    assert model.coef_error_ is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"recipe": "paper"}, "needs settings=PaperSettings"),
        ({"recipe": "magic"}, "unknown recipe 'magic'"),
        ({"n_clusters": "many"}, "'auto' or a whole number"),
        ({"n_clusters": 0}, "must be 1 or more"),
        ({"n_clusters": 2.7}, "'auto' or a whole number"),
        ({"n_clusters": None}, "'auto' or a whole number"),
        ({"start": [[1.0], [2.0, 3.0]]}, "start must be an array of numbers"),
        ({"start": np.zeros((2, 2, 2))}, "start has shape"),
        ({"settings": PaperSettings(separation=1)}, "takes settings=AutoSettings"),
    ],
)
def test_bad_arguments_are_refused_in_fit(problem, arguments, message):
    _, X, y, groups = problem
    with pytest.raises(SettingsError, match=message):
        MixedRegressor(**arguments).fit(X, y, groups=groups)


def test_a_fitted_model_does_not_hang_on_its_parameters(problem):
    _, X, y, groups = problem
    model = MixedRegressor(3).fit(X, y, groups=groups)
    predicted = model.predict(X, groups=groups)
    model.set_params(fit_intercept=False, n_clusters=5)
    np.testing.assert_array_equal(model.predict(X, groups=groups), predicted)
    np.testing.assert_array_equal(model.assign(X, y, groups=groups).cluster, model.client_labels_)


def test_what_is_known_of_clients_must_be_of_these_kinds(problem):
    _, X, y, groups = problem
    model, other = (MixedRegressor(k).fit(X, y, groups=groups) for k in (2, 3))
    with pytest.raises(DataError, match="assigned to 3 kinds, the model has 2"):
        model.predict(X, groups=groups, history=other.assign(X, y, groups=groups))
    with pytest.raises(DataError, match="what `assign` gave, not a dict"):
        model.predict(X, groups=groups, history={0: 1})
    for level in ("0.9", None, 1.5):
        with pytest.raises(SettingsError, match="must be between 0 and 1"):
            model.predict_interval(X, groups=groups, level=level)


@pytest.mark.slow
def test_bounds_of_clients_with_many_deviations_come_from_their_history():
    rng = np.random.default_rng(0)
    groups, X = np.repeat(np.arange(400), 8), rng.standard_normal((3200, 14))
    y = (X * (1 + 0.5 * rng.standard_normal((400, 14))[groups])).sum(axis=1) + 0.3 * rng.standard_normal(3200)
    settings = AutoSettings(deviations="diagonal")
    model = MixedRegressor(3, personal=True, settings=settings).fit(X, y, groups=groups)
    with pytest.raises(DataError, match="give their rows as history"):
        model.predict_interval(X, groups=groups)
    low, high = model.predict_interval(X, groups=groups, history=model.assign(X, y, groups=groups)).T
    assert 0.85 < np.mean((low < y) & (y < high)) <= 1.0


@pytest.mark.parametrize("kinds", [1, 2])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("far", [0.0, 1e6])
def test_rounding_makes_no_kinds(kinds, dtype, far):
    rng = np.random.default_rng(0)
    groups, X = np.repeat(np.arange(200), 3), rng.standard_normal((600, 3)).astype(dtype)
    theta = rng.standard_normal((kinds, 3))
    y = np.einsum("nd,nd->n", X.astype(np.float64), theta[groups % kinds]) + far
    model = MixedRegressor().fit(X, y, groups=groups)
    assert model.n_clusters_ == kinds
    if kinds == 1:
        assert any("to the last digits" in line for line in model.warnings_)


def test_a_notebook_shows_the_kinds(tmp_path):
    clients = simulate("mirror", n_clients=200, dim=2, seed=0).clients
    model = MixedRegressor(2)
    assert "kinds of client" not in model._repr_html_()
    model.fit(clients.phi, clients.y, groups=np.repeat(clients.ids, clients.rows))
    for html in (model._repr_html_(), model._repr_mimebundle_()["text/html"], model.run_._repr_html_()):
        assert "2 kinds of client" in html
        assert f"{model.coef_[1, 0]:.4g}" in html
    model.report(tmp_path / "report.html")
    assert "2 kinds of client" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("kind", [float, np.float32, str, "whole floats as text"])
def test_a_regressor_knows_clients_by_numbers_in_any_form(kind):
    made = simulate("mirror", n_clients=60, dim=2, seed=0)
    clients, groups = made.clients, np.repeat(made.clients.ids, made.clients.rows)
    fitted = MixedRegressor(2).fit(clients.phi, clients.y, groups=groups)
    now = groups.astype(float).astype(str) if kind == "whole floats as text" else groups.astype(kind)
    expected = fitted.predict(clients.phi, groups=groups)
    assert np.abs(expected - fitted.predict(clients.phi)).max() > 0.1
    np.testing.assert_array_equal(fitted.predict(clients.phi, groups=now), expected)
    history = fitted.assign(clients.phi, clients.y, groups=now)
    np.testing.assert_allclose(fitted.predict(clients.phi, groups=groups, history=history), expected)


def test_groups_of_another_shape_are_refused():
    clients = random_clients(0, [3, 3], 2)
    for groups, shape in (
        (np.zeros((6, 1)), r"\(6, 1\)"),
        ([1, 2], r"\(2,\)"),
        (pd.DataFrame({"a": range(6)}), "6, 1"),
    ):
        with pytest.raises((DataError, ValueError), match=f"{shape}|inconsistent"):
            MixedRegressor(1).fit(clients.phi, clients.y, groups=groups)


@pytest.mark.slow
def test_the_estimator_gives_what_the_model_does(two):
    X, y, owner, _, held, clients, _ = two
    found = MixedRegressor(2, personal=True).fit(X[~held], y[~held], groups=owner[~held])
    rows = rows_from_arrays(X[held], None, owner[held], intercept=True)
    np.testing.assert_allclose(found.deviation_, found.model_.deviation)
    known = found.model_.assign(clients)
    np.testing.assert_allclose(found.predict(X[held], groups=owner[held]), found.model_.predict(rows, known))
    low, high = found.predict_interval(X[held], groups=owner[held], level=0.8).T
    assert 0.75 < np.mean((low <= y[held]) & (y[held] <= high)) < 0.85
    latest = found.assign(X[~held][:30], y[~held][:30], owner[~held][:30])
    assert np.isfinite(found.predict(X[held], groups=owner[held], history=latest)).all()


def test_classes_are_told_apart_by_the_kinds_of_client(tmp_path):
    clients = classes_or_counts("binomial")[0]
    frame = pd.DataFrame(clients.phi, columns=["a", "b", "c"])
    groups, words = np.repeat(clients.ids, clients.rows), np.where(clients.y > 0, "yes", "no")
    found = MixedClassifier(2).fit(frame, words, groups=groups)
    assert found.classes_.tolist() == ["no", "yes"]
    assert found.feature_names_in_.tolist() == ["a", "b", "c"]
    chances = found.predict_proba(frame, groups=groups)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    np.testing.assert_array_equal(found.predict(frame, groups=groups), found.classes_[chances.argmax(axis=1)])
    assert found.score(frame, words, groups=groups) > found.score(frame, words)
    again = found.assign(frame, words, groups)
    np.testing.assert_allclose(again.probabilities, found.client_proba_)
    inner = MixedRegressor(2, family="binomial").fit(frame, clients.y, groups=groups)
    np.testing.assert_array_equal(found.coef_, inner.coef_)
    np.testing.assert_array_equal(chances[:, 1], inner.predict(frame, groups=groups))
    found.report(tmp_path / "report.html")
    assert "log odds" in (tmp_path / "report.html").read_text()
    with pytest.raises(DataError, match="the class 'maybe'"):
        found.assign(frame[:2], ["no", "maybe"], [1, 1])
    with pytest.raises(DataError, match="3 classes"):
        MixedClassifier().fit(frame[:3], ["a", "b", "c"])
