"""The exchanges of the tuning-free recipe, against plain loops and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.clients import client_rows, random_clients, random_frame
from mixfed import simulate
from mixfed.clients.answers import answer
from mixfed.clients.local import LocalPool
from mixfed.clients.packed import Clients
from mixfed.core.symmetric import mirrored
from mixfed.exchange.anchors import Project
from mixfed.exchange.base import Batch
from mixfed.exchange.census import Census
from mixfed.exchange.local_update import FedAvg, FedProx, LocalUpdate, Mixture
from mixfed.exchange.mixture import Candidates, LocalStep, MixtureSums, SplitMoments
from mixfed.exchange.moments import Gram, PairMoments
from mixfed.exchange.units import StandardUnits
from mixfed.recipes import updates as mixtures
from mixfed.recipes.auto.anchors import Anchors
from mixfed.recipes.standardise import errors_to_user, from_user, gram_query, inspect, make_frame, to_user

EXACT = {"rtol": 1e-9, "atol": 1e-10}
seeds = st.integers(0, 2**32 - 1)
sizes = st.lists(st.integers(1, 6), min_size=2, max_size=12)


def plain_frame(dim: int) -> StandardUnits:
    """Units in which nothing is changed."""
    return StandardUnits(np.zeros(dim), np.ones(dim), np.eye(dim), np.zeros(dim), 0.0, 1.0, None, 1.0)


def random_candidates(seed: int, count: int, k: int, dim: int) -> Candidates:
    rng = np.random.default_rng([seed, 8])
    weight = np.log(rng.dirichlet(np.full(k, 2.0), size=count))
    return Candidates(rng.standard_normal((count, k, dim)), rng.uniform(-1, 1, (count, k)), weight)


def standard_rows(clients, frame, i):
    phi, y = client_rows(clients, i)
    x = (phi - frame.centre) * frame.inverse_sd
    return x @ frame.whiten, (y - frame.target_centre - x @ frame.slope) / frame.scale


def log_density(z, y, candidates, c):
    """log of w_j prod N(y | z theta_j, s_j^2) of one client, (k,)."""
    squares = np.array([np.sum((y - z @ theta) ** 2) for theta in candidates.theta[c]])
    variance = np.exp(candidates.log_variance[c])
    return candidates.log_weight[c] - 0.5 * len(y) * np.log(2 * np.pi * variance) - squares / (2 * variance)


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


@given(seeds, sizes, st.integers(1, 4), st.integers(0, 4), st.booleans())
def test_pair_moments_equal_a_sum_over_pairs_of_rows(seed, sizes, dim, more, lone):
    clients, frame = random_clients(seed, sizes, dim + more), random_frame(seed, dim + more, dim)
    expected = np.zeros((dim, dim))
    for i in range(clients.n_clients):
        z, y = standard_rows(clients, frame, i)
        e = z * y[:, None]
        for a in range(len(y)):
            for b in range(len(y)):
                if a != b:
                    expected += np.outer(e[a], e[b]) / (len(y) - 1)
        if lone and len(y) == 1:
            expected += np.outer(e[0], e[0]) - y[0] ** 2 * np.eye(dim)
    found = LocalPool(clients).ask(PairMoments(frame, lone)).matrices(dim)[0]
    np.testing.assert_allclose(found, expected, **EXACT)


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


@given(seeds, sizes, st.integers(1, 4), st.integers(1, 3))
def test_anchors_who_are_everybody_say_what_all_clients_say(seed, sizes, dim, k):
    clients, frame = random_clients(seed, sizes, dim), random_frame(seed, dim)
    pool, candidates = LocalPool(clients), random_candidates(seed, 2, k, dim)
    statistics = pool.ask_each(Project(frame, np.eye(dim)), np.arange(clients.n_clients))
    said = Anchors(statistics, np.ones(clients.n_clients), mixtures.Penalty()).expect(candidates)
    asked = pool.ask(MixtureSums(frame, candidates))
    for name in ("likelihood", "clients", "rows", "squares", "score", "gram"):
        np.testing.assert_allclose(getattr(said, name), getattr(asked, name), rtol=1e-7, atol=1e-7, err_msg=name)


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


@given(seeds, st.lists(st.integers(1, 6), min_size=2, max_size=8), st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_every_reply_is_the_sum_of_the_clients_replies(seed, sizes, dim, more, hard):
    columns = dim + more
    clients, frame = random_clients(seed, sizes, columns), random_frame(seed, columns, dim)
    mixture = random_candidates(seed, 1, 2, dim)
    queries = [
        Gram(np.zeros(columns), np.ones(columns), 0.0, 2.0),
        PairMoments(frame, True),
        SplitMoments(frame, mixture),
        MixtureSums(frame, random_candidates(seed, 2, 2, dim), (1,), hard),
        LocalStep(frame, mixture, FedAvg(0.1, 2), hard),
    ]
    for query in [*queries, Batch(tuple(queries))]:
        whole = answer(query, clients)
        parts = [answer(query, clients.subset(np.array([i]))) for i in range(clients.n_clients)]
        total = parts[0]
        for part in parts[1:]:
            total = part + total
        for found, expected in zip(arrays_of(total), arrays_of(whole), strict=True):
            np.testing.assert_allclose(found, expected, **EXACT)


def arrays_of(reply):
    for value in vars(reply).values():
        if isinstance(value, tuple):
            for item in value:
                yield from arrays_of(item)
        else:
            yield value


@pytest.mark.parametrize("shared", [False, True])
def test_the_information_is_the_curvature_of_the_likelihood(shared):
    clients, dim, k = simulate("mirror", n_clients=60, dim=2, noise=0.8, seed=3).clients, 2, 2
    pool, frame = LocalPool(clients), plain_frame(2)
    mixture, rules = random_candidates(1, 1, k, dim), mixtures.Penalty(shared)
    for _ in range(3000):  # to the maximum, where the identity is exact
        mixture = mixtures.maximise(mixture, pool.ask(MixtureSums(frame, mixture)), rules)
    free = mixtures.parameters(k, dim, shared)

    def value(step):
        moved = (free @ step).reshape(k, dim + 2)
        weight = mixture.log_weight + moved[None, :, -1]
        shifted = Candidates(
            mixture.theta + moved[None, :, :-2],
            mixture.log_variance + moved[None, :, -2],
            weight - np.logaddexp.reduce(weight[0]),
        )
        return mixtures.penalised_likelihood(shifted, pool.ask(MixtureSums(frame, shifted)), rules)[0]

    size, h = free.shape[1], 1e-3
    steps = h * np.eye(size)
    curvature = np.array(
        [[(value(a + b) - value(a - b) - value(b - a) + value(-a - b)) / (4 * h * h) for b in steps] for a in steps]
    )
    reply = pool.ask(MixtureSums(frame, mixture, (0,)))
    complete = mixtures.complete_information(mixture, reply, 0, rules)
    information = free.T @ (complete - mirrored(reply.missing[0], k)) @ free
    np.testing.assert_allclose(information, -curvature, rtol=2e-3, atol=2e-2)
    newton = mixtures.newton(mixture, reply, 0, reply.missing[0], (1.0,), rules)
    assert newton.newton_decrement < 1e-10
    spread = mixtures.covariance(mixture, reply, 0, reply.missing[0], rules)
    np.testing.assert_allclose(spread[1], np.linalg.inv(information)[dim : 2 * dim, dim : 2 * dim], rtol=1e-8)


def frame_of(clients: Clients) -> tuple[StandardUnits, np.ndarray]:
    pool = LocalPool(clients)
    census = pool.ask(Census())
    columns = inspect(census, clients.intercept)
    return make_frame(columns, pool.ask(gram_query(columns)), census.n_rows)


@given(seeds, st.integers(1, 5), st.booleans(), st.integers(-60, 60), st.integers(-60, 60))
@settings(max_examples=40)
def test_standard_units_are_white_and_lead_back(seed, dim, intercept, x_power, y_power):
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((80, dim)) @ rng.standard_normal((dim, dim)) + 3.0) * 10.0**x_power
    y = (X @ rng.standard_normal(dim) * 10.0**-x_power + rng.standard_normal(80)) * 10.0**y_power
    clients = Clients.from_arrays(X, y, np.arange(80) // 4, intercept=intercept)
    frame, tied = frame_of(clients)
    z, residual = frame.standardise(clients.design, clients.y)
    assert frame.dim == clients.dim
    assert not tied.any()
    np.testing.assert_allclose(z.T @ z / 80, np.eye(frame.dim), atol=1e-8)
    np.testing.assert_allclose(z.T @ residual / 80, 0, atol=1e-8)
    assert np.mean(residual**2) == pytest.approx(1, rel=1e-6)
    scaled = clients.design / np.abs(clients.design).max(axis=0)
    pooled = scaled @ np.linalg.lstsq(scaled, clients.y, rcond=None)[0]
    np.testing.assert_allclose(clients.design @ to_user(frame, np.zeros(frame.dim)), pooled, rtol=1e-6)
    theta = rng.standard_normal((3, frame.dim))
    back = to_user(frame, theta)
    np.testing.assert_allclose(from_user(frame, back), theta, rtol=1e-6, atol=1e-6)
    predicted = clients.y[:, None] - frame.scale * (residual[:, None] - z @ theta.T)
    np.testing.assert_allclose(clients.design @ back.T, predicted, rtol=1e-6, atol=1e-6 * frame.scale)


def test_errors_of_one_model_are_those_of_least_squares():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3)) * [1.0, 100.0, 0.01] + [5.0, 0.0, 1.0]
    y = X @ [1.0, 0.02, -30.0] + 4.0 + 0.5 * rng.standard_normal(200)
    clients = Clients.from_arrays(X, y, np.arange(200) // 2, intercept=True)
    frame, _ = frame_of(clients)
    errors = errors_to_user(frame, np.eye(frame.dim)[None] / 200)
    design = clients.design
    residual = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    covariance = np.mean(residual**2) * np.linalg.inv(design.T @ design)
    np.testing.assert_allclose(errors[0], np.sqrt(np.diag(covariance)), rtol=1e-8)


def test_columns_that_say_the_same_are_found():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 2))
    X = np.column_stack([x, x[:, 0] + x[:, 1], np.full(60, 7.0), np.zeros(60)])
    clients = Clients.from_arrays(X, rng.standard_normal(60), intercept=True)
    frame, tied = frame_of(clients)
    assert tied.tolist() == [True, True, True, False, False, False]
    assert frame.dim == 3
    theta = to_user(frame, rng.standard_normal(3))
    assert theta[3] == theta[4] == 0
