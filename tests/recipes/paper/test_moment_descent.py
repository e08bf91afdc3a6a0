"""Moment descent: who takes part."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from helpers.clients import random_clients
from helpers.paper import small_settings
from mixfed.clients.local import LocalPool
from mixfed.core.errors import SettingsError
from mixfed.recipes.paper import moment_descent


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
