"""Shared makers of small problems."""

from __future__ import annotations

import pytest
from hypothesis import settings

from mixfed.evaluation.simulation import Simulation, simulate

pytest.register_assert_rewrite("helpers")  # which check things, too

# Compilation happens within the first example, so no deadline; a fixed seed, so that a run can be repeated.
settings.register_profile("mixfed", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("mixfed")


@pytest.fixture(scope="module")
def small() -> Simulation:
    """Clients of three kinds, enough for some sites."""
    return simulate(n_clients=900, dim=5, n_clusters=3, noise=0.3, n_anchors=20, anchor_rows=220, seed=3)
