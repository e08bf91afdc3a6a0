"""Packing a table: the clients of its file, whatever their ids and columns, and nothing left of what is refused."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.tables import assert_same, frame, written
from mixfed import Clients, DataError, Store, pack

pytestmark = pytest.mark.usefixtures("many_batches")


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".csv.gz"])
@pytest.mark.parametrize("ids", ["numbers", "text", "sorted"])
@pytest.mark.parametrize("seed", range(3))
def test_a_store_holds_the_clients_of_its_file(tmp_path, suffix, ids, seed):
    rows = (1, 37, 300)[seed]
    table = frame(seed, rows, ids=ids)
    path = written(table, tmp_path / f"t{suffix}")
    store = pack(path, tmp_path / "packed", "store", "sales")
    assert_same(store, Clients.from_file(path, "store", "sales"))
    assert_same(store, Clients.from_frame(table, "store", "sales"))
    assert_same(
        Store.open(tmp_path / "packed", intercept=False), Clients.from_file(path, "store", "sales", intercept=False)
    )


def test_single_precision_stays_single(tmp_path):
    path = written(frame(0, single=True), tmp_path / "t.parquet")
    store = pack(path, tmp_path / "packed", "store", "sales")
    assert store.phi.dtype == np.float32
    assert_same(store, Clients.from_frame(frame(0, single=True), "store", "sales"))


@pytest.mark.parametrize(
    "ids",
    [
        [datetime.date(2024, 1, 1 + i % 9) for i in range(100)],
        [datetime.datetime(2024, 1, 1 + i % 9, tzinfo=datetime.UTC) for i in range(100)],
        [decimal.Decimal(i % 9) / 4 for i in range(100)],
        [i % 9 / 4 for i in range(100)],
        [i % 2 == 0 for i in range(100)],
        [bytes([65 + i % 9]) for i in range(100)],
        pa.array([f"c{i % 9}" for i in range(100)]).dictionary_encode(),
        pa.array([2**64 - 1 - i % 9 for i in range(100)], pa.uint64()),
        pa.array([f"c{i % 9}" for i in range(100)], pa.large_string()),
    ],
)
def test_ids_may_be_of_any_kind(tmp_path, ids):
    table = pa.table({"c": ids, "y": np.arange(100.0), "x": np.arange(100.0) ** 2})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=45)
    clients = Clients.from_frame(table, "c", "y")
    assert_same(Clients.from_file(tmp_path / "t.parquet", "c", "y"), clients)
    assert_same(pack(tmp_path / "t.parquet", tmp_path / "packed", "c", "y"), clients)


def test_numbers_of_any_kind_are_features_and_words_are_not(tmp_path):
    rng = np.random.default_rng(0)
    table = pa.table(
        {
            "c": rng.integers(0, 9, 100),
            "y": rng.integers(0, 9, 100),
            "x.1": rng.integers(0, 9, 100).astype(np.uint8),
            "open": rng.random(100) < 0.5,
            "price": [decimal.Decimal(i) / 4 for i in range(100)],
            "code": [f" {i % 7}.5" for i in range(100)],
            "town": ["Ghent"] * 60 + ["1"] * 40,
            "kind": pa.array(["a", "b"] * 50).dictionary_encode(),
            "when": [datetime.date(2024, 1, 1)] * 100,
            "half": rng.random(100).astype(np.float16),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    clients = Clients.from_frame(table, "c", "y")
    assert clients.features[:-1] == ("x.1", "open", "price", "code", "half")
    assert_same(Clients.from_file(tmp_path / "t.parquet", "c", "y"), clients)
    assert_same(pack(tmp_path / "t.parquet", tmp_path / "packed", "c", "y"), clients)


@pytest.mark.parametrize(
    "later",
    [
        {"x": "0.25"},  # whole numbers that go on with others
        {"x": str(2**70)},
        {"x": " 7"},  # what only Python reads as a number
        {"c": "007"},  # ids with leading zeros, which are text
        {"c": "new"},
        {"blank": "3"},  # not a number in the beginning
    ],
)
def test_what_a_csv_file_begins_with_does_not_bind_it(tmp_path, later):
    table = pd.DataFrame({"c": np.arange(400) % 90, "y": np.arange(400), "x": np.arange(400), "blank": ""}).astype(str)
    for name, value in later.items():
        table.loc[399 if name != "blank" else slice(390, None), name] = value
    path = written(table, tmp_path / "t.csv")
    features = ["x"] if "blank" in later else None
    store = pack(path, tmp_path / "packed", "c", "y", features)
    assert store.features == ("x", "(intercept)")
    assert_same(store, Clients.from_file(path, "c", "y", features))


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".csv.gz"])
@pytest.mark.parametrize(
    ("column", "row", "value", "message"),
    [
        ("x", 250, np.nan, r"column 'x' has a missing value in row 251 \(index 250\): fill it in or drop the row"),
        ("y", 299, np.inf, r"column 'y' has an infinite value in row 300 \(index 299\)"),
        ("x", 260, "oops", r"column 'x' has 'oops' in row 261 \(index 260\), which is not a number: mend it"),
        ("y", 260, "oops", r"column 'y' has 'oops' in row 261 \(index 260\), which is not a number: mend it"),
        ("c", 280, None, r"column 'c': no client id in row 281 \(index 280\)"),
    ],
)
def test_errors_name_the_row_of_the_whole_file_and_leave_nothing(tmp_path, suffix, column, row, value, message):
    table = pd.DataFrame({"c": [f"k{i % 90}" for i in range(300)], "y": np.arange(300.0), "x": np.arange(300.0)})
    if isinstance(value, str):
        table[column] = table[column].astype(str)
    table.loc[row, column] = value
    path = written(table, tmp_path / f"t{suffix}")
    with pytest.raises(DataError, match=message):
        Clients.from_file(path, "c", "y")
    with pytest.raises(DataError, match=message):
        pack(path, tmp_path / "packed", "c", "y")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
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
        ("t.csv", "c,y,when\n1,2,2024-01-01\n", "no numeric column is left"),
        ("t.csv", "c,y,blank\n1,2,\n", "no numeric column is left"),
        ("t.csv", "c,y,x\n" + "1,2,3\n" * 400 + "1,2\n", r"row 401 \(index 400\) has 2 fields, the header has 3"),
        ("t.csv", b"c,y,x\n1,2,3\n\0\0\0", "t.csv: this is not text"),
        ("t.csv.gz", b"\x1f\x8b\x08\x00 cut", "t.csv.gz: cannot be read"),
        ("t.parquet", "not parquet", "cannot be read"),
        ("t.json", "c,y,x\n", "unknown kind of file"),
    ],
)
def test_bad_files_are_refused_by_name(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=message):
        pack(tmp_path / name, tmp_path / "packed", "c", "y")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_nothing_is_left_of_a_packing_that_is_stopped(tmp_path):
    path = written(frame(0), tmp_path / "t.parquet")

    def stop(name, done, total):
        if name == "Packing rows" and done > 100:
            assert (tmp_path / "packed.partial").exists()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(path, tmp_path / "packed", "store", "sales", watch=stop)
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_changes_between_the_passes_is_refused(tmp_path):
    path = written(frame(0), tmp_path / "t.parquet")
    for changed in (frame(0, 200), frame(0, 400), frame(0, clients=500), frame(0, ids="text")):
        written(frame(0), path)

        def change(name, done, total, changed=changed):
            if name == "Finding clients" and done == total:
                written(changed, path)

        with pytest.raises(DataError, match="changed while it was read"):
            pack(path, tmp_path / "packed", "store", "sales", watch=change)
        assert list(tmp_path.iterdir()) == [path]


def test_the_folder_that_one_is_in_is_not_replaced(tmp_path, monkeypatch):
    path = written(frame(0), tmp_path / "t.parquet")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(DataError, match="choose one below it"):
        pack(path, ".", "store", "sales")
    assert_same(pack(path, "packed", "store", "sales"), Clients.from_file(path, "store", "sales"))


def test_nothing_but_a_store_is_written_over(tmp_path):
    path = written(frame(0), tmp_path / "t.parquet")
    (tmp_path / "folder").mkdir()
    pack(path, tmp_path / "folder", "store", "sales")  # an empty one is free
    (tmp_path / "folder" / "notes.txt").write_text("mine")
    for out in (path, tmp_path / "folder"):
        with pytest.raises(DataError, match="something else here: choose another --out"):
            pack(path, out, "store", "sales")
    assert (tmp_path / "folder" / "notes.txt").exists()
