"""Clients from arrays, frames and files, and what is said of bad ones."""

from __future__ import annotations

import dataclasses
import datetime
import gzip

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixfed import Clients, DataError, LocalPool, simulate
from mixfed.core.names import INTERCEPT
from mixfed.exchange.local_update import FedProx, LocalUpdate, Mixture


def frame(rows=40, seed=0):
    rng = np.random.default_rng(seed)
    columns = {"store": rng.integers(0, 9, rows), "sales": rng.standard_normal(rows)}
    return pd.DataFrame(columns | {name: rng.standard_normal(rows) for name in ("price", "size")})


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
    table = frame()
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


def test_text_columns_are_not_features_but_numbers_kept_as_text_are():
    table = frame().assign(town="Ghent", code=[str(i % 7) for i in range(40)], open=[i % 2 == 0 for i in range(40)])
    assert Clients.from_frame(table, "store", "sales").features[:-1] == ("price", "size", "code", "open")


def test_text_of_polars_is_text():
    table = frame().assign(store=[f"s{i % 7}" for i in range(40)], code=[str(i % 5) for i in range(40)], town="Ghent")
    clients = Clients.from_frame(pl.from_pandas(table), "store", "sales")
    assert clients.features[:-1] == ("price", "size", "code")
    assert clients.digest == Clients.from_frame(table, "store", "sales").digest


def test_a_subset_holds_the_rows_of_its_clients():
    clients = Clients.from_frame(frame(), "store", "sales")
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


def _write(path, text):
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", "c,y,x\n" + "1,2,3\n" * 16 + "1,2,\n", r"t.csv: column 'x' has a missing value in row 17"),
        ("t.csv", "c,y,x\n" + "1,2,3\n" * 4 + "1,2,oops\n", r"'x' has 'oops' in row 5 \(index 4\)"),
        ("t.csv", "c,y,x\n1,two,3\n1,3,4\n", r"'y' has 'two' in row 1"),
        ("t.csv", "c,y,x\n,2,3\n1,3,4\n", r"column 'c': no client id in row 1"),
        ("t.csv", "c,y,x\na,2,3\n,3,4\n", r"column 'c': no client id in row 2"),
        ("t.csv", "c,y,(intercept)\n1,2,3\n", "rename it"),
        ("t.csv", "c,y,x,x\n1,2,3,4\n", "column 'x' occurs twice"),
        ("t.csv", "c,y,x\n", "no rows"),
        ("t.csv", "", "empty"),
        (
            "t.csv",
            "c:y:x\n1:2:3\n",
            "no column 'c'; .*the only column is 'c:y:x': are the columns parted by something else",
        ),
        ("t.csv", "c,y,town\n1,2,Ghent\n", "no numeric column is left"),
        ("t.csv", "c,y,x\n1,2,3\n1,2\n", r"row 2 \(index 1\) has 2 fields, the header has 3 \('1,2'\)"),
        ("t.parquet", "not parquet", "cannot be read"),
        ("t.json", "c,y,x\n", "unknown kind of file"),
        ("t.xlsx", "PK", "save it as CSV"),
    ],
)
def test_bad_files_are_refused_by_name(tmp_path, name, content, message):
    path = _write(tmp_path / name, content)
    with pytest.raises(DataError, match=message):
        Clients.from_file(path, "c", "y")


def test_missing_files_folders_and_broken_archives_are_refused(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        Clients.from_file(tmp_path / "none.csv", "c", "y")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match="a folder"):
        Clients.from_file(tmp_path / "folder.csv", "c", "y")
    whole = gzip.compress(b"c,y,x\n" + b"1,2,3\n" * 1000)
    (tmp_path / "cut.csv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"cut.csv.gz: cannot be read"):
        Clients.from_file(tmp_path / "cut.csv.gz", "c", "y")


@pytest.mark.parametrize(
    ("client", "target", "features", "message"),
    [
        ("store", "store", None, "both the client and the target"),
        ("store", "sales", ["price", "sales"], "'sales' cannot be a feature too"),
        ("store", "sales", ["cost"], "no column 'cost'"),
        ("store", "sales", ["price", "price"], "'price' is named twice"),
        ("store", "sales", ["hour"], "holds times of day, not numbers"),
        ("store", "when", None, "'when' holds dates, which cannot be the target"),
        ("store", "town", None, r"'town' holds words \('Ghent' in row 1 \(index 0\)\), not numbers: choose another"),
        ("store", "sales", ["town"], r"'town' holds words .* pandas.get_dummies\(frame, columns=\['town'\]\) does"),
    ],
)
def test_bad_columns_are_refused_by_name(client, target, features, message):
    table = frame().assign(when=pd.Timestamp("2024-01-01"), town="Ghent", hour=datetime.time(10, 30))
    with pytest.raises(DataError, match=message):
        Clients.from_frame(table, client, target, features)


def test_ids_of_a_csv_file_keep_their_leading_zeros(tmp_path):
    (tmp_path / "t.csv").write_text("c,y,x\n007,1,2\n7,3,4\n12,5,6\n")
    assert Clients.from_file(tmp_path / "t.csv", "c", "y").ids.tolist() == ["007", "12", "7"]
    (tmp_path / "u.csv").write_text("c,y,x\n10,1,2\n7,3,4\n")
    assert Clients.from_file(tmp_path / "u.csv", "c", "y").ids.tolist() == [7, 10]


def test_numbers_too_large_for_a_double_are_rounded(tmp_path):
    (tmp_path / "t.csv").write_text(f"c,y,x\n1,1,{2**60 + 1}\n2,2,3\n")
    assert Clients.from_file(tmp_path / "t.csv", "c", "y").phi[0, 0] == 2.0**60


def test_ids_that_are_lists_are_refused():
    with pytest.raises(DataError, match="one value"):
        Clients.from_frame(pa.table({"c": [[1], [2]], "y": [1.0, 2.0], "x": [1.0, 3.0]}), "c", "y")


def test_a_word_far_down_in_a_column_of_numbers_is_found(tmp_path):
    rows = [f"{i % 50},{i}.5,{i}\n" for i in range(100_000)]
    rows[90_000] = "7,1.0,oops\n"
    (tmp_path / "t.csv").write_text("c,y,x\n" + "".join(rows))
    with pytest.raises(DataError, match=r"t.csv: column 'x' has 'oops' in row 90001 \(index 90000\)"):
        Clients.from_file(tmp_path / "t.csv", "c", "y")


def test_an_index_of_pandas_is_a_column_only_by_name():
    frame = pd.DataFrame({"who": np.arange(60) // 3, "y": np.arange(60.0), "x": np.arange(60) % 7}).rename_axis("row")
    for some in (frame, frame[frame.x > 0]):
        assert Clients.from_frame(some, "who", "y").features == ("x", INTERCEPT)
        assert Clients.from_frame(some.set_index("who"), "who", "y").features == ("x", INTERCEPT)
    named = Clients.from_frame(frame[frame.x > 0], "who", "y", ["x", "row"])
    assert named.features == ("x", "row", INTERCEPT)
    with pytest.raises(DataError, match="cannot be made a table"):
        Clients.from_frame(pl.DataFrame({"who": [1], "y": [1.0]}).lazy(), "who", "y")
