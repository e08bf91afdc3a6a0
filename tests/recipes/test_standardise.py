"""Standard units, and the way back from them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mixfed import fit_auto
from mixfed.clients.local import LocalPool
from mixfed.clients.packed import Clients
from mixfed.exchange.census import Census
from mixfed.exchange.units import StandardUnits
from mixfed.recipes.standardise import errors_to_user, from_user, gram_query, inspect, make_units, to_user

seeds = st.integers(0, 2**32 - 1)


def frame_of(clients: Clients) -> tuple[StandardUnits, np.ndarray]:
    pool = LocalPool(clients)
    census = pool.ask(Census())
    columns = inspect(census, clients.intercept)
    return make_units(columns, pool.ask(gram_query(columns)), census.n_rows)


@given(seeds, st.integers(1, 5), st.booleans(), st.integers(-60, 60), st.integers(-60, 60))
@settings(max_examples=40)
def test_standard_units_are_white_and_lead_back(seed, dim, intercept, x_power, y_power):
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((80, dim)) @ rng.standard_normal((dim, dim)) + 3.0) * 10.0**x_power
    y = (X @ rng.standard_normal(dim) * 10.0**-x_power + rng.standard_normal(80)) * 10.0**y_power
    clients = Clients.from_arrays(X, y, np.arange(80) // 4, intercept=intercept)
    frame, tied = frame_of(clients)
    z, residual = frame.standardise(clients.design, clients.y)
    assert frame.dim == clients.dim
    assert not tied.any()
    np.testing.assert_allclose(z.T @ z / 80, np.eye(frame.dim), atol=1e-8)
    np.testing.assert_allclose(z.T @ residual / 80, 0, atol=1e-8)
    assert np.mean(residual**2) == pytest.approx(1, rel=1e-6)
    scaled = clients.design / np.abs(clients.design).max(axis=0)
    pooled = scaled @ np.linalg.lstsq(scaled, clients.y, rcond=None)[0]
    np.testing.assert_allclose(clients.design @ to_user(frame, np.zeros(frame.dim)), pooled, rtol=1e-6)
    theta = rng.standard_normal((3, frame.dim))
    back = to_user(frame, theta)
    np.testing.assert_allclose(from_user(frame, back), theta, rtol=1e-6, atol=1e-6)
    predicted = clients.y[:, None] - frame.scale * (residual[:, None] - z @ theta.T)
    np.testing.assert_allclose(clients.design @ back.T, predicted, rtol=1e-6, atol=1e-6 * frame.scale)


def test_errors_of_one_model_are_those_of_least_squares():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3)) * [1.0, 100.0, 0.01] + [5.0, 0.0, 1.0]
    y = X @ [1.0, 0.02, -30.0] + 4.0 + 0.5 * rng.standard_normal(200)
    clients = Clients.from_arrays(X, y, np.arange(200) // 2, intercept=True)
    frame, _ = frame_of(clients)
    errors = errors_to_user(frame, np.eye(frame.dim)[None] / 200)
    design = clients.design
    residual = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    covariance = np.mean(residual**2) * np.linalg.inv(design.T @ design)
    np.testing.assert_allclose(errors[0], np.sqrt(np.diag(covariance)), rtol=1e-8)


def test_columns_that_say_the_same_are_found():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 2))
    X = np.column_stack([x, x[:, 0] + x[:, 1], np.full(60, 7.0), np.zeros(60)])
    clients = Clients.from_arrays(X, rng.standard_normal(60), intercept=True)
    frame, tied = frame_of(clients)
    assert tied.tolist() == [True, True, True, False, False, False]
    assert frame.dim == 3
    theta = to_user(frame, rng.standard_normal(3))
    assert theta[3] == theta[4] == 0


def test_spreads_are_the_standard_deviations_of_the_columns():
    rng = np.random.default_rng(0)
    X = rng.normal(1e5, [1e-3, 1.0, 1e3], (500, 3))
    y = X @ [1e3, 1, 0.1] + rng.normal(size=500)
    for intercept in (True, False):
        clients = Clients.from_arrays(X, y, np.repeat(np.arange(100), 5), intercept=intercept, features=("a", "b", "c"))
        details = fit_auto(LocalPool(clients), clients.features, 1).model.details
        np.testing.assert_allclose(details["spread"][1:], X.std(axis=0)[1:], rtol=1e-3)
        np.testing.assert_allclose(details["target_spread"], y.std(), rtol=1e-3)
