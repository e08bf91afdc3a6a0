"""The comparison of rivals on held-out rows."""

from __future__ import annotations

import json

import numpy as np
import pytest

from helpers.families import COUNTING, simulated as classes_or_counts
from helpers.personal import TWO, simulated
from mixfed import Clients, DataError, SettingsError
from mixfed.evaluation.compare import RIVALS, _ridge, _Task, compare, hold_out
from mixfed.recipes.settings import AutoSettings
from mixfed.tables.rows import rows_from_arrays


@pytest.fixture(scope="module")
def compared():
    X, y, owner, *_ = simulated(11, 500, **TWO)
    return compare(rows_from_arrays(X, y, owner, intercept=True), splits=2, seed=3)


@pytest.mark.slow
def test_kinds_with_deviations_win_where_they_are_the_truth(compared):
    errors = {one.rival: one.rmse for one in compared.outcomes}
    assert list(errors) == list(RIVALS)
    best = errors.pop("kinds + personal")
    assert best < min(errors.values())
    assert errors["mixed model"] < errors["ridge to the common model"] < errors["one model"]
    assert {one.n_clusters for one in compared.outcomes if one.rival == "kinds + personal"} == {(2, 2)}


@pytest.mark.slow
def test_the_result_is_a_table_and_json(compared):
    content = json.loads(json.dumps(compared.to_dict(), allow_nan=False))
    assert len(content["outcomes"]) == len(RIVALS)
    first = content["outcomes"][0]
    assert first["rmse"] == pytest.approx(np.mean([errors[0] for errors in first["by_split"]]))
    assert content["held_out"] > content["held_out_small"] > 0


def test_a_split_leaves_each_client_a_row_and_takes_one():
    owner = np.repeat(np.arange(5), [1, 2, 3, 10, 20])
    rng = np.random.default_rng(0)
    held = hold_out(rng.permutation(owner), 0.3, rng)
    shuffled = np.random.default_rng(0).permutation(owner)
    np.testing.assert_array_equal(np.bincount(shuffled[held], minlength=5), [0, 1, 1, 3, 6])


def test_the_latest_rows_are_held_out():
    owner, when = np.repeat(np.arange(3), 10), np.tile(np.arange(10.0), 3)
    order = np.random.default_rng(1).permutation(30)
    held = hold_out(owner[order], 0.2, np.random.default_rng(0), when[order])
    assert set(when[order][held]) == {8.0, 9.0}
    X, y, clients, *_ = simulated(11, 60, **TWO)
    result = compare(rows_from_arrays(X, y, clients), rivals=["one model"], when=X[:, 0])
    assert len(result.outcomes[0].by_split) == 1


def test_penalties_are_those_of_the_largest_likelihood():
    """Against a grid, by plain loops."""
    X, y, owner, *_ = simulated(4, 40, [[1.0, 0.5, 2.0]], [np.diag([0.2, 0.2, 1.0])], [0.5], [1.0])
    clients = Clients.from_arrays(X, y, owner, intercept=True)
    unit, centre = X.std(axis=0), X.mean(axis=0)
    Z = np.column_stack([(X - centre) / unit, np.ones(len(X))])

    def likelihood(theta, slope, intercept, variance):
        total = 0.0
        for i in range(40):
            own = owner == i
            cov = variance * np.eye(own.sum()) + Z[own] @ np.diag([slope, slope, intercept]) @ Z[own].T
            error = y[own] - np.column_stack([X[own], np.ones(own.sum())]) @ theta
            total -= 0.5 * (np.linalg.slogdet(2 * np.pi * cov)[1] + error @ np.linalg.solve(cov, error))
        return total

    model, _ = _ridge(clients, None, slopes=True)
    psi = model.deviation[0]
    slope = psi[0, 0] * unit[0] ** 2
    assert psi[1, 1] * unit[1] ** 2 == pytest.approx(slope)
    at_centre = np.append(centre, 1.0)
    found = (slope, at_centre @ psi @ at_centre, model.noise[0] ** 2)
    best = likelihood(model.theta[0], *found)
    for place in range(3):
        for factor in (0.9, 1.1):
            other = [number * (factor if place == i else 1.0) for i, number in enumerate(found)]
            assert likelihood(model.theta[0], *other) < best
    for place in range(3):
        for shift in (-0.05, 0.05):
            assert likelihood(model.theta[0] + shift * np.eye(3)[place], *found) < best


def test_a_ridge_per_client_shrinks_to_the_mean():
    X, y, owner, *_ = simulated(4, 60, **TWO)
    task = _Task(Clients.from_arrays(X, y, owner, intercept=True), 2, AutoSettings(), 0)
    model, known = RIVALS["one ridge per client"](task)
    np.testing.assert_allclose(model.coef, 0.0, atol=1e-9)
    assert model.intercept[0] == pytest.approx(y.mean())
    assert known is not None
    model, _ = RIVALS["random intercept"](task)
    assert np.linalg.matrix_rank(model.deviation[0], tol=1e-9) == 1


def test_bad_input_is_told():
    X, y, owner, *_ = simulated(4, 20, **TWO)
    rows = rows_from_arrays(X, y, owner)
    with pytest.raises(SettingsError, match="unknown rival"):
        compare(rows, rivals=["tarot"])
    with pytest.raises(SettingsError, match="share"):
        compare(rows, share=1.5)
    with pytest.raises(DataError, match="target"):
        compare(rows_from_arrays(X, None, owner))
    with pytest.raises(DataError, match="one row"):
        compare(rows_from_arrays(X, y, np.arange(len(y))))


@pytest.mark.parametrize("family", COUNTING)
def test_classes_and_counts_are_compared_by_deviance(family):
    clients = classes_or_counts(family, n_clients=200)[0]
    rows = rows_from_arrays(clients.phi, clients.y, np.repeat(clients.ids, clients.rows), intercept=True)
    found = compare(rows, 2, AutoSettings(family=family), splits=1)
    one, hard, soft = found.outcomes
    assert (one.rival, hard.rival, soft.rival) == ("one model", "kinds, hard", "kinds, soft")
    assert soft.deviance < one.deviance
    assert soft.rmse < one.rmse
    assert found.to_dict()["outcomes"][0]["deviance"] == one.deviance
    with pytest.raises(SettingsError, match="'mixed model' is for the family gaussian"):
        compare(rows, 2, AutoSettings(family=family), rivals=["mixed model"])
