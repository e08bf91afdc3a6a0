"""All clients in this process."""

from __future__ import annotations

import numpy as np

from mixfed import LocalPool, simulate
from mixfed.exchange.census import Census
from mixfed.exchange.pool import Sample


def test_a_pool_asks_a_sample_as_it_would_ask_those_clients():
    clients = simulate(n_clients=500, dim=3, n_clusters=2).clients
    sample = Sample(0, 0.3)
    asked = LocalPool(clients).ask(Census(), sample)
    alone = LocalPool(clients.subset(sample.places(clients.keys))).ask(Census())
    np.testing.assert_array_equal(asked.sizes, alone.sizes)
    np.testing.assert_array_equal(asked.total, alone.total)
