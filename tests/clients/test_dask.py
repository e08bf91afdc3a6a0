"""Clients on a dask cluster: the same model as in one process, whatever happens to the workers."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import CancelledError

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

from helpers.clients import random_clients  # noqa: E402
from mixfed import (  # noqa: E402
    AutoSettings,
    DataError,
    LocalPool,
    MixfedError,
    PaperSettings,
    PoolError,
    SettingsError,
    cli,
    fit_auto,
    fit_paper,
    simulate,
)
from mixfed.cli import fit as cli_fit  # noqa: E402
from mixfed.clients.dask import DaskPool, connect  # noqa: E402
from mixfed.clients.dask_shards import cut_evenly  # noqa: E402
from mixfed.exchange.anchors import Descend, Project  # noqa: E402
from mixfed.exchange.census import Census  # noqa: E402
from mixfed.exchange.journal import JournalPool, fingerprint  # noqa: E402
from mixfed.exchange.local_update import LocalUpdate, Mixture  # noqa: E402
from mixfed.exchange.pool import Sample  # noqa: E402
from mixfed.exchange.units import StandardUnits  # noqa: E402
from mixfed.model.model import Model  # noqa: E402
from mixfed.recipes.paper.theory import least_gap  # noqa: E402

# Sockets that dask leaves to the garbage collector when a worker is killed are not what is tested here.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]
PAPER = {"n_anchors": 8, "n_recruits": 300, "pairs": 30, "rounds": 6, "refine_rounds": 40}


@pytest.fixture(scope="module")
def cluster():
    """Two workers, each started again whenever it is lost.

    Dask looks once, some time after a worker was lost, and gives its place up for good if nobody holds it: 15 s later
    the next test may have killed the new one.
    """
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=":0", silence_logs=50
        ) as made,
    ):
        yield made


@pytest.fixture(scope="module")
def client(cluster):
    with distributed.Client(cluster, set_as_default=False) as made:
        yield made


def healed(client, gone):
    """Wait until two workers answer, neither of them the one that is gone: the next test wants them both."""
    for _ in range(300):
        with contextlib.suppress(Exception):  # whatever dask says of a worker that is just being lost
            answering = list(client.run(os.getpid).values())
            if len(answering) == 2 and gone not in answering:
                return True
        time.sleep(0.1)
    return False


@contextlib.contextmanager
def bare_cluster(workers):
    """A scheduler with workers that nobody starts again. Gives a client, the workers' processes and the address."""
    with (
        distributed.LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address=":0", silence_logs=50) as scheduler,
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
    "changes",
    [{}, {"k": None}, {"membership": "hard"}, {"update": "fedprox"}],
    ids=["given", "found", "hard", "fedprox"],
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


@pytest.mark.parametrize("count", [1, 3, 7, 40])
def test_shards_hold_all_clients_and_about_equal_rows(client, made, count):
    pool = DaskPool(client, made.clients, count)
    assert pool.ask(Census()).n_rows == made.clients.n_rows
    rows = [shard.n_rows for shard in client.gather(pool._held())]
    assert sum(rows) == made.clients.n_rows
    assert len(rows) == pool.n_shards <= count
    assert max(rows) <= made.clients.n_rows / count + made.clients.rows.max()


def test_shards_end_where_blocks_end_if_there_are_enough():
    clients = random_clients(0, [10] * 7000, 1)
    blocks = {end for _, end in clients.blocks}
    edges = cut_evenly(clients, 4)
    assert len(edges) == 5
    assert blocks.issuperset(edges[1:].tolist())
    assert not blocks.issuperset(cut_evenly(clients, 100)[1:].tolist())


def test_a_query_too_large_to_travel_with_every_task_is_answered_too(client, made, monkeypatch):
    monkeypatch.setattr("mixfed.clients.dask._BY_ARGUMENT", 10)
    query = LocalUpdate(Mixture(np.eye(4)[:2], np.array([0.5, 0.5]), np.ones(2)), hard=False)
    found, expected = (pool.ask(query) for pool in (DaskPool(client, made.clients), LocalPool(made.clients)))
    np.testing.assert_allclose(found.shift, expected.shift, rtol=1e-9)


def test_shards_arrive_in_memory_that_kernels_are_compiled_for(client, made, files):
    def flags(shard):
        parts = (shard.phi, shard.y, shard.offsets)
        return all(part.flags.aligned and part.flags.writeable and part.flags.c_contiguous for part in parts)

    for pool in (DaskPool(client, made.clients, 7), DaskPool.from_files(client, files, "client", "y")):
        pool.ask(Census(), Sample(1, 0.5))
        assert all(client.gather(client.map(flags, [*pool._held(), *pool._samples[Sample(1, 0.5)].values()])))


def test_less_than_one_shard_is_refused(client, made):
    with pytest.raises(SettingsError, match="shards=0"):
        DaskPool(client, made.clients, 0)


# ---------------------------------------------------------------- files read by workers


@pytest.fixture(scope="module")
def files(made, tmp_path_factory):
    """The table in three files, each with other clients."""
    folder = tmp_path_factory.mktemp("files")
    frame = pd.DataFrame(made.columns())
    paths = [folder / f"part_{part}.parquet" for part in range(3)]
    for part, path in enumerate(paths):
        frame[frame.client % 3 == part].to_parquet(path, index=False)
    return paths


def test_workers_read_their_own_files(client, made, files):
    pool = DaskPool.from_files(client, files, "client", "y", intercept=False)
    found = auto(pool, pool)
    same(found.model, auto(LocalPool(made.clients), made.clients).model)
    kinds, expected = pool.assign(found.model), found.model.assign(made.clients)
    order = np.argsort(kinds.ids)
    np.testing.assert_array_equal(kinds.ids[order], expected.ids)
    np.testing.assert_allclose(kinds.probabilities[order], expected.probabilities, atol=1e-12)


def changed(path, folder, change):
    frame = pd.read_parquet(path)
    path = folder / "other.parquet"
    change(frame).to_parquet(path, index=False)
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda frame: frame.assign(client=frame.client - 1),
            r"client \d+ has rows in .*part_0.parquet and in .*other.parquet: put",
        ),
        (lambda frame: frame.rename(columns={"x_1": "z"}), "other.parquet: the features are x_0, z, x_2, x_3, but"),
        (
            lambda frame: frame.assign(client=frame.client.astype(str)),
            "other.parquet: client ids are text, but numbers",
        ),
        (lambda frame: frame.drop(columns="y"), "other.parquet: no column 'y'"),
        (lambda frame: frame.assign(y=np.nan), "other.parquet: column 'y' is empty"),
    ],
    ids=["split client", "other features", "other ids", "no target", "missing"],
)
def test_files_that_do_not_go_together_are_refused_by_name(client, files, tmp_path, change, message):
    other = changed(files[1], tmp_path, change)
    with pytest.raises(DataError, match=message):
        DaskPool.from_files(client, [files[0], other], "client", "y", intercept=False)


def test_a_file_that_workers_do_not_find_is_named(client, tmp_path):
    with pytest.raises(DataError, match=r"none.parquet: no such file"):
        DaskPool.from_files(client, [tmp_path / "none.parquet"], "client", "y")


# ---------------------------------------------------------------- workers die


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


# ---------------------------------------------------------------- the command line


def mixfed(*arguments):
    command = [sys.executable, "-m", "mixfed", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_command_line_fits_on_a_cluster(cluster, made, tmp_path):
    pd.DataFrame(made.columns()).to_parquet(tmp_path / "t.parquet", index=False)
    arguments = ("--client", "client", "--target", "y", "--clusters", 2, "--no-intercept", "--json")
    fit = ("fit", tmp_path / "t.parquet", *arguments, "--seed", 1, "--out", tmp_path / "out")
    result = mixfed(*fit, "--dask", cluster.scheduler_address)
    assert (result.returncode, result.stderr) == (0, "")
    same(Model.load(tmp_path / "out"), auto(LocalPool(made.clients), made.clients).model)


def test_a_fit_that_lost_its_cluster_can_be_resumed(made, tmp_path, monkeypatch):
    def lose():
        raise PoolError("the cluster is lost")

    pd.DataFrame(made.columns()).to_parquet(tmp_path / "t.parquet", index=False)
    arguments = ["--client", "client", "--target", "y", "--clusters", "2", "--no-intercept", "--seed", "1"]
    fit = ["fit", str(tmp_path / "t.parquet"), *arguments, "--out", str(tmp_path / "out")]
    with monkeypatch.context() as patch:
        patch.setattr(cli_fit, "_pool", lambda table, scheduler: Disturbed(LocalPool(table), 7, lose))
        result = CliRunner().invoke(cli.app, fit)
    assert result.exit_code == 2
    assert result.stderr.endswith("mixfed: the cluster is lost; the same command with --resume goes on\n")
    assert CliRunner().invoke(cli.app, [*fit, "--resume"]).exit_code == 0
    same(Model.load(tmp_path / "out"), auto(LocalPool(made.clients), made.clients).model)


def test_an_address_where_nobody_answers_is_one_line(made, tmp_path):
    pd.DataFrame(made.columns()).to_parquet(tmp_path / "t.parquet", index=False)
    fit = ("fit", tmp_path / "t.parquet", "--client", "client", "--target", "y", "--out", tmp_path / "out")
    result = mixfed(*fit, "--dask", "tcp://127.0.0.1:9")
    assert result.returncode == 2
    assert result.stderr == "mixfed: no dask scheduler answers at tcp://127.0.0.1:9 within 5 s: is it running?\n"
    assert not (tmp_path / "out").exists()
    with pytest.raises(SettingsError, match="--dask nowhere: give the address of a scheduler"):
        connect("nowhere")


def test_without_dask_the_command_line_says_what_to_install(made, tmp_path):
    pd.DataFrame(made.columns()).to_parquet(tmp_path / "t.parquet", index=False)
    fit = ["mixfed", "fit", str(tmp_path / "t.parquet"), "--client", "client", "--target", "y", "--out", "o"]
    program = f"import sys; sys.modules['distributed'] = None; sys.argv = {[*fit, '--dask', 'tcp://x:1']}"
    result = subprocess.run(
        [sys.executable, "-c", f"{program}; from mixfed.cli import run; run()"],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 2
    assert result.stderr == "mixfed: --dask needs dask.distributed: install mixfed[dask]\n"


def test_importing_mixfed_does_not_import_dask():
    program = "import sys, mixfed, mixfed.cli, mixfed.exchange.pool; sys.exit('dask' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
