"""Which clients are known, and as what."""

from __future__ import annotations

import uuid

import numpy as np
import pytest

from helpers.ids import DAYS, OWNERS
from helpers.personal import marginal
from mixfed.core.symmetric import unpacked
from mixfed.model import assignment
from mixfed.model.assignment import Assignment
from mixfed.tables.ids import in_form, joined

PAIRS = [
    (OWNERS, OWNERS.astype(float)),
    (OWNERS, OWNERS.astype(str)),
    (OWNERS.astype(float), OWNERS.astype(str).astype(object)),
    (OWNERS + 2**60, (OWNERS + 2**60).astype(np.uint64)),
    (DAYS.astype("datetime64[us]"), DAYS.astype("datetime64[ns]")),
    (DAYS, DAYS.astype("datetime64[us]")),
    (OWNERS.astype("timedelta64[s]"), OWNERS.astype("timedelta64[s]").astype("timedelta64[ns]")),
    (np.array([str(uuid.UUID(int=int(one))) for one in OWNERS]),) * 2,
    (OWNERS, OWNERS.astype(float).astype(str)),
    (OWNERS.astype(str), OWNERS.astype(float).astype(str).astype(object)),
    (OWNERS.astype(float), np.array([f"{one},00" for one in OWNERS])),
]


@pytest.mark.parametrize(("fitted", "asked"), PAIRS, ids=lambda ids: str(ids.dtype))
@pytest.mark.parametrize("turned", [False, True])
def test_the_same_clients_are_found_whatever_their_ids_became(fitted, asked, turned):
    if turned:
        fitted, asked = asked, fitted
    fitted, asked = np.unique(fitted), np.unique(asked)
    known = Assignment(fitted, np.ones(4, int), np.tile([0.2, 0.8], (4, 1)))
    np.testing.assert_array_equal(known.places(asked), np.arange(4))
    newer = Assignment(asked[1:2], np.ones(1, int), np.array([[1.0, 0.0]]))
    both = known.updated(newer)
    assert len(both) == 4
    for ids in (fitted, asked):
        np.testing.assert_array_equal(both.probabilities[both.places(ids), 0], [0.2, 1.0, 0.2, 0.2])


def test_a_new_client_with_a_name_leaves_the_others_known():
    numbers = Assignment(np.array([1.0, 2.5, 2.0**53]), np.ones(3, int), np.ones((3, 1)))
    both = numbers.updated(Assignment(np.array(["new"]), np.ones(1, int), np.ones((1, 1))))
    for ids in (numbers.ids, numbers.ids.astype(object), ["1", "2.5", str(2**53)]):
        np.testing.assert_array_equal(both.places(np.asarray(ids)), [0, 1, 2])
    assert joined(np.array([2**60 + 1]), np.array([2**63], np.uint64)).tolist() == [str(2**60 + 1), str(2**63)]


def test_ids_that_differ_by_a_fraction_of_zero_are_told_apart_where_both_are_there():
    known = Assignment(np.array(["1", "1.0", "v2.0", "3.10"], object), np.ones(4, int), np.ones((4, 1)))
    asked = np.array(["1.0", "1", "v2.0", "v2", "2", "3.1", "3.10"], object)
    np.testing.assert_array_equal(known.places(asked), [1, 0, 2, -1, -1, -1, 3])


def shuffled(ids):
    return np.random.default_rng(0).permutation(ids)


@pytest.mark.parametrize(
    ("known", "asked"),
    [
        (shuffled(np.arange(-50, 50) * 3), np.arange(-200, 200)),
        (shuffled(np.arange(50)), np.arange(0, 60, 0.5)),
        (np.arange(0, 60, 0.5), np.array([3, 7, 999])),
        (np.array([2**53 + 1, 5]), np.array([2.0**53, 5.0, np.inf])),
        (np.array([2**24, 2**24 + 1]), np.array([2**24], np.float32)),
        (np.array([2**60 + 1, -1]), np.array([2**60 + 1, 2**64 - 1], np.uint64)),
        (np.array([0.1, 0.5]), np.array([0.1, 0.5], np.float32)),
        (shuffled(np.array([f"client {i}" for i in range(300)], object)), np.array(["client 7", "client", "x", ""])),
        (np.array(["b", "ä", "a", "\U0001f600"]), np.array(["ä", "\U0001f600", "z", "a"], object)),
        (np.array([], object), np.array(["a", "b"])),
        (np.array(["a"]), np.array([], object)),
    ],
    ids=range(11),
)
def test_clients_are_found_as_in_a_dictionary(known, asked):
    place = {client: i for i, client in enumerate(known.tolist())}
    expected = [place.get(client, -1) for client in asked.tolist()]
    assigned = Assignment(known, np.ones(len(known), int), np.ones((len(known), 1)))
    np.testing.assert_array_equal(assigned.places(asked), expected)
    np.testing.assert_array_equal(assigned.places(asked[::-1]), expected[::-1])


def test_known_clients_are_put_in_order_once(monkeypatch):
    known = Assignment(np.array(["b", "a", "c"], object), np.ones(3, int), np.ones((3, 1)))
    orders = []
    monkeypatch.setattr(assignment, "in_form", lambda ids, form: orders.append(ids is known.ids) or in_form(ids, form))
    for asked in ("a", "b", "x", "y"):
        known.places(np.array([asked]))
    assert sum(orders) == 2  # as they are, and without fractions of zero


@pytest.mark.slow
def test_a_clients_deviation_is_the_posterior_one(two):
    """Means and covariances of single clients, by the formulas in full."""
    clients, model = two[-2:]
    some = clients.subset(np.array([0, 5, 9]))
    known = model.assign(some)
    for i in range(3):
        part = slice(some.offsets[i], some.offsets[i + 1])
        X, y = some.design[part], some.y[part]
        logs = []
        for j in range(2):
            psi, factor = model.deviation[j], model.factor[j]
            cov = model.noise[j] ** 2 * np.eye(len(y)) + X @ psi @ X.T
            mean = psi @ X.T @ np.linalg.solve(cov, y - X @ model.theta[j])
            spread = psi - psi @ X.T @ np.linalg.solve(cov, X @ psi)
            width = factor.shape[1]
            np.testing.assert_allclose(factor @ known.effects[i, j], mean, atol=1e-9)
            np.testing.assert_allclose(factor @ unpacked(known.uncertainty[i, j], width) @ factor.T, spread, atol=1e-9)
            logs.append(np.log(model.weights[j]) + marginal(X, y, model.theta[j], psi, model.noise[j] ** 2))
        np.testing.assert_allclose(known.probabilities[i], np.exp(logs - np.logaddexp.reduce(logs)), atol=1e-9)


@pytest.mark.slow
def test_new_rows_of_a_client_replace_what_was_known(two):
    clients, model = two[-2:]
    known, newer = model.assign(clients), model.assign(clients.subset(np.array([3, 1])))
    both = known.updated(newer)
    places = both.places(newer.ids)
    np.testing.assert_allclose(both.effects[places], newer.effects)
    assert len(both) == len(known)
    means = model.own_coefficients(both)
    assert means.shape == (len(known), 3)
