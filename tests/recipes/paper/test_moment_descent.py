"""Moment descent: who takes part, the anchors' step, grouping."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.clients import client_rows, random_clients
from mixfed.clients.answers import answer_each
from mixfed.clients.local import LocalPool
from mixfed.core.errors import SettingsError
from mixfed.exchange.anchors import Descend
from mixfed.kernels.power_iteration import power_iteration
from mixfed.recipes.paper import moment_descent
from mixfed.recipes.paper.grouping import group_anchors
from mixfed.recipes.settings import PaperSettings


def small_settings(**changes):
    return PaperSettings(**({"separation": 1.0, "n_anchors": 3, "n_recruits": 5, "pairs": 2, "rounds": 3} | changes))


@given(st.integers(0, 10**6))
def test_no_client_serves_twice(seed):
    pool = LocalPool(random_clients(seed, [12] * 6 + [2] * 20 + [1] * 9, 2))
    settings = small_settings()
    roles = moment_descent.assign_roles(pool, settings, seed)
    everyone = np.concatenate([roles.anchors, roles.recruits.ravel()])
    assert len(np.unique(everyone)) == 3 + 15
    assert np.all(pool.clients.rows[roles.anchors] >= 12)
    assert np.all(pool.clients.rows[roles.recruits] >= 2)


def test_the_cast_depends_on_ids_and_seed_not_on_the_order_of_clients():
    clients = random_clients(3, [12] * 6 + [2] * 30, 2)
    order = np.random.default_rng(0).permutation(clients.n_clients)
    shuffled = clients.subset(order)
    roles = moment_descent.assign_roles(LocalPool(clients), small_settings(), 7)
    again = moment_descent.assign_roles(LocalPool(shuffled), small_settings(), 7)
    np.testing.assert_array_equal(clients.ids[roles.anchors], shuffled.ids[again.anchors])
    np.testing.assert_array_equal(clients.ids[roles.recruits], shuffled.ids[again.recruits])
    other = moment_descent.assign_roles(LocalPool(clients), small_settings(), 8)
    assert np.any(roles.anchors != other.anchors)


def test_running_out_of_anchors_or_recruits_says_what_was_needed_and_what_there_was():
    pool = LocalPool(random_clients(0, [12] * 2 + [2] * 30, 2))
    with pytest.raises(SettingsError, match=r"n_anchors = 3 .* 12 rows each, but only 2 clients"):
        moment_descent.assign_roles(pool, small_settings(), 0)
    with pytest.raises(SettingsError, match=r"n_recruits = 50 .* 150 .* there are 30"):
        moment_descent.assign_roles(pool, small_settings(n_anchors=2, n_recruits=50), 0)


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 4))
def test_an_anchors_step_equals_a_plain_loop(seed, dim, width):
    width = min(width, dim)
    clients = random_clients(seed, [12, 15, 40], dim)
    rng = np.random.default_rng([seed, 1])
    query = Descend(
        theta=rng.standard_normal((3, dim)),
        basis=np.linalg.qr(rng.standard_normal((3, dim, width))).Q,
        round=1,
        pairs=3,
        power_rounds=4000,
        threshold=0.05,
        rate=0.5,
        seed=seed,
    )
    who = np.array([2, 0, 1])
    replies = answer_each(query, clients.subset(who))
    for h, place in enumerate(who):
        # The rows of a round are not known from outside: recover them from the ones of all rounds.
        rows = drawn_rows(query, clients, place)
        phi, y = client_rows(clients, place)
        projected = (y[rows] - phi[rows] @ query.theta[h])[:, None] * (phi[rows] @ query.basis[h])
        matrix = projected[:3].T @ projected[3:] / 3
        left, singular, _ = np.linalg.svd(matrix)
        direction = left[:, 0] * (1 if left[:, 0] @ projected.mean(axis=0) >= 0 else -1)
        assert replies.size[h] == pytest.approx(np.sqrt(singular[0]), rel=1e-6)
        if width > 1 and singular[1] > 0.99 * singular[0]:
            continue  # power iteration cannot tell the two directions apart in the steps it has
        stride = 0.5 * np.sqrt(singular[0]) if np.sqrt(singular[0]) > 0.05 else 0.0
        expected = query.theta[h] + stride * query.basis[h] @ direction
        np.testing.assert_allclose(replies.theta[h], expected, rtol=1e-6, atol=1e-8)


def drawn_rows(query, clients, place):
    from mixfed.clients.answers.anchors import _fresh_rows

    return _fresh_rows(query, clients, place) - clients.offsets[place]


def test_an_anchors_rows_are_fresh_in_every_round():
    clients = random_clients(5, [24], 2)
    query = Descend(np.zeros((1, 2)), np.eye(2)[None], 0, 4, 1, 0.1, 0.5, 11)
    used = [drawn_rows(dataclasses.replace(query, round=t), clients, 0) for t in range(3)]
    assert sorted(np.concatenate(used)) == list(range(24))


@given(st.integers(0, 10**6), st.integers(1, 5))
def test_power_iteration_finds_the_leading_left_singular_pair(seed, width):
    rng = np.random.default_rng(seed)
    left, _, right = np.linalg.svd(rng.standard_normal((width, width)))
    values = np.geomspace(4.0, 0.1, width)
    matrix = left @ np.diag(values) @ right
    direction, size = power_iteration(matrix[None], rng.standard_normal((1, width)), 200)
    assert size[0] == pytest.approx(2.0)  # the root of the singular value, not of the eigenvalue of A A^T
    assert abs(direction[0] @ left[:, 0]) == pytest.approx(1.0)


def test_power_iteration_of_a_zero_matrix_stays_finite():
    direction, size = power_iteration(np.zeros((1, 2, 2)), np.ones((1, 2)), 5)
    assert np.all(direction == 0)
    assert size[0] == 0


def test_anchors_within_half_the_separation_are_joined_and_averaged():
    theta = np.array([[0.0, 0.0], [5.0, 5.0], [0.4, 0.0], [0.8, 0.0], [5.0, 5.2]])
    groups = group_anchors(theta, 2, small_settings(separation=1.0))
    np.testing.assert_array_equal(groups.labels, [0, 1, 0, 0, 1])
    np.testing.assert_allclose(groups.theta, [[0.4, 0.0], [5.0, 5.1]])


@pytest.mark.parametrize(("k", "hint"), [(3, "lower separation"), (1, "raise rounds")])
def test_a_wrong_number_of_groups_is_an_error_that_names_a_setting(k, hint):
    theta = np.array([[0.0], [5.0]])
    with pytest.raises(SettingsError, match=f"form 2 groups .* not the {k} clusters .*{hint}"):
        group_anchors(theta, k, small_settings())
