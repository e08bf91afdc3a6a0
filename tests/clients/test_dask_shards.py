"""Shards of clients on a cluster, from memory and from files."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from helpers.clients import random_clients
from helpers.dask_cluster import auto, same
from mixfed import DataError, LocalPool, SettingsError
from mixfed.clients.dask import DaskPool
from mixfed.clients.dask_shards import cut_evenly
from mixfed.exchange.census import Census
from mixfed.exchange.pool import Sample

# Sockets that dask leaves to the garbage collector are not what is tested here.
pytestmark = [
    pytest.mark.dask,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]


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
