"""The census of clients."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.clients import client_rows, random_clients
from mixfed.clients.local import LocalPool
from mixfed.exchange.census import Census, LargestNorm
from mixfed.kernels import plain


def test_the_census_finds_the_largest_client_norm():
    clients = random_clients(4, [1, 5, 2, 9, 3], 4)
    census = LocalPool(clients).ask(Census())
    norms = [np.linalg.norm(client_rows(clients, i)[0], 2) ** 2 / clients.rows[i] for i in range(5)]
    assert plain.largest_norm(clients.phi, clients.offsets) == pytest.approx(max(norms), rel=1e-12)
    assert max(norms) < LocalPool(clients).ask(LargestNorm()).peak <= 1.25 * max(norms)  # and so is nobody's
    assert (census.n_clients, census.n_rows) == (5, 20)
    for bound, extreme in ((-census.low, -clients.phi.min(axis=0)), (census.high, clients.phi.max(axis=0))):
        assert (bound > extreme).all()  # and so is nobody's value
        assert (bound <= extreme + np.abs(extreme) / 4).all()
