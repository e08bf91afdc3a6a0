"""Clients on a dask cluster: the same model as in one process, whatever happens to the workers."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import CancelledError

import numpy as np
import pytest

from helpers.dask_cluster import Disturbed, auto, bare_cluster, distributed, equal, healed, same
from helpers.families import COUNTING, simulated
from mixfed import AutoSettings, LocalPool, MixfedError, PaperSettings, PoolError, fit_auto, fit_paper, simulate
from mixfed.clients.dask import DaskPool
from mixfed.exchange.anchors import Descend, Project
from mixfed.exchange.census import Census
from mixfed.exchange.journal import JournalPool, fingerprint
from mixfed.exchange.local_update import LocalUpdate, Mixture
from mixfed.exchange.pool import Sample
from mixfed.exchange.units import StandardUnits
from mixfed.recipes.paper.theory import least_gap

# Sockets that dask leaves to the garbage collector when a worker is killed are not what is tested here.
pytestmark = [
    pytest.mark.dask,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]
PAPER = {"n_anchors": 8, "n_recruits": 300, "pairs": 30, "rounds": 6, "refine_rounds": 40}


@pytest.mark.parametrize(
    "changes",
    [{}, {"k": None}, {"membership": "hard"}, {"update": "fedprox"}],
    ids=["given", "found", "hard", "fedprox"],
)
def test_the_auto_recipe_finds_the_model_of_a_local_pool(client, made, changes):
    local, spread = LocalPool(made.clients), DaskPool(client, made.clients)
    expected, found = (auto(pool, made.clients, **changes) for pool in (local, spread))
    same(found.model, expected.model)
    assert spread.traffic == local.traffic


@pytest.mark.parametrize("family", COUNTING)
def test_classes_and_counts_are_fitted_as_in_a_local_pool(client, family):
    clients = simulated(family)[0]
    local, spread = LocalPool(clients), DaskPool(client, clients, 5)
    settings = AutoSettings(family=family)
    expected, found = (fit_auto(pool, clients.features, 2, settings).model for pool in (local, spread))
    np.testing.assert_allclose(found.theta, expected.theta, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.theta_error, expected.theta_error, rtol=1e-9, atol=1e-9)


def test_weights_and_offsets_go_with_their_rows(client):
    clients = simulated("poisson")[0]
    rng = np.random.default_rng(0)
    extras = {"offset": rng.standard_normal(clients.n_rows), "weight": rng.uniform(0.5, 2.0, clients.n_rows)}
    clients = dataclasses.replace(clients, **extras)
    settings = AutoSettings(family="poisson")
    pools = LocalPool(clients), DaskPool(client, clients, 5)
    expected, found = (fit_auto(pool, clients.features, 2, settings).model for pool in pools)
    np.testing.assert_allclose(found.theta, expected.theta, rtol=1e-9, atol=1e-9)


def test_the_paper_recipe_finds_the_model_of_a_local_pool(client, made):
    settings = PaperSettings(separation=least_gap(made.theta), **PAPER)
    local, spread = LocalPool(made.clients), DaskPool(client, made.clients, 5)
    expected, found = (fit_paper(pool, made.clients.features, 2, settings, seed=0) for pool in (local, spread))
    same(found.model, expected.model)
    assert spread.traffic == local.traffic


def test_a_sample_is_of_the_same_clients_wherever_they_live(client):
    """Ids of text too: their keys must not depend on the shard."""
    clients = simulate(n_clients=3000, dim=3, n_clusters=2, seed=3).clients
    clients = dataclasses.replace(clients, ids=np.array([f"client {i:05d}" for i in clients.ids], dtype=object))
    sample = Sample(seed=4, share=0.2)
    query = LocalUpdate(Mixture(np.eye(3)[:2], np.array([0.5, 0.5]), np.ones(2)), hard=False)
    pool = DaskPool(client, clients, 4)
    expected = LocalPool(clients).ask(query, sample)
    for _ in range(2):
        np.testing.assert_allclose(pool.ask(query, sample).shift, expected.shift, rtol=1e-12)
    assert pool.ask(Census(), sample).n_clients == len(sample.places(clients.keys))
    assert all(future.status == "finished" for future in pool._samples[sample].values())


@pytest.mark.parametrize("who", [[5, 1999, 3, 700], [1500], []], ids=["several", "one", "nobody"])
def test_clients_are_asked_by_their_places(client, made, who):
    pool, places = DaskPool(client, made.clients, 4), np.array(who, dtype=np.int64)
    found, expected = (each.ask(Census(), places) for each in (pool, LocalPool(made.clients)))
    np.testing.assert_array_equal(found.sizes, expected.sizes)
    np.testing.assert_array_equal(found.counts, expected.counts)
    np.testing.assert_allclose(found.total, expected.total, rtol=1e-12)


@pytest.mark.parametrize("kind", ["project", "descend"])
def test_single_clients_reply_in_the_order_asked(client, made, kind):
    who = np.random.default_rng(0).permutation(np.argsort(-made.clients.rows)[:10])
    rng = np.random.default_rng(1)
    if kind == "project":
        frame = StandardUnits(np.zeros(4), np.ones(4), np.eye(4), np.zeros(4), 0.0, 1.0, None, 1.0)
        query = Project(frame, rng.standard_normal((4, 2)))
    else:
        basis = np.linalg.qr(rng.standard_normal((len(who), 4, 2)))[0]
        query = Descend(rng.standard_normal((len(who), 4)), basis, 1, 20, 30, 0.0, 0.5, seed=2)
    local, spread = LocalPool(made.clients), DaskPool(client, made.clients, 6)
    expected, found = (pool.ask_each(query, who) for pool in (local, spread))
    for field in dataclasses.fields(expected):
        np.testing.assert_allclose(getattr(found, field.name), getattr(expected, field.name), rtol=1e-9, atol=1e-12)
    assert spread.traffic == local.traffic


def test_a_query_too_large_to_travel_with_every_task_is_answered_too(client, made, monkeypatch):
    monkeypatch.setattr("mixfed.clients.dask._BY_ARGUMENT", 10)
    query = LocalUpdate(Mixture(np.eye(4)[:2], np.array([0.5, 0.5]), np.ones(2)), hard=False)
    found, expected = (pool.ask(query) for pool in (DaskPool(client, made.clients), LocalPool(made.clients)))
    np.testing.assert_allclose(found.shift, expected.shift, rtol=1e-9)


def test_a_killed_worker_that_is_started_again_changes_nothing(client, made):
    undisturbed = auto(DaskPool(client, made.clients, 4), made.clients)
    pid = next(iter(client.run(os.getpid).values()))
    pool = Disturbed(DaskPool(client, made.clients, 4), 7, lambda: os.kill(pid, signal.SIGKILL))
    equal(auto(pool, made.clients).model, undisturbed.model)
    assert pool.at < 0
    assert healed(client, pid)


def test_a_killed_worker_that_stays_away_changes_nothing_and_without_workers_there_is_one_line(made, files, tmp_path):
    clients = made.clients
    with bare_cluster(2) as (client, processes, _):
        undisturbed = auto(DaskPool(client, clients, 4), clients)
        sample, read = Sample(seed=1, share=0.3), DaskPool.from_files(client, files, "client", "y", intercept=False)
        sampled, with_weights = DaskPool(client, clients, 4), read.ask(Census())
        before = sampled.ask(Census(), sample)
        equal(auto(Disturbed(DaskPool(client, clients, 4), 12, processes[0].kill), clients).model, undisturbed.model)
        assert len(client.nthreads()) == 1
        for now, then in ((sampled.ask(Census(), sample), before), (read.ask(Census()), with_weights)):
            np.testing.assert_array_equal(now.total, then.total)

        # The last worker goes in the middle of a run, which can go on elsewhere.
        pool = DaskPool(client, clients, 4, patience=1.0)
        path, title = tmp_path / "journal.bin", fingerprint(clients)
        with (
            pytest.raises(PoolError, match="no worker for 1 s: start workers") as error,
            JournalPool(Disturbed(pool, 12, processes[1].kill), path, title, resume=False) as journal,
        ):
            auto(journal, clients)
        assert isinstance(error.value, MixfedError)
        with JournalPool(LocalPool(clients), path, title, resume=True) as journal:
            same(auto(journal, clients).model, undisturbed.model)
            assert journal.pool.traffic.exchanges < journal.traffic.exchanges


def test_a_worker_killed_while_it_works_changes_nothing(client, made):
    """Killed from outside at some moment, rather than between exchanges."""
    query = LocalUpdate(Mixture(np.eye(4)[:2], np.array([0.5, 0.5]), np.ones(2)), hard=False)
    pool = DaskPool(client, made.clients, 4)
    undisturbed = pool.ask(query)
    pid = next(iter(client.run(os.getpid).values()))
    killer = subprocess.Popen([sys.executable, "-c", f"import os, time; time.sleep(.2); os.kill({pid}, 9)"])
    deadline = time.monotonic() + 20
    while killer.poll() is None and time.monotonic() < deadline:
        np.testing.assert_array_equal(pool.ask(query).shift, undisturbed.shift)
    np.testing.assert_array_equal(pool.ask(query).shift, undisturbed.shift)
    assert healed(client, pid)


def test_workers_that_are_always_lost_are_one_line(client, made, monkeypatch):
    def lose(pool, futures):
        raise CancelledError("a task")

    monkeypatch.setattr("mixfed.clients.dask._TRIES", 2)
    monkeypatch.setattr(DaskPool, "_wait", lose)
    with pytest.raises(PoolError, match="the exchange Census failed 2 times because workers were lost"):
        DaskPool(client, made.clients).ask(Census())


def test_a_lost_scheduler_is_one_line(made):
    options = {"host": "127.0.0.1", "dashboard_address": ":0", "silence_logs": 50, "protocol": "tcp"}
    cluster = distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, **options)
    with distributed.Client(cluster, set_as_default=False) as client:
        pool = DaskPool(client, made.clients, 2, patience=1.0)
        assert pool.ask(Census()).n_clients == 2000
        cluster.close()
        with pytest.raises(PoolError, match=r"scheduler|no worker"):
            pool.ask(Census())
