"""What single anchors answer."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, strategies as st

from helpers.clients import client_rows, random_clients
from helpers.exchanges import answer_each
from mixfed import LocalPool
from mixfed.exchange.anchors import Descend


def test_anchors_say_the_same_a_block_at_a_time():
    clients = random_clients(0, [9000, 2, 7000, 3, 8000], 4)
    rng, who = np.random.default_rng(1), np.array([4, 1, 0, 3, 2])
    theta, basis = rng.standard_normal((5, 4)), np.linalg.qr(rng.standard_normal((5, 4, 2)))[0]
    query = Descend(theta, basis, round=0, pairs=1, power_rounds=9, threshold=0.0, rate=0.1, seed=0)
    asked, whole = LocalPool(clients).ask_each(query, who), answer_each(query, clients.subset(who))
    np.testing.assert_allclose(asked.theta, whole.theta)
    np.testing.assert_allclose(asked.size, whole.size)


@pytest.mark.slow
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
