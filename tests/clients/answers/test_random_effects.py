"""Sums of clients that deviate from their kinds, against plain loops and finite differences."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
import pytest

from helpers.clients import client_rows, random_clients, random_frame
from helpers.personal import marginal
from mixfed import Clients, LocalPool
from mixfed.core.symmetric import mirrored, packed, unpacked
from mixfed.exchange.codec import decode, encode
from mixfed.exchange.random_effects import LeaveOut, RandomEffects, RandomEffectsSums
from mixfed.exchange.units import StandardUnits
from mixfed.federation.messages import check_answer, check_query


def random_spreads(seed, count, k, dim, full, columns=None):
    rng = np.random.default_rng([seed, 8])
    half = 0.5 * rng.standard_normal((count, k, dim, dim))
    spread = packed(half @ half.swapaxes(2, 3)) if full else rng.uniform(0.1, 1.0, (count, k, columns or dim))
    weight = np.log(rng.dirichlet(np.full(k, 2.0), size=count))
    return RandomEffects(rng.standard_normal((count, k, dim)), rng.uniform(-1, 0.5, (count, k)), weight, spread)


def kinds_of(clients, frame, spreads, c, i, full):
    """What one client says of each kind of candidate c: rows, residuals, theta, Psi and variance."""
    phi, y = client_rows(clients, i)
    x = (phi - frame.centre) * frame.inverse_sd
    z, target = x @ frame.whiten, (y - frame.target_centre - x @ frame.slope) / frame.scale
    inverse = np.linalg.inv(frame.whiten)
    for j, own in enumerate(spreads.covariance[c]):
        psi = unpacked(own, frame.dim) if full else inverse @ np.diag(own) @ inverse.T
        yield z, target, spreads.theta[c, j], psi, np.exp(spreads.log_variance[c, j])


def plain_likelihood(clients, frame, spreads, c, full):
    total = 0.0
    for i in range(clients.n_clients):
        logs = [marginal(*about) for about in kinds_of(clients, frame, spreads, c, i, full)]
        total += np.logaddexp.reduce(spreads.log_weight[c] + np.array(logs))
    return total


def flat(spreads):
    parts = (spreads.theta[0], spreads.log_variance[0][:, None], spreads.log_weight[0][:, None], spreads.covariance[0])
    return np.concatenate(parts, axis=1).ravel()


def unflat(numbers, k, dim):
    own = numbers.reshape(1, k, -1)
    return RandomEffects(own[..., :dim], own[..., dim], own[..., dim + 1], own[..., dim + 2 :])


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize(("dim", "k"), [(3, 2), (1, 3), (2, 1)])
def test_sums_equal_a_plain_loop_and_its_derivatives(full, dim, k):
    clients, frame = random_clients(1, [1, 2, 5, 7, 3, 1, 4, 9], dim), random_frame(2, dim)
    spreads, pool = random_spreads(3, 3, k, dim, full), LocalPool(clients)
    reply = pool.ask(RandomEffectsSums(frame, spreads, full, (2, 0)))
    for c in range(3):
        assert reply.likelihood[c] == pytest.approx(plain_likelihood(clients, frame, spreads, c, full), abs=1e-9)
    start, step = flat(spreads.pick(0)), 1e-5
    steps = step * np.eye(len(start))
    slope = [
        plain_likelihood(clients, frame, unflat(start + e, k, dim), 0, full)
        - plain_likelihood(clients, frame, unflat(start - e, k, dim), 0, full)
        for e in steps
    ]
    np.testing.assert_allclose(reply.score[0].ravel(), np.array(slope) / (2 * step), rtol=1e-5, atol=1e-5)
    scores = [
        pool.ask(RandomEffectsSums(frame, unflat(start - e, k, dim), full)).score
        - pool.ask(RandomEffectsSums(frame, unflat(start + e, k, dim), full)).score
        for e in steps
    ]
    bend = np.array(scores).reshape(len(start), -1) / (2 * step)
    q = len(start) // k
    observed = -mirrored(reply.missing[1], k)
    for j in range(k):
        observed[j * q : (j + 1) * q, j * q : (j + 1) * q] += unpacked(reply.observed[1, j], q)
    np.testing.assert_allclose(observed, bend, rtol=1e-5, atol=1e-4 * np.abs(bend).max())


def test_fishers_information_is_the_mean_of_the_observed_one():
    """With targets drawn from the model, over many clients."""
    rng = np.random.default_rng(0)
    dim, count = 2, 30_000
    frame, spreads = StandardUnits.plain(dim), random_spreads(5, 1, 1, dim, True)
    sizes = rng.integers(1, 5, count)
    owner = np.repeat(np.arange(count), sizes)
    x = rng.standard_normal((len(owner), dim))
    own = rng.multivariate_normal(spreads.theta[0, 0], unpacked(spreads.covariance[0, 0], dim), count)
    noise = np.exp(0.5 * spreads.log_variance[0, 0]) * rng.standard_normal(len(owner))
    reply = LocalPool(Clients.from_arrays(x, np.sum(x * own[owner], axis=1) + noise, owner)).ask(
        RandomEffectsSums(frame, spreads, True, (0,))
    )
    observed, expected = (unpacked(part[0, 0], reply.score.shape[-1]) for part in (reply.observed, reply.expected))
    size = np.sqrt(np.diag(expected))
    keep = size > 0
    shift = (observed - expected)[np.ix_(keep, keep)] / np.outer(size[keep], size[keep])
    assert np.abs(shift).max() < 0.05


@pytest.mark.parametrize("full", [True, False])
def test_left_out_rows_are_those_of_a_plain_loop(full):
    clients, frame = random_clients(1, [1, 2, 5, 7, 3], 2), random_frame(2, 2)
    spreads = random_spreads(3, 2, 2, 2, full)
    reply = LocalPool(clients).ask(LeaveOut(frame, spreads, full, 3))
    for c in range(2):
        squares = np.zeros(2)
        for i in range(1, clients.n_clients):
            n = int(clients.rows[i])
            for row in range(n):
                others, logs, means = np.arange(n) != row, [], []
                for z, target, theta, psi, variance in kinds_of(clients, frame, spreads, c, i, full):
                    cov = variance * np.eye(n - 1) + z[others] @ psi @ z[others].T
                    error = target[others] - z[others] @ theta
                    logs.append(marginal(z[others], target[others], theta, psi, variance))
                    means.append(z[row] @ theta + z[row] @ psi @ z[others].T @ np.linalg.solve(cov, error))
                share = np.exp(spreads.log_weight[c] + logs - np.logaddexp.reduce(spreads.log_weight[c] + logs))
                squares += (target[row] - share @ means) ** 2 * np.array([1.0, n <= 3])
        np.testing.assert_allclose(reply.squares[c], squares, rtol=1e-8)
    np.testing.assert_array_equal(reply.rows, [17, 5])


@pytest.mark.parametrize("full", [True, False])
def test_the_exchange_travels_as_bytes(full):
    clients, frame = random_clients(1, [1, 2, 5], 3), random_frame(2, 3, 2)
    query = RandomEffectsSums(frame, random_spreads(3, 2, 2, 2, full, 3), full, (1,))
    sizes = check_query(decode(encode(query)), 3)
    total = LocalPool(clients).answer(query)
    back = decode(encode(total))
    check_answer(back, query, sizes)
    np.testing.assert_array_equal(back.missing, total.missing)


@pytest.mark.parametrize("full", [True, False])
def test_information_adds_up_over_many_clients_who_waver(full):
    """Products are made by the pile; of a few clients at a time there is no pile."""
    clients, frame = random_clients(5, [1, 2, 3] * 300, 3), random_frame(6, 3)
    query = RandomEffectsSums(frame, random_spreads(7, 2, 3, 3, full), full, (0, 1))
    whole = LocalPool(clients).ask(query)
    few = (LocalPool(clients.subset(np.arange(first, first + 100))).ask(query) for first in range(0, 900, 100))
    parts = reduce(add, few)
    for name in ("expected", "observed", "missing"):
        size = np.abs(getattr(whole, name)).max()
        np.testing.assert_allclose(getattr(whole, name), getattr(parts, name), rtol=0, atol=1e-12 * size)
