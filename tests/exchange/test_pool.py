"""Samples of clients."""

from __future__ import annotations

import numpy as np

from mixfed import simulate
from mixfed.exchange.pool import Sample


def test_a_sample_depends_on_keys_alone():
    clients = simulate(n_clients=2000, dim=2, n_clusters=2).clients
    sample = Sample(3, 0.25)
    places = sample.places(clients.keys)
    assert abs(len(places) - 500) < 100
    halves = [np.arange(0, 2000, 2), np.arange(1, 2000, 2)]
    parts = [half[sample.places(clients.keys[half])] for half in halves]
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), places)
    assert set(Sample(3, 0.1).places(clients.keys)) < set(places)  # a smaller share is part of a larger one
