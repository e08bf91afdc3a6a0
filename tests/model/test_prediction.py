"""Predictions and their intervals."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from mixfed import AutoSettings, DataError, LocalPool, SettingsError, fit_auto, simulate
from mixfed.model.prediction import mixture_quantile
from mixfed.tables.rows import Rows, rows_from_arrays


@pytest.mark.slow
@pytest.mark.parametrize("level", [0.5, 0.9])
def test_intervals_cover_at_their_level(two, level):
    X, y, owner, _, held, clients, model = two
    rows = rows_from_arrays(X[held], None, owner[held], intercept=True)
    for known in (model.assign(clients), None):
        low, high = model.predict_interval(rows, known, level).T
        assert abs(np.mean((low <= y[held]) & (y[held] <= high)) - level) < 0.02


@pytest.mark.slow
def test_known_clients_are_predicted_better_than_unknown_ones(two):
    X, y, owner, _, held, clients, model = two
    rows = rows_from_arrays(X[held], None, owner[held], intercept=True)
    plain = fit_auto(LocalPool(clients), clients.features, 2).model
    errors = [
        np.sqrt(np.mean((prediction - y[held]) ** 2))
        for prediction in (
            model.predict(rows, model.assign(clients)),
            plain.predict(rows, plain.assign(clients)),
            model.predict(rows),
        )
    ]
    assert errors[0] < 0.9 * errors[1] < 0.9 * errors[2]


def test_quantiles_are_those_of_the_mixture():
    rng = np.random.default_rng(0)
    share, means, deviations = np.array([[0.3, 0.7]]), np.array([[-2.0, 1.0]]), np.array([[0.5, 2.0]])
    drawn = np.where(rng.random(400_000) < 0.3, rng.normal(-2, 0.5, 400_000), rng.normal(1, 2, 400_000))
    for level in (0.05, 0.5, 0.95):
        assert mixture_quantile(share, means, deviations, level)[0] == pytest.approx(
            np.quantile(drawn, level), abs=0.02
        )


@pytest.mark.slow
def test_intervals_need_what_was_kept(two):
    X, _, owner, _, held, clients, model = two
    rows = rows_from_arrays(X[held], None, owner[held], intercept=True)
    with pytest.raises(DataError, match="history"):
        model.predict_interval(rows, model.assign(clients, uncertainty=False))
    with pytest.raises(SettingsError, match="level"):
        model.predict_interval(rows, None, 1.5)


def test_what_was_not_kept_can_be_given_as_history():
    clients = simulate("mirror", n_clients=60, dim=2, seed=0).clients
    model = fit_auto(LocalPool(clients), clients.features, 2, AutoSettings(personal=True)).model
    without, some = model.assign(clients, uncertainty=False), clients.subset(np.arange(20))
    known = without.updated(model.assign(some, uncertainty=True))
    rows = Rows(some.phi, None, some.ids, np.repeat(np.arange(20), some.rows), some.features)
    expected = model.predict_interval(rows, model.assign(clients, uncertainty=True))
    np.testing.assert_allclose(model.predict_interval(rows, known), expected)
    everyone = Rows(clients.phi, None, clients.ids, np.repeat(np.arange(60), clients.rows), clients.features)
    np.testing.assert_allclose(model.predict(everyone, known), model.predict(everyone, without))
    with pytest.raises(DataError, match="give their rows as history"):
        model.predict_interval(everyone, known)


def test_rows_of_nobody_are_not_taken_for_known_clients():
    clients = simulate("mirror", n_clients=60, dim=2, seed=0).clients
    model = fit_auto(LocalPool(clients), clients.features, 2).model
    frame = pd.DataFrame(clients.phi[:5], columns=clients.features)
    with pytest.raises(DataError, match="do not say which of the known clients"):
        model.predict(frame, model.assign(clients))
    named = dataclasses.replace(model, client_column="who")
    frame["who"] = np.repeat(clients.ids, clients.rows)[:5]
    rows = Rows(clients.phi[:5], None, *np.unique(frame["who"], return_inverse=True), clients.features)
    np.testing.assert_allclose(named.predict(frame, model.assign(clients)), model.predict(rows, model.assign(clients)))
