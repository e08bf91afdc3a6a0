"""The paper's recipe from start to end."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from helpers.clients import own_models
from helpers.paper import run, settings_for
from mixfed import Clients, DataError, LocalPool, PaperSettings, SettingsError, bottleneck_distance, fit_paper, simulate
from mixfed.exchange.journal import JournalPool
from mixfed.exchange.local_update import LocalUpdate
from mixfed.model.model import Model
from mixfed.recipes.paper import moment_descent
from mixfed.recipes.paper.theory import least_gap
from mixfed.tables.rows import Rows


@pytest.fixture(scope="module")
def small():
    return simulate(n_clients=2000, dim=4, n_clusters=2, n_anchors=10, anchor_rows=400, seed=5)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(4))
def test_any_start_brings_every_anchor_near_its_truth_and_the_models_to_the_floor(start):
    made = simulate(n_clients=21_000, dim=10, n_clusters=2, n_anchors=24, anchor_rows=1000, seed=2)
    delta = least_gap(made.theta)
    direction = np.random.default_rng(start).standard_normal(10)
    theta_0 = 1.5 * start / 3 * direction / np.linalg.norm(direction)
    settings = PaperSettings(separation=delta, n_anchors=24, n_recruits=2000, pairs=50, rounds=10, start=tuple(theta_0))
    pool = LocalPool(made.clients)
    completed = settings.completed(2, made.clients.n_rows, 10)
    roles = moment_descent.assign_roles(pool, completed, start)
    state = moment_descent.init(roles, theta_0)
    for _ in range(settings.rounds):
        state, _ = moment_descent.step(state, pool, roles, 2, completed, start)
    errors = np.linalg.norm(state.theta - made.theta[made.labels[roles.anchors]], axis=1)
    assert errors.max() <= 0.3 * delta
    floor = bottleneck_distance(made.oracle(), made.theta)
    for changes in ({"update": "fedavg", "step": 0.03, "local_steps": 5}, {"update": "fedprox", "step": 0.2}):
        changed = dataclasses.replace(settings, **changes)
        found = fit_paper(pool, made.clients.features, 2, changed, seed=start)
        assert bottleneck_distance(found.model.theta, made.theta) <= 1.2 * floor


def test_soft_memberships_reach_the_floor_too(small):
    found = run(small, membership="soft")
    floor = bottleneck_distance(small.oracle(), small.theta)
    assert bottleneck_distance(found.model.theta, small.theta) <= 1.3 * floor
    np.testing.assert_allclose(found.model.noise, 0.3, rtol=0.05)


def test_reordering_and_regrouping_rows_changes_nothing_but_the_last_digits(small):
    order = np.random.default_rng(0).permutation(small.clients.n_clients)
    shuffled = dataclasses.replace(small, clients=small.clients.subset(order), labels=small.labels[order])
    first, second = run(small), run(shuffled)
    np.testing.assert_allclose(second.model.theta, first.model.theta, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(second.model.weights, first.model.weights, rtol=1e-10)


def test_same_seed_same_bits_and_other_seed_other_anchors(small):
    first, again, other = run(small), run(small), run(small, seed=1, refine_rounds=0)
    np.testing.assert_array_equal(first.model.theta, again.model.theta)
    assert np.any(other.model.theta != run(small, refine_rounds=0).model.theta)


def test_one_kind_one_feature_and_more_kinds_than_features_are_ordinary():
    single = simulate(n_clients=400, dim=1, n_clusters=1, n_anchors=4, anchor_rows=100, seed=0)
    settings = PaperSettings(separation=1.0, n_anchors=3, n_recruits=50, pairs=10, rounds=5, refine_rounds=200)
    found = fit_paper(LocalPool(single.clients), single.clients.features, 1, settings)
    pooled = np.linalg.lstsq(single.clients.phi, single.clients.y, rcond=None)[0]
    assert found.model.weights.tolist() == [1.0]
    assert abs(found.model.theta[0] - pooled) < 0.05
    pair = simulate(n_clients=4000, dim=1, n_clusters=2, layout="mirror", n_anchors=6, anchor_rows=400, seed=1)
    found = run(pair, n_anchors=6)
    assert bottleneck_distance(found.model.theta, pair.theta) < 0.1


def test_single_precision_rows_give_the_model_of_double_precision(small):
    clients = small.clients
    single = Clients(clients.phi.astype(np.float32), clients.y, clients.offsets, clients.ids, clients.features)
    found = run(dataclasses.replace(small, clients=single))
    np.testing.assert_allclose(found.model.theta, run(small).model.theta, atol=1e-5)


@pytest.mark.slow
def test_kinds_are_in_the_order_of_their_shares(small):
    made = simulate("rare", n_clients=9000, dim=4, n_anchors=60, anchor_rows=400, seed=3)
    model = run(made, n_anchors=50, n_recruits=900).model
    assert np.all(np.diff(model.weights) <= 0)
    np.testing.assert_allclose(model.weights, [0.57, 0.40, 0.03], atol=0.03)


def test_trace_has_a_record_per_round_and_counts_exchanges(small):
    found = run(small, basis_rounds=8, refine_rounds=5)
    assert [record["phase"] for record in found.trace] == ["fedmd"] * 6 + ["fedx"] * 5
    exchanges = [record["exchanges"] for record in found.trace]
    assert exchanges[0] == 2 + 8 + 1  # census and peak, half-steps of the basis, anchors
    assert np.all(np.diff(exchanges[:6]) == 9)
    assert found.traffic.exchanges == 2 + 6 * 9 + 1 + 5 + 1  # and the first and last look at the labels
    assert found.traffic.bytes_down > 0


@pytest.mark.parametrize("last", [1, 4, 6, 7, 60])  # within Phase 1, at its end, within Phase 2
def test_a_run_stopped_anywhere_goes_on_to_the_same_bits(small, tmp_path, last):
    whole = run(small)
    settings, features = settings_for(small), small.clients.features

    def stop(event):
        if event.round + (6 if event.phase == "fedx" else 0) == last:
            raise KeyboardInterrupt

    def journal(resume):
        return JournalPool(LocalPool(small.clients), tmp_path / "journal", "this run", resume=resume)

    with pytest.raises(KeyboardInterrupt), journal(resume=False) as pool:
        fit_paper(pool, features, 2, settings, watch=stop)
    with (tmp_path / "journal").open("ab") as file:
        file.write(b"a record that was cut off")
    with journal(resume=True) as pool:
        resumed = fit_paper(pool, features, 2, settings)
    assert not (tmp_path / "journal").exists()
    assert pool.pool.traffic.exchanges < pool.traffic.exchanges == whole.traffic.exchanges
    assert resumed.model.to_dict() == whole.model.to_dict()
    assert resumed.trace == whole.trace


def test_every_client_has_a_model_of_its_own(small):
    model = run(small).model
    query = LocalUpdate(model.mixture, True, settings_for(small).local_update)
    own = own_models(query, small.clients)
    errors = np.linalg.norm(own - small.theta[small.labels], axis=1)
    assert np.mean(errors < 0.5) > 0.95


@pytest.mark.slow
def test_a_start_may_leave_out_the_intercept():
    made = simulate(n_clients=2000, dim=4, n_clusters=2, n_anchors=10, anchor_rows=400, seed=5)
    X, groups = made.clients.phi, np.repeat(made.clients.ids, made.clients.rows)
    clients = Clients.from_arrays(X, made.clients.y + 3.0, groups, intercept=True)
    pool = LocalPool(clients)
    for start in ((1.0,) * 4, (1.0,) * 5):
        settings = settings_for(made, start=start, refine_rounds=300)
        model = fit_paper(pool, clients.features, 2, settings).model
        np.testing.assert_allclose(model.intercept, 3.0, atol=0.05)
    with pytest.raises(SettingsError, match="start must hold 4 or 5 finite numbers for each model"):
        fit_paper(pool, clients.features, 2, settings_for(made, start=(1.0,) * 3))


def test_constant_columns_are_refused_by_name(small):
    X = small.clients.phi.copy()
    X[:, 1] = 4.0
    clients = Clients.from_arrays(X, small.clients.y, intercept=True)
    with pytest.raises(DataError, match=r"column 'x_1' is constant \(always 4\)"):
        fit_paper(LocalPool(clients), clients.features, 2, settings_for(small))


def test_a_step_too_long_for_the_theorems_is_a_warning(small):
    assert not run(small, refine_rounds=1).model.warnings
    warned = run(small, refine_rounds=1, step=0.2).model
    assert "gamma" in warned.warnings[0]


@pytest.mark.parametrize("membership", ["hard", "soft"])
def test_models_that_run_away_are_refused(small, membership):
    with pytest.raises(SettingsError, match=r"diverge at step = 30, in round \d+: take a smaller step"):
        run(small, step=30.0, local_steps=10, membership=membership)


@pytest.mark.parametrize(("k", "message"), [(0, "must be 1 or more"), (5000, "no more than 2000 clients")])
def test_an_impossible_number_of_clusters_is_refused(small, k, message):
    with pytest.raises(SettingsError, match=message):
        fit_paper(LocalPool(small.clients), small.clients.features, k, settings_for(small))


def test_a_model_survives_its_file_and_predicts_from_it(small, tmp_path):
    model = run(small).model
    model.save(tmp_path / "model.json")
    again = Model.load(tmp_path)
    assert again.to_dict() == model.to_dict()
    known = again.assign(small.clients)
    clients = small.clients
    owner = np.repeat(np.arange(clients.n_clients), clients.rows)
    rows = Rows(clients.phi, None, clients.ids, owner, clients.features)
    expected = np.einsum("nk,nk->n", known.probabilities[owner], clients.phi @ model.theta.T)
    np.testing.assert_allclose(again.predict(rows, known), expected)
    strangers = Rows(clients.phi, None, -1 - clients.ids, owner, clients.features)
    np.testing.assert_allclose(again.predict(strangers, known), clients.phi @ (model.weights @ model.theta))
    texts = dataclasses.replace(rows, ids=clients.ids.astype(str).astype(object))
    np.testing.assert_allclose(again.predict(texts, known), expected)  # "7" in one file is 7 in another
    with pytest.raises(DataError, match="fitted on the features x_0"):
        again.predict(dataclasses.replace(rows, features=("a", "b", "c", "d")))
