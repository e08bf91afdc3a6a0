"""Clients from arrays, frames and files, and in blocks."""

from __future__ import annotations

import dataclasses
import datetime
import itertools

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from helpers.tables import sales_frame
from mixfed import Clients, DataError, LocalPool, simulate
from mixfed.clients.packed import cut
from mixfed.core.names import INTERCEPT
from mixfed.exchange.local_update import FedProx, LocalUpdate, Mixture


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.booleans())
def test_rows_of_a_client_are_kept_together_and_in_order(owners, as_text):
    ids = [f"c{owner}" for owner in owners] if as_text else owners
    X = np.arange(len(owners), dtype=float)[:, None]
    clients = Clients.from_arrays(X, 10 * X[:, 0], ids)
    assert clients.ids.tolist() == sorted(set(ids))
    for i, client in enumerate(clients.ids.tolist()):
        own = slice(clients.offsets[i], clients.offsets[i + 1])
        expected = [row for row, owner in enumerate(ids) if owner == client]
        assert clients.phi[own, 0].tolist() == expected
        assert clients.y[own].tolist() == [10 * row for row in expected]


@pytest.mark.parametrize(
    "ids",
    [
        np.array(["b", "a", "b"]),
        np.array(["b", "a", "b"], dtype=object),
        [datetime.date(2024, 1, 2), datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)],
        np.array([1.5, 0.5, 1.5]),
        np.array([True, False, True]),
        pd.Categorical(["b", "a", "b"]),
    ],
)
def test_ids_may_be_of_any_kind(ids):
    clients = Clients.from_arrays(np.eye(3), np.zeros(3), np.asarray(ids))
    assert clients.rows.tolist() == [1, 2]
    assert len(np.unique(clients.keys)) == 2


def test_without_groups_every_row_is_a_client():
    clients = Clients.from_arrays(np.eye(3), np.zeros(3))
    assert clients.rows.tolist() == [1, 1, 1]


def test_single_precision_stays_and_integers_become_double():
    X = np.eye(3, dtype=np.float32)
    assert Clients.from_arrays(X, np.zeros(3)).phi.dtype == np.float32
    assert Clients.from_arrays(X.astype(int), np.zeros(3)).phi.dtype == np.float64
    small = pd.DataFrame({"c": [1, 2], "y": [0.0, 1.0], "x": np.array([1, 2], dtype=np.float32)})
    assert Clients.from_frame(small, "c", "y").phi.dtype == np.float32


def test_rows_that_lie_in_another_order_give_the_same_sums():
    made = simulate(n_clients=500, dim=5, n_clusters=2, seed=0)
    clients, mixture = made.clients, Mixture(made.theta, np.full(2, 0.5), np.ones(2))
    question = LocalUpdate(mixture, False, FedProx(0.5))
    expected = LocalPool(clients).ask(question)
    for phi in (np.asfortranarray(clients.phi), np.repeat(clients.phi, 2, axis=1)[:, ::2]):
        found = LocalPool(dataclasses.replace(clients, phi=phi)).ask(question)
        np.testing.assert_array_equal(found.shift, expected.shift)


def test_files_and_frames_of_every_kind_give_the_same_clients(tmp_path):
    table = sales_frame()
    table.to_parquet(tmp_path / "t.parquet")
    table.to_csv(tmp_path / "t.csv", index=False)
    table.to_csv(tmp_path / "t.csv.gz", index=False)
    made = [Clients.from_file(tmp_path / name, "store", "sales") for name in ("t.parquet", "t.csv", "t.csv.gz")]
    made += [Clients.from_frame(kind, "store", "sales") for kind in (table, pl.from_pandas(table), pa.table(table))]
    arrays = Clients.from_arrays(
        table[["price", "size"]], table["sales"], table["store"], intercept=True, features=["price", "size"]
    )
    for clients in made:
        assert clients.features == ("price", "size", INTERCEPT)
        np.testing.assert_array_equal(clients.phi, arrays.phi)
        np.testing.assert_array_equal(clients.y, arrays.y)
        np.testing.assert_array_equal(clients.offsets, arrays.offsets)


def test_a_subset_holds_the_rows_of_its_clients():
    clients = Clients.from_frame(sales_frame(), "store", "sales")
    part = clients.subset(np.array([5, 2]))
    for i, place in enumerate((5, 2)):
        own = slice(part.offsets[i], part.offsets[i + 1])
        np.testing.assert_array_equal(part.y[own], clients.y[clients.offsets[place] : clients.offsets[place + 1]])


@pytest.mark.parametrize(
    ("X", "y", "groups", "message"),
    [
        (np.ones(3), np.ones(3), None, "two dimensions"),
        (np.ones((0, 2)), np.ones(0), None, "no rows"),
        (np.eye(3), np.ones(2), None, r"shape \(3,\), it has \(2,\)"),
        (np.eye(3), np.ones(3), [1, 2], "one id per row"),
        (np.eye(3), np.array([1.0, np.nan, 0.0]), None, r"'y' has a missing value in row 2 \(index 1\)"),
        (np.array([[1.0], [np.inf]]), np.ones(2), None, r"'x_0' has an infinite value in row 2 \(index 1\)"),
        ([["a"], ["b"]], np.ones(2), None, "X must hold numbers"),
        (np.eye(2), np.ones(2), np.array([None, "a"], dtype=object), r"no client id in row 1 \(index 0\)"),
        (np.eye(2), np.ones(2), np.array([1, "a"], dtype=object), "mix types"),
    ],
)
def test_bad_arrays_are_refused_by_name(X, y, groups, message):
    with pytest.raises(DataError, match=message):
        Clients.from_arrays(X, y, groups)


def test_blocks_are_whole_clients_of_about_equal_rows():
    rng = np.random.default_rng(0)
    for n_clients, dim in ((1, 1), (7, 3), (5000, 2), (60_000, 40), (300, 100_000)):
        offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 20, n_clients))])
        blocks = cut(offsets, dim)
        assert blocks[0][0] == 0
        assert blocks[-1][1] == n_clients
        assert all(left[1] == right[0] for left, right in itertools.pairwise(blocks))
        rows = [offsets[end] - offsets[begin] for begin, end in blocks]
        assert max(rows) <= 65_536 + 20
        assert max(rows) * dim <= 4_000_000 + 20 * dim
