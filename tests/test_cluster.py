"""Clients on a dask cluster: the same model as in one process, whatever happens to the workers."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

distributed = pytest.importorskip("distributed")

from mixfed import (  # noqa: E402
    AutoSettings,
    DataError,
    LocalPool,
    MixfedError,
    PaperSettings,
    SettingsError,
    fit_auto,
    fit_paper,
    simulate,
)
from mixfed.candidates import Gram, Project  # noqa: E402
from mixfed.cluster import DaskPool, connect  # noqa: E402
from mixfed.errors import PoolError  # noqa: E402
from mixfed.exchange import Census, Descend, Mixture, Refine  # noqa: E402
from mixfed.frame import make_frame  # noqa: E402
from mixfed.journal import JournalPool, fingerprint  # noqa: E402
from mixfed.model import Model  # noqa: E402
from mixfed.pool import Sample  # noqa: E402
from mixfed.theory import least_gap  # noqa: E402

# Sockets that dask leaves to the garbage collector when a worker is killed are not what is tested here.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]
PAPER = {"n_anchors": 8, "n_recruits": 300, "pairs": 30, "rounds": 6, "refine_rounds": 40}


@pytest.fixture(scope="module")
def cluster():
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, silence_logs=50
    ) as made:
        yield made


@pytest.fixture(scope="module")
def client(cluster):
    with distributed.Client(cluster, set_as_default=False) as made:
        yield made


@contextlib.contextmanager
def bare_cluster(workers):
    """A scheduler with workers that nobody starts again. Gives a client, the workers' processes and the address."""
    with (
        distributed.LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address=None, silence_logs=50) as scheduler,
        distributed.Client(scheduler, set_as_default=False) as client,
    ):
        command = [sys.executable, "-m", "distributed.cli.dask_worker", scheduler.scheduler_address, "--no-nanny"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        processes = [subprocess.Popen([*command, "--nthreads", "1", "--no-dashboard"], **quiet) for _ in range(workers)]
        try:
            client.wait_for_workers(workers, timeout=30)
            yield client, processes, scheduler.scheduler_address
        finally:
            for process in processes:
                process.kill()
                process.wait()


@pytest.fixture(scope="module")
def made():
    return simulate(n_clients=2000, dim=4, n_clusters=2, n_anchors=10, anchor_rows=400, seed=5)


def same(first, second, tolerance=1e-9):
    for name in ("theta", "weights", "noise"):
        np.testing.assert_allclose(getattr(first, name), getattr(second, name), rtol=tolerance, atol=tolerance)


def equal(first, second):
    same(first, second, 0.0)


def auto(pool, clients, k=2, **changes):
    return fit_auto(pool, clients.features, k, AutoSettings(**changes), seed=1)


class Disturbed:
    """A pool to which something happens before one of its exchanges."""

    def __init__(self, pool, at, event):
        self.pool, self.at, self.event = pool, at, event

    def __getattr__(self, name):
        return getattr(self.pool, name)

    def ask(self, *question):
        return self._after(self.pool.ask, question)

    def ask_each(self, *question):
        return self._after(self.pool.ask_each, question)

    def _after(self, ask, question):
        self.at -= 1
        if self.at == 0:
            self.event()
        return ask(*question)


# ---------------------------------------------------------------- the same model


@pytest.mark.parametrize(
    "changes", [{}, {"k": None}, {"hard": True}, {"update": "fedprox"}], ids=["given", "found", "hard", "fedprox"]
)
def test_the_auto_recipe_finds_the_model_of_a_local_pool(client, made, changes):
    local, spread = LocalPool(made.clients), DaskPool(client, made.clients)
    expected, found = (auto(pool, made.clients, **changes) for pool in (local, spread))
    same(found.model, expected.model)
    assert spread.traffic == local.traffic


def test_the_paper_recipe_finds_the_model_of_a_local_pool(client, made):
    settings = PaperSettings(separation=least_gap(made.theta), **PAPER)
    local, spread = LocalPool(made.clients), DaskPool(client, made.clients, 5)
    expected, found = (fit_paper(pool, made.clients.features, 2, settings, seed=0) for pool in (local, spread))
    same(found.model, expected.model)
    assert spread.traffic == local.traffic


def test_a_recipe_that_samples_finds_the_model_of_a_local_pool(client):
    """Ids of text too: their keys must not depend on the shard."""
    clients = simulate(n_clients=3000, dim=3, n_clusters=2, seed=3).clients
    clients = dataclasses.replace(clients, ids=np.array([f"client {i:05d}" for i in clients.ids], dtype=object))
    sample = Sample(seed=4, share=0.2)
    query = Refine(Mixture(np.eye(3)[:2], np.array([0.5, 0.5]), np.ones(2)), hard=False)
    pool = DaskPool(client, clients, 4)
    expected = LocalPool(clients).ask(query, sample)
    for _ in range(2):
        np.testing.assert_allclose(pool.ask(query, sample).shift, expected.shift, rtol=1e-12)
    assert pool.ask(Census(), sample).n_clients == len(sample.places(clients.keys))
    assert all(future.status == "finished" for future in pool._samples[sample].values())


@pytest.mark.parametrize("count", [1, 3, 7, 40])
def test_shards_hold_all_clients_and_about_equal_rows(client, made, count):
    pool = DaskPool(client, made.clients, count)
    rows = [future.result().n_rows for future in pool._held() if future] or np.diff(
        made.clients.offsets[pool._edges]
    ).tolist()
    assert sum(rows) == made.clients.n_rows
    assert len(rows) == pool.n_shards == count
    assert max(rows) <= made.clients.n_rows / count + 2 * made.clients.rows.max()
