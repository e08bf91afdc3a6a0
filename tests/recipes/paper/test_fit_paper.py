"""The paper's recipe from start to end."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from helpers.clients import own_models
from mixfed import (
    AutoSettings,
    Clients,
    DataError,
    LocalPool,
    PaperSettings,
    SettingsError,
    bottleneck_distance,
    fit_auto,
    fit_paper,
    simulate,
)
from mixfed.exchange.journal import JournalPool, fingerprint
from mixfed.exchange.local_update import FedProx, LocalUpdate, Mixture
from mixfed.exchange.moments import GramSum
from mixfed.exchange.registry import MESSAGES
from mixfed.model.model import Model
from mixfed.recipes.paper import moment_descent
from mixfed.recipes.paper.theory import least_gap
from mixfed.report.folder import FILES, about_run, write_results
from mixfed.tables.rows import Rows

SMALL = {"n_anchors": 8, "n_recruits": 300, "pairs": 30, "rounds": 6, "refine_rounds": 120}


@pytest.fixture(scope="module")
def small():
    return simulate(n_clients=2000, dim=4, n_clusters=2, n_anchors=10, anchor_rows=400, seed=5)


def settings_for(made, **changes):
    return PaperSettings(separation=least_gap(made.theta), **(SMALL | changes))


def run(made, seed=0, **changes):
    clients = made.clients
    return fit_paper(LocalPool(clients), clients.features, len(made.theta), settings_for(made, **changes), seed=seed)


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


def test_a_journal_of_other_data_or_settings_is_refused(small, tmp_path, monkeypatch):
    path, pool = tmp_path / "journal", LocalPool(small.clients)
    with pytest.raises(KeyboardInterrupt), JournalPool(pool, path, "one", resume=False):
        raise KeyboardInterrupt
    with pytest.raises(SettingsError, match="other data or settings"):
        JournalPool(pool, path, "two", resume=True)
    with JournalPool(pool, path, "two", resume=False) as fresh:
        assert fresh.traffic.exchanges == 0
    first = fingerprint(small.clients, settings_for(small))
    assert first != fingerprint(small.clients, settings_for(small, step=0.02))
    assert first != fingerprint(small.clients.subset(np.arange(1999)), settings_for(small))
    monkeypatch.setitem(MESSAGES, "ModelSum", GramSum)  # an earlier program's replies, made of other sums
    assert first != fingerprint(small.clients, settings_for(small))


def test_every_client_has_a_model_of_its_own(small):
    model = run(small).model
    query = LocalUpdate(model.mixture, True, settings_for(small).local_update)
    own = own_models(query, small.clients)
    errors = np.linalg.norm(own - small.theta[small.labels], axis=1)
    assert np.mean(errors < 0.5) > 0.95


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


def test_results_with_an_empty_kind_are_written_whole(tmp_path):
    rows = {"least_rows": 5, "most_rows": 10, "n_anchors": 6, "anchor_rows": 60}
    made = simulate(n_clients=40, dim=2, n_clusters=1, noise=0.1, seed=0, **rows)
    settings = PaperSettings(separation=1.0, n_anchors=4, n_recruits=10, pairs=2, rounds=2, refine_rounds=5)
    found = fit_paper(LocalPool(made.clients), made.clients.features, 2, settings)
    assert found.model.details["kind_rows"] == [made.clients.n_rows, 0]
    write_results(tmp_path, found, found.model.assign(made.clients), about_run("table", ["fit"], "run"))
    assert {path.name for path in tmp_path.iterdir()} == set(FILES)


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


def test_a_kind_that_nobody_is_of_has_no_loss_however_far_it_is(small):
    theta = np.zeros((2, small.theta.shape[1]))
    theta[1] = 1e160
    reply = LocalPool(small.clients).ask(LocalUpdate(Mixture(theta, np.full(2, 0.5), np.ones(2)), False, FedProx(0.1)))
    assert reply.loss[0] == pytest.approx(0.5 * np.sum(small.clients.y**2))
    assert reply.loss[1] == 0.0
    assert (reply.shift[1] == 0.0).all()


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


@pytest.mark.parametrize("name", ["model-1-plain.json", "model-1-personal.json"])
def test_models_of_the_format_before_are_read_as_ever(name, tmp_path):
    """Files that were written by the last version with that format, of a fit that is repeated here."""
    made = simulate("mirror", n_clients=300, dim=2, seed=0).clients
    settings = AutoSettings(personal="personal" in name, max_clusters=3)
    now = fit_auto(LocalPool(made), made.features, None, settings).model
    then = Model.load(Path(__file__).parents[2] / "fixtures" / name)
    np.testing.assert_allclose(then.theta, now.theta, rtol=1e-9)
    np.testing.assert_array_equal(then.assign(made).cluster, now.assign(made).cluster)
    assert then.details["likelihood"] == pytest.approx(now.details["likelihood"])
    for old, new in zip(then.details["choice"], now.details["choice"], strict=True):
        assert old["bic"] == pytest.approx(new["bic"], abs=0.05)
        assert old["likelihood"] == pytest.approx(new["likelihood"], abs=0.05)
    then.save(tmp_path / "model.json")
    assert Model.load(tmp_path).to_dict() == then.to_dict()
    assert then.to_dict()["format"] == "mixfed/2"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not a model file"),
        ('{"format": "mixfed/9"}', "the format is 'mixfed/9', this version of mixfed reads 'mixfed/2' and 'mixfed/1'"),
        ('{"format": "mixfed/2"}', "damaged"),
        ('{"format": "mixfed/1"}', "damaged"),
        ('{"format": "mixfed/2", "family": "poisson"}', "this version of mixfed does not know family: update mixfed"),
    ],
)
def test_other_model_files_are_refused(tmp_path, content, message):
    (tmp_path / "model.json").write_text(content)
    with pytest.raises(DataError, match=message):
        Model.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noise": [1.0] * 5000}, "noise is not"),
        ({"weights": [1.0]}, "weights is not"),
        ({"intercept": []}, "intercept is not"),
        ({"coef": [[1.0, 2.0]]}, "coef is not"),
        ({"coef": []}, "damaged"),
        ({"noise": [-1.0, 1.0]}, "below 0"),
        ({"noise": [float("nan"), 1.0]}, "noise is not"),
        ({"has_intercept": "yes"}, "has_intercept is neither"),
    ],
)
def test_a_model_whose_parts_disagree_is_refused(tmp_path, change, message):
    mixture = Mixture(np.ones((2, 3)), np.array([0.5, 0.5]), np.ones(2))
    model = Model.from_mixture(mixture, ("a", "b", "c"), loss="squared", recipe="auto", seed=0)
    (tmp_path / "model.json").write_text(json.dumps(model.to_dict() | change))
    with pytest.raises(DataError, match=message):
        Model.load(tmp_path)
