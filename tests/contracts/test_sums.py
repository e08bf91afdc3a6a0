"""Every reply adds."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from helpers.candidates import random_candidates
from helpers.clients import random_clients, random_frame
from helpers.exchanges import answer
from mixfed.exchange.base import Batch
from mixfed.exchange.local_update import FedAvg
from mixfed.exchange.mixture import LocalStep, MixtureSums, SplitMoments
from mixfed.exchange.moments import Gram, PairMoments

seeds = st.integers(0, 2**32 - 1)
sizes = st.lists(st.integers(1, 6), min_size=2, max_size=12)
EXACT = {"rtol": 1e-9, "atol": 1e-10}


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
