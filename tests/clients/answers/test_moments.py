"""Moments of pairs of rows, against a plain loop."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from helpers.candidates import standard_rows
from helpers.clients import random_clients, random_frame
from mixfed.clients.local import LocalPool
from mixfed.exchange.moments import PairMoments

seeds = st.integers(0, 2**32 - 1)
sizes = st.lists(st.integers(1, 6), min_size=2, max_size=12)
EXACT = {"rtol": 1e-9, "atol": 1e-10}


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
