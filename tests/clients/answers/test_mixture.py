"""Sums of a mixture's candidates, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from helpers.candidates import log_density, plain_frame, random_candidates, standard_rows
from helpers.clients import random_clients, random_frame
from mixfed import Clients, simulate
from mixfed.clients.local import LocalPool
from mixfed.core.symmetric import mirrored
from mixfed.exchange.census import Census
from mixfed.exchange.local_update import FedAvg, FedProx, LocalUpdate, Mixture
from mixfed.exchange.mixture import Candidates, LocalStep, MixtureSums, SplitMoments
from mixfed.exchange.units import StandardUnits
from mixfed.recipes.standardise import gram_query, inspect, make_units

EXACT = {"rtol": 1e-9, "atol": 1e-10}
seeds = st.integers(0, 2**32 - 1)
sizes = st.lists(st.integers(1, 6), min_size=2, max_size=12)


@given(seeds, sizes, st.integers(1, 4), st.integers(0, 4), st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_expectations_equal_a_plain_loop(seed, sizes, dim, more, k, count, hard):
    clients, frame = random_clients(seed, sizes, dim + more), random_frame(seed, dim + more, dim)
    candidates = random_candidates(seed, count, k, dim)
    reply = LocalPool(clients).ask(MixtureSums(frame, candidates, tuple(range(count)), hard))
    for c in range(count):
        likelihood, clients_, rows, overlap = 0.0, np.zeros(k), np.zeros(k), np.zeros((k, k))
        squares, score_, gram = np.zeros(k), np.zeros((k, dim)), np.zeros((k, dim, dim))
        missing = np.zeros((k * (dim + 2), k * (dim + 2)))
        for i in range(clients.n_clients):
            z, y = standard_rows(clients, frame, i)
            density = log_density(z, y, candidates, c)
            share = np.exp(density - np.logaddexp.reduce(density))
            if hard:
                share = np.eye(k)[np.argmax(density)]
            likelihood += density.max() if hard else np.logaddexp.reduce(density)
            clients_ += share
            rows += len(y) * share
            overlap += np.outer(share, share)
            for j in range(k):
                residual = y - z @ candidates.theta[c, j]
                squares[j] += share[j] * residual @ residual
                score_[j] += share[j] * z.T @ residual
                gram[j] += share[j] * z.T @ z
            score = np.zeros((k, k, dim + 2))  # the complete score if the client is of kind j
            for j in range(k):
                variance, residual = np.exp(candidates.log_variance[c, j]), y - z @ candidates.theta[c, j]
                score[j, j, :dim] = z.T @ residual / variance
                score[j, j, dim] = 0.5 * (residual @ residual / variance - len(y))
                score[j, j, dim + 1] = 1.0
            flat = score.reshape(k, -1) * (share * (1 - share) > 1e-5)[:, None]  # only kinds it wavers about
            for a in range(k):
                for b in range(k):
                    missing += share[a] * ((a == b) - share[b]) * np.outer(flat[a], flat[b])
        np.testing.assert_allclose(reply.likelihood[c], likelihood, **EXACT)
        np.testing.assert_allclose(mirrored(reply.missing[c], k), missing, rtol=1e-8, atol=1e-8)
        expected = {
            "clients": clients_,
            "rows": rows,
            "overlap": overlap,
            "squares": squares,
            "score": score_,
            "matrices": gram,
        }
        for name, value in expected.items():
            np.testing.assert_allclose(getattr(reply, name)[c], value, rtol=1e-8, atol=1e-8, err_msg=name)


@given(seeds, sizes, st.integers(1, 3), st.integers(0, 3), st.integers(1, 3))
def test_split_moments_equal_pair_moments_around_each_kind(seed, sizes, dim, more, k):
    clients, frame = random_clients(seed, sizes, dim + more), random_frame(seed, dim + more, dim)
    mixture = random_candidates(seed, 1, k, dim)
    found = LocalPool(clients).ask(SplitMoments(frame, mixture)).matrices(dim)
    expected = np.zeros((k, dim, dim))
    for i in range(clients.n_clients):
        z, y = standard_rows(clients, frame, i)
        density = log_density(z, y, mixture, 0)
        share = np.exp(density - np.logaddexp.reduce(density))
        for j in range(k):
            e = z * (y - z @ mixture.theta[0, j])[:, None]
            total = e.sum(axis=0)
            if len(y) > 1:
                expected[j] += share[j] * (np.outer(total, total) - e.T @ e) / (len(y) - 1)
    np.testing.assert_allclose(found, expected, **EXACT)


@given(seeds, sizes, st.integers(1, 4), st.integers(1, 3), st.booleans(), st.booleans())
def test_a_local_step_in_plain_units_is_a_round_of_phase_2(seed, sizes, dim, k, prox, hard):
    clients, mixture = random_clients(seed, sizes, dim), random_candidates(seed, 1, k, dim)
    update = FedProx(0.7) if prox else FedAvg(0.05, 3)
    pool = LocalPool(clients)
    local = pool.ask(LocalStep(plain_frame(dim), mixture, update, hard))
    plain = Mixture(mixture.theta[0], np.exp(mixture.log_weight[0]), np.exp(0.5 * mixture.log_variance[0]))
    paper = pool.ask(LocalUpdate(plain, hard, update))
    for name, value in vars(paper).items():
        np.testing.assert_allclose(getattr(local, name), value, **EXACT, err_msg=name)


def frame_of(clients: Clients) -> StandardUnits:
    pool = LocalPool(clients)
    census = pool.ask(Census())
    columns = inspect(census, clients.intercept)
    return make_units(columns, pool.ask(gram_query(columns)), census.n_rows)[0]


@pytest.mark.parametrize("hard", [True, False])
def test_second_moments_are_those_before_and_what_moved(hard):
    clients = simulate(n_clients=900, dim=3, n_clusters=2, noise=1.0).clients
    pool, frame = LocalPool(clients), frame_of(clients)
    rng = np.random.default_rng(0)
    first, second = (
        Candidates(rng.standard_normal((2, 3, 3)), np.zeros((2, 3)), np.full((2, 3), -np.log(3))) for _ in range(2)
    )
    before, whole = pool.ask(MixtureSums(frame, first, hard=hard)), pool.ask(MixtureSums(frame, second, hard=hard))
    moved = pool.ask(MixtureSums(frame, second, hard=hard, since=first))
    np.testing.assert_allclose(before.gram + moved.gram, whole.gram, atol=1e-9)
    np.testing.assert_array_equal(moved.score, whole.score)
    assert not pool.ask(MixtureSums(frame, second, hard=hard, since=second)).gram.any()


def test_scores_do_not_need_the_curvature():
    clients = simulate(n_clients=400, dim=3, n_clusters=2).clients
    pool, frame = LocalPool(clients), frame_of(clients)
    candidate = Candidates(np.ones((1, 2, 3)) * [[1.0], [-1.0]], np.zeros((1, 2)), np.full((1, 2), -np.log(2)))
    whole, quick = pool.ask(MixtureSums(frame, candidate)), pool.ask(MixtureSums(frame, candidate, curvature=False))
    np.testing.assert_array_equal(whole.score, quick.score)
    np.testing.assert_array_equal(whole.squares, quick.squares)
    assert len(quick.gram) == 0
    assert whole.gram.any()
