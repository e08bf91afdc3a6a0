"""The tuning-free recipe from start to end."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from helpers.auto import FEW, fit
from mixfed import (
    AutoSettings,
    Clients,
    DataError,
    LocalPool,
    MixedRegressor,
    SettingsError,
    bottleneck_distance,
    fit_auto,
    simulate,
)
from mixfed.evaluation.metrics import bottleneck_matching
from mixfed.exchange.journal import JournalPool


def plain_em(made, steps=400):
    """EM from the truth by loops over kinds, in the table's own units: an oracle that shares no code with ours."""
    phi, y, rows = made.clients.phi, made.clients.y, made.clients.rows
    theta, k = made.theta.copy(), len(made.theta)
    noise = np.full(k, made.design.noise)
    weights = np.bincount(made.labels, minlength=k) / len(rows)
    starts = made.clients.offsets[:-1]
    for _ in range(steps):
        squares = np.add.reduceat((y[:, None] - phi @ theta.T) ** 2, starts, axis=0)
        score = np.log(weights) - rows[:, None] * np.log(noise) - squares / (2 * noise**2)
        share = np.exp(score - score.max(axis=1, keepdims=True))
        share /= share.sum(axis=1, keepdims=True)
        before, weights = theta.copy(), share.mean(axis=0)
        for j in range(k):
            w = np.repeat(share[:, j], rows)
            theta[j] = np.linalg.solve((phi * w[:, None]).T @ phi, (phi * w[:, None]).T @ y)
            noise[j] = np.sqrt(w @ (y - phi @ theta[j]) ** 2 / w.sum())
        if np.abs(theta - before).max() < 1e-10:
            break
    return theta


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "design",
    [
        {"what": "nested", "n_clients": 3000},
        {"what": "nested-unbalanced", "n_clients": 3000},
        {"what": "rare", "n_clients": 3000},
        {"what": "mirror", "n_clients": 1500},
        {"what": "skewed", "n_clients": 2000},
        {"what": "noisy", "n_clients": 3000, "radius": 2.0, **FEW},
        {"n_clusters": 4, "dim": 15, "n_clients": 2000, "law": "rademacher"},
        {"n_clusters": 3, "dim": 10, "n_clients": 3000, "noise": 0.5, "most_rows": 2},
        {"n_clusters": 3, "dim": 2, "n_clients": 1500},
        {"n_clusters": 2, "dim": 1, "n_clients": 1500, "layout": "mirror"},
    ],
    ids=lambda design: design.get("what") or "-".join(str(value) for value in design.values()),
)
def test_the_fit_is_that_of_em_started_at_the_truth(design, seed):
    made = simulate(seed=seed + 100, **design)
    found = fit(made.clients, len(made.theta), seed=seed)
    floor = bottleneck_distance(plain_em(made), made.theta)
    assert bottleneck_distance(found.model.theta, made.theta) <= 1.02 * floor
    assert found.traffic.exchanges <= 30


@pytest.mark.slow
def test_twenty_starts_give_one_model():
    made = simulate("nested", n_clients=1500, dim=8, seed=2)
    rng = np.random.default_rng(0)
    reference = fit(made.clients, 4).model.theta
    for number in range(20):
        shape = (8,) if number % 2 else (4, 8)
        size = [1.0, 200.0, 1e4][number % 3]
        start = size * rng.standard_normal(shape)
        given = tuple(start) if start.ndim == 1 else tuple(map(tuple, start))
        theta = fit(made.clients, 4, start=given).model.theta
        order = bottleneck_matching(theta, reference)
        np.testing.assert_allclose(theta[order], reference, rtol=1e-6, atol=1e-6)


def test_other_seeds_give_the_same_model():
    made = simulate("rare", n_clients=2000, dim=6, seed=2)
    reference = fit(made.clients, 3).model
    for seed in (1, 2, 3):
        other = fit(made.clients, 3, seed=seed).model
        np.testing.assert_allclose(other.theta, reference.theta, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(other.noise, reference.noise, rtol=1e-6)


def test_permuted_rows_and_renamed_clients_give_the_same_model():
    made = simulate("nested", n_clients=1500, dim=6, seed=3)
    clients = made.clients
    ids = np.repeat(clients.ids, clients.rows)
    reference = fit(clients, 4).model
    order = np.random.default_rng(0).permutation(clients.n_rows)
    names = np.array([f"store {client * 7919 % 100_003}" for client in clients.ids])
    shuffled = Clients.from_arrays(clients.phi[order], clients.y[order], names[ids][order])
    other = fit(shuffled, 4).model
    np.testing.assert_allclose(other.theta, reference.theta, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(other.weights, reference.weights, rtol=1e-6)


@pytest.mark.parametrize("power", [-8, 0, 6])
def test_rescaled_and_shifted_columns_give_the_same_model(power):
    made = simulate("nested", n_clients=1500, dim=5, seed=4)
    clients = made.clients
    ids = np.repeat(clients.ids, clients.rows)
    reference = fit(Clients.from_arrays(clients.phi, clients.y, ids, intercept=True), 4).model
    rng = np.random.default_rng(power + 20)
    scale, shift = 10.0 ** rng.uniform(-4, 4, 5), 20 * rng.standard_normal(5)
    target_scale, target_shift = 10.0**power, 30 * 10.0**power
    moved = Clients.from_arrays(
        (clients.phi + shift) * scale, clients.y * target_scale + target_shift, ids, intercept=True
    )
    model = fit(moved, 4).model
    np.testing.assert_allclose(model.coef * scale / target_scale, reference.coef, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(model.noise / target_scale, reference.noise, rtol=1e-6)
    intercept = (model.intercept - target_shift + (model.coef * scale) @ shift) / target_scale
    np.testing.assert_allclose(intercept, reference.intercept, atol=1e-6)
    np.testing.assert_allclose(model.coef_error * scale / target_scale, reference.coef_error, rtol=1e-5)


@pytest.mark.slow
def test_memberships_are_calibrated():
    made = simulate("noisy", n_clients=12_000, radius=1.5, seed=1, **FEW)
    model = fit(made.clients, 3).model
    order = bottleneck_matching(model.theta, made.theta)
    chance = model.assign(made.clients).probabilities[:, order].ravel()
    right = np.eye(3)[made.labels].ravel()
    edges = np.linspace(0, 1, 11)
    for low, high in itertools.pairwise(edges):
        inside = (chance >= low) & (chance <= high)
        assert inside.sum() > 300
        error = right[inside].mean() - chance[inside].mean()
        deviation = np.sqrt(np.mean(chance[inside] * (1 - chance[inside])) / inside.sum())
        assert abs(error) < 4 * deviation


@pytest.mark.slow
def test_intervals_of_two_standard_errors_hold_the_truth():
    held, count = 0, 0
    for seed in range(60):
        made = simulate(n_clients=400, dim=3, n_clusters=2, noise=0.6, radius=1.0, seed=seed)
        model = fit(made.clients, 2).model
        order = bottleneck_matching(model.theta, made.theta)
        within = np.abs(model.coef[order] - made.theta) < 1.96 * model.coef_error[order]
        held, count = held + within.sum(), count + within.size
    assert 0.92 < held / count < 0.98  # 360 coefficients: within 2.5 standard deviations of 95 %


def test_shared_noise_is_one_number_and_own_noise_follows_each_kind():
    made = simulate(n_clients=2000, dim=4, n_clusters=2, noise=0.3, seed=1)
    louder = made.clients.y + 0.9 * np.repeat(made.labels, made.clients.rows) * np.random.default_rng(
        0
    ).standard_normal(made.clients.n_rows)
    clients = Clients(made.clients.phi, louder, made.clients.offsets, made.clients.ids, made.clients.features)
    own, shared = fit(clients, 2).model, fit(clients, 2, noise="shared").model
    np.testing.assert_allclose(np.sort(own.noise), [0.3, np.hypot(0.3, 0.9)], rtol=0.05)
    assert shared.noise[0] == shared.noise[1]
    assert own.details["likelihood"] > shared.details["likelihood"]


@pytest.mark.parametrize("noise", [0.0, 1e-6, 0.003, 0.03])
def test_little_noise_is_found_to_be_little(noise):
    rng = np.random.default_rng(0)
    X, ids = rng.standard_normal((240, 2)), np.repeat(np.arange(80), 3)
    sign = rng.choice([-1.0, 1.0], 80)[ids]
    y = sign * (X @ [1.0, 2.0]) + noise * rng.standard_normal(240)
    model = fit(Clients.from_arrays(X, y, ids)).model
    assert model.n_clusters == 2
    for j in range(2):
        own = np.sign(model.coef[j, 0]) == sign
        left = np.sqrt(np.mean((y[own] - X[own] @ model.theta[j]) ** 2))
        assert model.noise[j] == pytest.approx(left, rel=0.02, abs=1e-7)


def test_kinds_that_are_close_are_told_apart_where_noise_is_little():
    rng = np.random.default_rng(0)
    X, ids = rng.standard_normal((600, 2)), np.repeat(np.arange(150), 4)
    theta = np.array([[1.0, 2.0], [-1.0, -2.0], [-1.0, -1.95]])
    kind = rng.integers(3, size=150)
    y = np.sum(X * theta[kind[ids]], axis=1) + 0.01 * rng.standard_normal(600)
    model = fit(Clients.from_arrays(X, y, ids)).model
    assert model.n_clusters == 3
    assert bottleneck_distance(model.theta, theta) < 0.01


def test_a_run_stopped_at_any_exchange_goes_on_to_the_same_bits(tmp_path):
    clients = simulate("mirror", n_clients=400, dim=3, seed=0).clients
    whole = fit_auto(LocalPool(clients), clients.features)
    for last in (1, 3, 4, 5, 12, len(whole.trace) - 1):
        seen = 0

        def stop(event, last=last):
            nonlocal seen
            seen += 1
            if seen == last:
                raise KeyboardInterrupt

        path = tmp_path / str(last)
        with pytest.raises(KeyboardInterrupt), JournalPool(LocalPool(clients), path, "a", resume=False) as pool:
            fit_auto(pool, clients.features, watch=stop)
        with JournalPool(LocalPool(clients), path, "a", resume=True) as pool:
            resumed = fit_auto(pool, clients.features)
        assert resumed.model.to_dict() == whole.model.to_dict()
        assert resumed.trace == whole.trace


@pytest.mark.parametrize("k", [None, 2])
@pytest.mark.parametrize(
    "case",
    ["one-row", "d=1", "constant", "equal", "y constant", "exact", "huge", "tiny", "far", "fewer rows than columns"],
)
def test_edge_inputs_give_a_finite_model(case, k):
    rng = np.random.default_rng(0)
    X, groups = rng.standard_normal((120, 3)), np.repeat(np.arange(30), 4)
    y = X @ [1.0, 2.0, 3.0] + 0.1 * rng.standard_normal(120)
    if case == "one-row":
        groups = None
    elif case == "d=1":
        X = X[:, :1]
    elif case == "constant":
        X[:, 1] = 5.0
    elif case == "equal":
        X[:, 1] = X[:, 0]
    elif case == "y constant":
        y = np.full(120, 3.0)
    elif case == "exact":
        y = X @ [1.0, 2.0, 3.0]
    elif case == "huge":
        X, y = X * 1e100, y * 1e-180
    elif case == "tiny":
        X, y = X * 1e-100, y * 1e170
    elif case == "far":
        X, y = X + 1e7, y + 1e9
    elif case == "fewer rows than columns":
        X, y, groups = rng.standard_normal((8, 20)), rng.standard_normal(8), np.repeat(np.arange(4), 2)
    model = MixedRegressor(n_clusters=k or "auto").fit(X, y, groups=groups)
    for values in (model.coef_, model.intercept_, model.weights_, model.noise_, model.client_proba_):
        assert np.isfinite(values).all()
    assert np.isfinite(model.predict(X, groups=groups)).all()
    if k is None and case in ("far", "d=1", "one-row", "huge", "tiny"):
        assert model.n_clusters_ == 1


def test_impossible_requests_are_refused():
    rng = np.random.default_rng(0)
    clients = Clients.from_arrays(rng.standard_normal((8, 2)), rng.standard_normal(8), np.repeat([0, 1], 4))
    with pytest.raises(SettingsError, match="n_clusters = 3, but the table has no more than 2 clients"):
        fit(clients, 3)
    with pytest.raises(SettingsError, match="start must hold 2 finite numbers"):
        fit(clients, 1, start=(1.0,))
    with pytest.raises(SettingsError, match="start has 2 models, but there are to be 1 kinds"):
        fit(clients, 1, start=((1.0, 2.0), (1.0, 2.0)))
    with pytest.raises(DataError, match="nothing to fit"):
        fit(Clients.from_arrays(np.zeros((8, 2)), rng.standard_normal(8)), 1)
    with pytest.raises(SettingsError, match="'fedavg' needs a step"):
        AutoSettings(update="fedavg")


def test_one_client_and_one_kind_are_pooled_least_squares():
    made = simulate(n_clients=1, least_rows=50, most_rows=50, dim=3, n_clusters=1)
    pooled = np.linalg.lstsq(made.clients.phi, made.clients.y, rcond=None)[0]
    np.testing.assert_allclose(fit(made.clients).model.theta[0], pooled, rtol=1e-6)


@pytest.mark.parametrize("power", [-300, -160, 160, 300])
def test_standard_errors_have_the_units_of_the_target(tmp_path, power):
    clients = simulate(n_clients=60, dim=2, n_clusters=2, seed=0).clients
    plain = fit(clients, 2).model
    found = fit(dataclasses.replace(clients, y=clients.y * 10.0**power), 2).model
    np.testing.assert_allclose(found.theta_error / 10.0**power, plain.theta_error, rtol=1e-6)
    found.save(tmp_path / "model.json")
