"""Problems that tests of several rooms share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings

from mixfed import Clients
from mixfed.evaluation.simulation import Simulation, simulate
from mixfed.tables import sources as streams

pytest.register_assert_rewrite("helpers")  # which check things, too

# Compilation happens within the first example, so no deadline; a fixed seed, so that a run can be repeated.
settings.register_profile("mixfed", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("mixfed")


@pytest.fixture(scope="module")
def small() -> Simulation:
    """Clients of three kinds, enough for some sites."""
    return simulate(n_clients=900, dim=5, n_clusters=3, noise=0.3, n_anchors=20, anchor_rows=220, seed=3)


@pytest.fixture
def many_batches(monkeypatch):
    """Small tables are several batches, too."""
    monkeypatch.setattr(streams, "BATCH_ROWS", 37)
    monkeypatch.setattr(streams, "BLOCK_BYTES", 600)


@pytest.fixture(scope="session")
def two():
    """Clients of two kinds that deviate from them, rows held out of them, and the fit of the others."""
    from helpers.personal import TWO, fit, simulated

    X, y, owner, kind, _ = simulated(7, 3000, **TWO)
    rng = np.random.default_rng(1)
    held = (rng.random(len(y)) < 0.3) & (np.bincount(owner)[owner] > 2)
    clients = Clients.from_arrays(X[~held], y[~held], owner[~held], intercept=True)
    return X, y, owner, kind, held, clients, fit(clients).model


def pytest_collection_modifyitems(items):
    """Begin with files that have slow tests in them, so that no core is left with a long one in the end."""
    long = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in long)


TOGETHER = ("test_flare.py", "test_dask.py", "test_dask_shards.py", "test_dask_command_line.py")
"""Files whose tests share processes, which are started once if they all go to one worker."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Hand out tests one by one, but these files whole.

    Marks of groups would say the same, but pytest 9.2 does not hear what xdist 3.8 makes of them.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduler(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.split("::")[0]
            return file if file.endswith(TOGETHER) else nodeid

    return Scheduler(config, log) if config.getvalue("dist") == "loadgroup" else None
