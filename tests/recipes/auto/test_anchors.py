"""The anchors' problem on the server: compiled steps against plain ones, sieves, and which candidates are the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.clients import random_clients, random_frame
from mixfed.clients.local import LocalPool
from mixfed.exchange.anchors import AnchorEquations, Project
from mixfed.exchange.mixture import Candidates, MixtureReply
from mixfed.kernels import anchor_em as climbing
from mixfed.recipes.auto.anchors import LEAST_SIEVED, SIEVE_ROWS, Anchors
from mixfed.recipes.auto.merge_split import splits
from mixfed.recipes.updates import NEARBY, Penalty, distinct, maximise, nearby, penalised_likelihood

seeds = st.integers(0, 2**32 - 1)


def random_mixtures(rng, count, k, dim):
    """Make candidates."""
    weight = np.log(rng.dirichlet(np.full(k, 2.0), size=count))
    return Candidates(rng.standard_normal((count, k, dim)), rng.uniform(-1, 1, (count, k)), weight)


@given(seeds, st.integers(1, 4), st.integers(1, 4), st.integers(1, 9), st.booleans())
def test_climbing_is_steps_of_em(seed, dim, k, count, shared):
    rng = np.random.default_rng(seed)
    clients, frame = random_clients(seed, rng.integers(1, 9, 40).tolist(), dim), random_frame(seed, dim)
    statistics = LocalPool(clients).ask_each(Project(frame, np.eye(dim)), np.arange(clients.n_clients))
    anchors = Anchors(statistics, rng.uniform(0.5, 3.0, clients.n_clients), Penalty(shared, 0.1))
    plain = start = random_mixtures(rng, count, k, dim)
    for _ in range(3):
        reply = anchors.expect(plain)
        value, plain = penalised_likelihood(plain, reply, anchors.rules), maximise(plain, reply, anchors.rules)
    found, last = anchors.climb(start, 3)
    np.testing.assert_allclose(last, value, rtol=1e-7, atol=1e-7)
    for name in ("theta", "log_variance", "log_weight"):
        np.testing.assert_allclose(getattr(found, name), getattr(plain, name), rtol=1e-5, atol=1e-6, err_msg=name)


def test_places_are_drawn_by_their_weights():
    rng = np.random.default_rng(0)
    weight, chance = rng.exponential(size=(50, 7)), rng.random((7, 3))
    weight[[0, 20, 49]] = 0.0
    upto = np.cumsum(weight, axis=0)
    found = climbing.drawn(upto, chance)
    expected = [np.searchsorted(upto[:, s], chance[s] * upto[-1, s], side="right") for s in range(7)]
    np.testing.assert_array_equal(found, expected)
    often = climbing.drawn(upto[:, :1], rng.random((1, 20_000)))[0]
    np.testing.assert_allclose(np.bincount(often, minlength=50) / 20_000, weight[:, 0] / upto[-1, 0], atol=0.01)


@pytest.mark.parametrize("rows", [1.0, 20.0])
def test_a_sieve_stands_for_all_anchors(rows):
    rng = np.random.default_rng(1)
    count, k, dim = 4 * LEAST_SIEVED, 2, 3
    statistics = AnchorEquations(np.full(count, rows), np.ones(count), rng.random((count, dim)), np.ones((count, 6)))
    anchors = Anchors(statistics, rng.uniform(1, 2, count), Penalty())
    few = anchors.sieve(k)
    step = count // len(few.rows)
    assert step == max(1, min(4, int(rows * count / (SIEVE_ROWS * k * dim))))
    np.testing.assert_array_equal(few.fits, anchors.fits[::step])
    np.testing.assert_allclose(few.weight.sum(), anchors.weight.sum(), rtol=0.02)


def test_mixtures_are_near_if_each_model_is():
    rng = np.random.default_rng(2)
    home = random_mixtures(rng, 1, 4, 3)
    gap = min(np.linalg.norm(a - b) for i, a in enumerate(home.theta[0]) for b in home.theta[0][:i])
    way = np.array([1.0, 0.0, 0.0])
    others = np.repeat(home.theta, 4, axis=0)
    others[0] = others[0][[2, 0, 3, 1]] + 0.9 * NEARBY * gap * way
    others[1, 2] += 1.1 * NEARBY * gap * way
    others[2, 1] = others[2, 0]  # two at the same place, and none at the other
    others[3] += 5.0
    crowd = Candidates(others, np.zeros((4, 4)), np.zeros((4, 4)))
    assert nearby(crowd, home).tolist() == [True, False, False, False]
    everybody = Candidates.stack([crowd, home])
    assert distinct(everybody, np.array([1.0, 2.0, 3.0, 4.0, 5.0]), 0.0).tolist() == [4, 3, 2, 1]


@pytest.mark.parametrize("k", [2, 3, 5])
def test_no_two_splits_are_the_same(k):
    rng = np.random.default_rng(k)
    dim = 3
    mixture, root = random_mixtures(rng, 1, k, dim), rng.standard_normal((k, dim, dim))
    overlap = rng.random((k, k))
    reply = MixtureReply(
        np.zeros(1),
        rng.uniform(10, 20, (1, k)),
        rng.uniform(30, 60, (1, k)),
        np.ones((1, k)),
        np.zeros((1, k, dim)),
        np.tile(np.eye(dim)[np.tril_indices(dim)] * 40.0, (1, k, 1)),
        (overlap + overlap.T + np.eye(k))[None],
        np.empty((0, 1, 1, 1)),
    )
    made = splits(mixture, reply, root @ root.transpose(0, 2, 1), 100)
    assert len(made) >= k
    sets = {tuple(sorted(map(tuple, one.theta[0].round(9).tolist()))) for one in made}
    assert len(sets) == len(made)
