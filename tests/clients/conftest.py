"""A cluster of two workers, and clients for it."""

from __future__ import annotations

import pandas as pd
import pytest

from mixfed import simulate


@pytest.fixture(scope="module")
def cluster():
    """Two workers, each started again whenever it is lost.

    Dask looks once, some time after a worker was lost, and gives its place up for good if nobody holds it: 15 s later
    the next test may have killed the new one.
    """
    from helpers.dask_cluster import dask, distributed

    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=":0", silence_logs=50
        ) as made,
    ):
        yield made


@pytest.fixture(scope="module")
def client(cluster):
    from helpers.dask_cluster import distributed

    with distributed.Client(cluster, set_as_default=False) as made:
        yield made


@pytest.fixture(scope="module")
def made():
    return simulate(n_clients=2000, dim=4, n_clusters=2, n_anchors=10, anchor_rows=400, seed=5)


@pytest.fixture(scope="module")
def files(made, tmp_path_factory):
    """The table in three files, each with other clients."""
    folder = tmp_path_factory.mktemp("files")
    frame = pd.DataFrame(made.columns())
    paths = [folder / f"part_{part}.parquet" for part in range(3)]
    for part, path in enumerate(paths):
        frame[frame.client % 3 == part].to_parquet(path, index=False)
    return paths
