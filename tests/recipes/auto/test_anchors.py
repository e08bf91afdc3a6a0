"""The anchors' problem on the server: compiled steps against plain ones, sieves, and anchors who are everybody."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from helpers.candidates import random_candidates, random_mixtures
from helpers.clients import random_clients, random_frame
from mixfed.clients.local import LocalPool
from mixfed.exchange.anchors import AnchorEquations, Project
from mixfed.exchange.mixture import MixtureSums
from mixfed.recipes import updates as mixtures
from mixfed.recipes.auto.anchors import LEAST_SIEVED, SIEVE_ROWS, Anchors
from mixfed.recipes.updates import Penalty, maximise, penalised_likelihood

seeds = st.integers(0, 2**32 - 1)


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
    found, last = anchors.em_steps(start, 3)
    np.testing.assert_allclose(last, value, rtol=1e-7, atol=1e-7)
    for name in ("theta", "log_variance", "log_weight"):
        np.testing.assert_allclose(getattr(found, name), getattr(plain, name), rtol=1e-5, atol=1e-6, err_msg=name)


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


sizes = st.lists(st.integers(1, 6), min_size=2, max_size=12)


@given(seeds, sizes, st.integers(1, 4), st.integers(1, 3))
def test_anchors_who_are_everybody_say_what_all_clients_say(seed, sizes, dim, k):
    clients, frame = random_clients(seed, sizes, dim), random_frame(seed, dim)
    pool, candidates = LocalPool(clients), random_candidates(seed, 2, k, dim)
    statistics = pool.ask_each(Project(frame, np.eye(dim)), np.arange(clients.n_clients))
    said = Anchors(statistics, np.ones(clients.n_clients), mixtures.Penalty()).expect(candidates)
    asked = pool.ask(MixtureSums(frame, candidates))
    for name in ("likelihood", "clients", "rows", "squares", "score", "gram"):
        np.testing.assert_allclose(getattr(said, name), getattr(asked, name), rtol=1e-7, atol=1e-7, err_msg=name)
