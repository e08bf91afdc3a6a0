"""The tuning-free recipe from start to end."""

from __future__ import annotations

import dataclasses
import itertools
import os
from pathlib import Path

import numpy as np
import pytest

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
from mixfed.evaluation.baselines.em import EM
from mixfed.evaluation.baselines.ifca import fit_ifca
from mixfed.evaluation.metrics import bottleneck_matching
from mixfed.exchange.journal import JournalPool

FEW = {"least_rows": 2, "most_rows": 4, "tail": 0.0}


def fit(clients, k=None, seed=0, **settings):
    return fit_auto(LocalPool(clients), clients.features, k, AutoSettings(**settings), seed=seed)


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


@pytest.mark.parametrize(
    "design",
    [
        {"n_clusters": 1, "dim": 5, "n_clients": 500},
        {"what": "mirror", "n_clients": 1000},
        {"what": "rare", "n_clients": 3000},
        {"what": "nested", "n_clients": 2500},
        {"n_clusters": 6, "dim": 12, "n_clients": 2500},
    ],
    ids=lambda design: design.get("what") or str(design["n_clusters"]),
)
def test_the_number_of_kinds_is_found(design):
    made = simulate(seed=11, **design)
    found = fit(made.clients)
    assert found.model.n_clusters == len(made.theta)
    choice = found.model.details["choice"]
    assert [entry["n_clusters"] for entry in choice] == list(range(1, len(choice) + 1))
    assert min(choice, key=lambda entry: entry["bic"])["n_clusters"] == len(made.theta)
    likelihood = [entry["likelihood"] for entry in choice]
    assert np.all(np.diff(likelihood[: len(made.theta)]) > 0)


def test_the_number_of_kinds_is_found_by_sums_in_a_basis_narrower_than_the_features():
    clients = simulate(n_clients=400, dim=9, n_clusters=3, noise=0.5, seed=0).clients
    summed, single = fit(clients, anchors="summed"), fit(clients)
    assert bottleneck_distance(summed.model.theta, single.model.theta) < 1e-6


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


def test_soft_memberships_beat_hard_labels_when_clients_have_few_rows():
    ratios = []
    for seed in range(4):
        made = simulate("noisy", n_clients=15_000, seed=seed, **FEW)
        soft, hard = (fit(made.clients, 3, membership=name).model.theta for name in ("soft", "hard"))
        ratios.append(bottleneck_distance(hard, made.theta) / bottleneck_distance(soft, made.theta))
    assert np.median(ratios) > 1.5


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


@pytest.mark.parametrize("settings", [{"update": "fedprox", "step": 0.3}, {"update": "fedavg", "step": 0.02}])
def test_local_updates_reach_the_floor_from_the_anchors_candidates(settings):
    made = simulate(n_clients=3000, dim=5, n_clusters=3, seed=1)
    floor = bottleneck_distance(made.oracle(), made.theta)
    found = fit(made.clients, 3, **settings)
    assert bottleneck_distance(found.model.theta, made.theta) < 1.3 * floor
    assert {record["phase"] for record in found.trace} == {"survey", "local updates"}
    assert found.stop in ("the models stopped moving", "all rounds were run")


def test_local_updates_that_diverge_are_refused():
    made = simulate(n_clients=500, dim=5, n_clusters=2, seed=1)
    with pytest.raises(SettingsError, match="diverge at step = 9"):
        fit(made.clients, 2, update="fedavg", step=9.0)


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


def test_the_reported_bic_is_that_of_the_reported_likelihood():
    made = simulate("mirror", n_clients=500, dim=3, seed=0)
    model = fit(made.clients).model
    final = {"n_clusters": model.n_clusters, "likelihood": model.details["likelihood"], "bic": model.bic}
    for entry in [*model.details["choice"], final]:
        free = entry["n_clusters"] * (3 + 1) + entry["n_clusters"] - 1
        assert entry["bic"] == pytest.approx(free * np.log(made.clients.n_rows) - 2 * entry["likelihood"])


def test_the_bic_is_that_of_statsmodels():
    """Of one kind: a linear model, with all constants; theirs takes the noise to be no parameter."""
    sm = pytest.importorskip("statsmodels.api")
    made = simulate(n_clusters=1, n_clients=200, dim=3, seed=1).clients
    model = fit(made, 1).model
    ols = sm.OLS(made.y, made.phi).fit()
    assert model.details["likelihood"] == pytest.approx(ols.llf, abs=0.01)  # a kind is given two more rows
    assert model.bic == pytest.approx(ols.bic + np.log(made.n_rows), abs=0.02)


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


def test_warnings_name_their_cause():
    rng = np.random.default_rng(0)
    made = simulate(n_clients=300, dim=3, n_clusters=1, seed=0)
    ids = np.repeat(made.clients.ids, made.clients.rows)
    X = np.column_stack([made.clients.phi, made.clients.phi[:, 0], np.full(len(ids), 2.0)])
    doubtful = fit(Clients.from_arrays(X, made.clients.y, ids, intercept=True), 2).model.warnings
    text = " | ".join(doubtful)
    assert "column 'x_4' is constant" in text
    assert "'x_0', 'x_3' are combinations" in text
    assert "closer than the rows of a client can tell" in text or "fewer than" in text
    single = fit(Clients.from_arrays(rng.standard_normal((200, 2)), rng.standard_normal(200)), 1).model.warnings
    assert "every client has one row" in single[0]
    assert fit(simulate("mirror", n_clients=800, dim=4).clients, 2).model.warnings == ()
    top = fit(simulate(n_clusters=4, dim=4, n_clients=800, seed=1).clients, max_clusters=3).model.warnings
    assert any("raise max_clusters" in warning for warning in top)


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


def test_ifca_from_the_truth_stays_near_it():
    made = simulate(n_clients=1000, dim=3, n_clusters=2, seed=0)
    theta = fit_ifca(LocalPool(made.clients), made.theta, step=0.5, rounds=100)
    assert bottleneck_distance(theta, made.theta) < 0.05


@pytest.mark.parametrize("name", ["konza_bison", "lahman_fielding_1954_2024"])
def test_real_data_is_fitted_as_well_as_by_the_best_of_many_random_starts(name):
    if "MIXFED_DATA" not in os.environ:
        pytest.skip("MIXFED_DATA names no folder with the real data sets")
    pd = pytest.importorskip("pandas")
    table = pd.read_parquet(Path(os.environ["MIXFED_DATA"]) / f"{name}.parquet")
    X = table.filter(regex="^x_").to_numpy()
    clients = Clients.from_arrays(
        (X - X.mean(axis=0)) / X.std(axis=0), table["y"].to_numpy(), table["client"].to_numpy(), intercept=True
    )
    em, rng = EM(clients), np.random.default_rng(0)
    for k in (2, 3):
        best = max(em.climb(em.at_random(k, rng), steps=60)[1] for _ in range(6))
        assert fit(clients, k).model.details["likelihood"] > best - 0.5


@pytest.mark.parametrize("power", [-300, -160, 160, 300])
def test_standard_errors_have_the_units_of_the_target(tmp_path, power):
    clients = simulate(n_clients=60, dim=2, n_clusters=2, seed=0).clients
    plain = fit(clients, 2).model
    found = fit(dataclasses.replace(clients, y=clients.y * 10.0**power), 2).model
    np.testing.assert_allclose(found.theta_error / 10.0**power, plain.theta_error, rtol=1e-6)
    found.save(tmp_path / "model.json")
