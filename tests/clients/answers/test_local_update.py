"""Local updates of whole tables: precision, and kinds that nobody is of."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.packed import single
from mixfed import LocalPool, simulate
from mixfed.exchange.local_update import FedAvg, FedProx, LocalUpdate, Mixture


@pytest.mark.parametrize("update", [FedAvg(0.05, 1), FedAvg(0.05, 4), FedProx(0.7), None])
@pytest.mark.parametrize("hard", [True, False])
def test_single_precision_rounds_agree_with_double(update, hard):
    made = simulate(n_clients=3000, dim=5, n_clusters=3, tail=1.5, seed=1)  # some have more rows than features
    mixture = Mixture(made.theta, np.full(3, 1 / 3), np.full(3, 0.3))
    double = LocalPool(made.clients).ask(LocalUpdate(mixture, hard, update))
    half = LocalPool(single(made.clients)).ask(LocalUpdate(mixture, hard, update))
    np.testing.assert_allclose(half.shift, double.shift, atol=1e-3 * max(np.abs(double.shift).max(), 1.0))
    np.testing.assert_allclose(half.mass, double.mass, rtol=1e-3)
    assert half.likelihood == pytest.approx(double.likelihood, rel=1e-5)


def test_a_kind_that_nobody_is_of_has_no_loss_however_far_it_is(small):
    theta = np.zeros((2, small.theta.shape[1]))
    theta[1] = 1e160
    reply = LocalPool(small.clients).ask(LocalUpdate(Mixture(theta, np.full(2, 0.5), np.ones(2)), False, FedProx(0.1)))
    assert reply.loss[0] == pytest.approx(0.5 * np.sum(small.clients.y**2))
    assert reply.loss[1] == 0.0
    assert (reply.shift[1] == 0.0).all()
