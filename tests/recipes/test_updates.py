"""Steps, their information, and which mixtures are the same."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.candidates import plain_frame, random_candidates, random_mixtures
from mixfed import simulate
from mixfed.clients.local import LocalPool
from mixfed.core.symmetric import mirrored
from mixfed.exchange.mixture import Candidates, MixtureSums
from mixfed.recipes import updates as mixtures
from mixfed.recipes.updates import NEARBY, distinct, nearby


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
    _, newton_decrement = mixtures.newton(mixture, reply, 0, reply.missing[0], (1.0,), rules)
    assert newton_decrement < 1e-10
    spread = mixtures.covariance(mixture, reply, 0, reply.missing[0], rules)
    np.testing.assert_allclose(spread[1], np.linalg.inv(information)[dim : 2 * dim, dim : 2 * dim], rtol=1e-8)
