"""Fits of rows in single precision."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.packed import panel, single
from mixfed import Clients, LocalPool, fit_auto, label_agreement, simulate


def test_single_precision_fits_agree_with_double():
    clients = simulate("nested", n_clients=4000, dim=6, seed=1).clients
    double = fit_auto(LocalPool(clients), clients.features, 4).model
    half = fit_auto(LocalPool(single(clients)), clients.features, 4).model
    np.testing.assert_allclose(half.theta, double.theta, atol=1e-5)
    np.testing.assert_allclose(half.coef_error, double.coef_error, rtol=1e-3)


def test_kinds_in_single_precision_do_not_mind_an_offset_of_the_target():
    clients, labels = panel(400, (2, 8), kind=np.float32, y_shift=1e7)
    assert (
        label_agreement(fit_auto(LocalPool(clients), clients.features, 2).model.assign(clients).cluster, labels) > 0.99
    )


def test_models_in_single_precision_do_not_mind_shifted_columns():
    clients, _ = panel(2000, (2, 8), dim=2, kind=np.float32, shift=1e5, noise=0.01)
    double = Clients(clients.phi.astype(np.float64), clients.y, clients.offsets, clients.ids, clients.features)
    one, two = (fit_auto(LocalPool(data), data.features, 2).model for data in (clients, double))
    mean = double.phi.mean(axis=0)
    np.testing.assert_allclose(one.coef @ mean + one.intercept, two.coef @ mean + two.intercept, atol=2e-4)


def test_combinations_of_columns_are_seen_in_single_precision():
    clients, _ = panel(1000, (3, 9), dim=2)
    dummies = np.eye(5)[np.random.default_rng(0).integers(5, size=clients.n_rows)]
    phi = np.column_stack([clients.phi, dummies]).astype(np.float32)
    ids = np.repeat(clients.ids, clients.rows)
    model = fit_auto(
        LocalPool(made := Clients.from_arrays(phi, clients.y, ids, intercept=True)), made.features, 2
    ).model
    assert any("combinations" in warning for warning in model.warnings)
    assert np.abs(model.theta).max() < 10


def test_a_large_client_in_single_precision_keeps_its_noise():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2_000_000, 1), dtype=np.float32)
    y = x[:, 0] + 0.5 * rng.standard_normal(len(x))
    clients = Clients.from_arrays(x, y, np.zeros(len(x), dtype=int), intercept=True)
    model = fit_auto(LocalPool(clients), clients.features, 1).model
    assert model.noise[0] == pytest.approx(np.std(y - x[:, 0] * model.coef[0, 0] - model.intercept[0]), rel=1e-5)
