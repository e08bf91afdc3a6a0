"""What a diagonal covariance costs."""

from __future__ import annotations

import dataclasses

import numpy as np

from helpers.personal import simulated
from mixfed import Clients, LocalPool
from mixfed.exchange.mixture import Candidates
from mixfed.exchange.units import StandardUnits
from mixfed.recipes.conversation import converse
from mixfed.recipes.personal.climb import newton_rounds, started
from mixfed.recipes.personal.updates import cost_of_diagonal
from mixfed.recipes.updates import Penalty


def test_what_a_diagonal_costs_is_what_fits_of_both_show():
    """Where both are close, the likelihood is quadratic between them."""
    psi = [[[0.5, 0.06, 0.05], [0.06, 0.6, -0.05], [0.05, -0.05, 0.4]]]
    X, y, owner, *_ = simulated(3, 500, [[1.0, -1.0, 2.0]], psi, [0.7], [1.0], (4, 9))
    clients = Clients.from_arrays(np.column_stack([X, np.ones(len(X))]), y, owner)
    frame = dataclasses.replace(StandardUnits.plain(3), whiten=np.random.default_rng(5).standard_normal((3, 3)))
    pooled, found = Candidates(np.zeros((1, 1, 3)), np.zeros((1, 1)), np.zeros((1, 1))), {}
    for full in (True, False):
        steps = newton_rounds(frame, started(frame, pooled, full), full, Penalty(False), near=1e-9)
        [found[full]] = converse(LocalPool(clients), [steps])
    gain = found[True].value - found[False].value
    assert 2 < gain < 30
    np.testing.assert_allclose(cost_of_diagonal(frame, found[True]), gain, rtol=0.2)
