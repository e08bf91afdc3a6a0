"""Warnings of a fit."""

from __future__ import annotations

import numpy as np

from helpers.auto import fit
from mixfed import Clients, simulate


def test_warnings_name_their_cause():
    rng = np.random.default_rng(0)
    made = simulate(n_clients=300, dim=3, n_clusters=1, seed=0)
    ids = np.repeat(made.clients.ids, made.clients.rows)
    X = np.column_stack([made.clients.phi, made.clients.phi[:, 0], np.full(len(ids), 2.0)])
    doubtful = fit(Clients.from_arrays(X, made.clients.y, ids, intercept=True), 2).model.warnings
    text = " | ".join(doubtful)
    assert "column 'x_4' is constant" in text
    assert "'x_0', 'x_3' are combinations" in text
    assert "closer than the rows of a client can tell" in text or "fewer than" in text
    single = fit(Clients.from_arrays(rng.standard_normal((200, 2)), rng.standard_normal(200)), 1).model.warnings
    assert "every client has one row" in single[0]
    assert fit(simulate("mirror", n_clients=800, dim=4).clients, 2).model.warnings == ()
    top = fit(simulate(n_clusters=4, dim=4, n_clients=800, seed=1).clients, max_clusters=3).model.warnings
    assert any("raise max_clusters" in warning for warning in top)
