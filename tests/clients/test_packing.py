"""Packed clients on disk: the same clients, the same fits, and no more memory than a few blocks."""

from __future__ import annotations

import datetime
import decimal
import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.clients import random_clients
from helpers.command_line import assert_one_line, mixfed
from helpers.tables import assert_same, frame, written
from mixfed import Clients, DataError, LocalPool, SettingsError, Store, pack
from mixfed.clients.answers import answer_each
from mixfed.clients.store import FILES, open_clients
from mixfed.core.threads import side_by_side
from mixfed.exchange.anchors import Descend
from mixfed.exchange.journal import fingerprint
from mixfed.tables import sources as streams


@pytest.fixture(autouse=True)
def many_batches(monkeypatch):
    """Small tables are several batches, too."""
    monkeypatch.setattr(streams, "BATCH_ROWS", 37)
    monkeypatch.setattr(streams, "BLOCK_BYTES", 600)


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


@pytest.mark.parametrize("seed", range(4))
def test_a_subset_is_what_it_is_in_memory_in_any_order(tmp_path, seed):
    rng = np.random.default_rng(seed)
    path = written(frame(seed, 20_000, 700), tmp_path / "t.parquet")
    streams.BATCH_ROWS = 5000
    store, clients = pack(path, tmp_path / "packed", "store", "sales"), Clients.from_file(path, "store", "sales")
    assert len(store.blocks) > 1
    for who in (
        rng.permutation(store.n_clients),
        rng.integers(0, store.n_clients, 50),
        np.array([store.n_clients - 1, 0]),
        np.array([], dtype=np.int64),
    ):
        assert_same(store.subset(who), clients.subset(who))


def test_blocks_are_read_by_threads_at_once(tmp_path):
    path = written(frame(0, 20_000, 700), tmp_path / "t.parquet")
    streams.BATCH_ROWS = 5000
    store, clients = pack(path, tmp_path / "packed", "store", "sales"), Clients.from_file(path, "store", "sales")
    read = list(side_by_side(lambda edges: store.block(*edges), store.blocks * 20))
    for edges, block in zip(store.blocks * 20, read, strict=True):
        np.testing.assert_array_equal(block.phi, clients.block(*edges).phi)


def test_anchors_say_the_same_a_block_at_a_time():
    clients = random_clients(0, [9000, 2, 7000, 3, 8000], 4)
    rng, who = np.random.default_rng(1), np.array([4, 1, 0, 3, 2])
    theta, basis = rng.standard_normal((5, 4)), np.linalg.qr(rng.standard_normal((5, 4, 2)))[0]
    query = Descend(theta, basis, round=0, pairs=1, power_rounds=9, threshold=0.0, rate=0.1, seed=0)
    asked, whole = LocalPool(clients).ask_each(query, who), answer_each(query, clients.subset(who))
    np.testing.assert_allclose(asked.theta, whole.theta)
    np.testing.assert_allclose(asked.size, whole.size)


def test_the_arrays_of_a_store_are_plain_files(tmp_path):
    path = written(frame(0), tmp_path / "t.csv")
    pack(path, tmp_path / "packed", "store", "sales")
    clients = Clients.from_file(path, "store", "sales")
    assert sorted(file.name for file in (tmp_path / "packed").iterdir()) == sorted(FILES)
    np.testing.assert_array_equal(np.load(tmp_path / "packed" / "phi.npy", mmap_mode="r"), clients.phi)
    np.testing.assert_array_equal(np.load(tmp_path / "packed" / "y.npy", mmap_mode="r"), clients.y)
    assert pd.read_parquet(tmp_path / "packed" / "ids.parquet").id.tolist() == clients.ids.tolist()
    about = json.loads((tmp_path / "packed" / "store.json").read_text())
    assert about["format"] == "mixfed-store/1"
    assert about["features"] == ["price", "size", "count"]


def test_a_run_begun_on_a_file_is_the_same_run_on_its_store(tmp_path):
    path = written(frame(0), tmp_path / "t.csv")
    store = pack(path, tmp_path / "packed", "store", "sales")
    clients = Clients.from_file(path, "store", "sales")
    assert fingerprint(store, 1) == fingerprint(clients, 1) != fingerprint(clients, 2)
    other = Clients.from_frame(frame(0).assign(size=0.0), "store", "sales")
    assert fingerprint(other, 1) != fingerprint(clients, 1)


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


def test_a_store_is_replaced_whole_and_read_on_as_it_was(tmp_path):
    first, second = written(frame(0), tmp_path / "a.parquet"), written(frame(1), tmp_path / "b.parquet")
    old = pack(first, tmp_path / "packed", "store", "sales")
    (tmp_path / "packed.partial").mkdir()  # of a process that was killed
    (tmp_path / "packed.partial" / "phi.npy").write_bytes(b"half")
    new = pack(second, tmp_path / "packed", "store", "sales")
    assert_same(new, Clients.from_file(second, "store", "sales"))
    assert_same(old, Clients.from_file(first, "store", "sales"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.parquet", "b.parquet", "packed"]


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


def test_a_damaged_store_is_refused_in_one_line(tmp_path):
    path = written(frame(0), tmp_path / "t.parquet")
    folder = tmp_path / "packed"
    store = pack(path, folder, "store", "sales")
    whole = (folder / "phi.npy").read_bytes()
    with (folder / "phi.npy").open("r+b") as file:
        file.truncate(len(whole) - 1)
    for read in (
        lambda: Store.open(folder),
        lambda: store.block(0, store.n_clients),
        lambda: store.subset(np.arange(40)),
    ):
        with pytest.raises(DataError, match=r"phi.npy: cut off after \d+ of \d+ bytes: pack the table again") as error:
            read()
        assert "\n" not in str(error.value)
    (folder / "phi.npy").write_bytes(whole)
    np.save(folder / "y.npy", np.zeros(7))
    with pytest.raises(DataError, match="do not belong together"):
        Store.open(folder)
    (folder / "y.npy").write_bytes(b"nonsense")
    with pytest.raises(DataError, match=r"y.npy: not an .npy file"):
        Store.open(folder)
    (folder / "ids.parquet").unlink()
    with pytest.raises(DataError, match="damaged"):
        Store.open(folder)
    (folder / "store.json").write_text('{"format": "mixfed-store/9"}')
    with pytest.raises(DataError, match="the format is 'mixfed-store/9'"):
        Store.open(folder)
    (folder / "store.json").write_text("[]")
    with pytest.raises(DataError, match=r"store.json is not one of mixfed"):
        Store.open(folder)
    with pytest.raises(DataError, match="no packed table here"):
        Store.open(tmp_path)


def test_columns_of_a_store_need_not_be_named_but_must_agree(tmp_path):
    path = written(frame(0), tmp_path / "t.parquet")
    folder = tmp_path / "packed"
    pack(path, folder, "store", "sales", ["size", "price"])
    assert open_clients(folder).features == ("size", "price", "(intercept)")
    assert open_clients(folder, "store", "sales", ["size", "price"], intercept=False).features == ("size", "price")
    with pytest.raises(SettingsError, match="with the client 'store', not 'shop'"):
        open_clients(folder, "shop")
    with pytest.raises(SettingsError, match="with the target 'sales', not 'price'"):
        open_clients(folder, "store", "price")
    with pytest.raises(SettingsError, match="with the features size, price, not price, size"):
        open_clients(folder, features=["price", "size"])
    with pytest.raises(
        SettingsError, match=r"t.parquet: give --client and --target; the columns are store, sales, town"
    ):
        open_clients(path, "store")
    with pytest.raises(DataError, match="no packed table in it"):
        open_clients(tmp_path, "store", "sales")


def mixed(seed, ids, *, single, shuffled):
    """Rows of clients of two kinds."""
    rng = np.random.default_rng(seed)
    owner = np.sort(rng.integers(0, 400, 3000))
    if shuffled:
        rng.shuffle(owner)
    x = rng.standard_normal((3000, 3)).astype(np.float32 if single else np.float64)
    y = x[:, 0] * np.where(owner % 2, 2.0, -1.0) + 0.3 * rng.standard_normal(3000)
    client = owner if ids == "numbers" else np.array([f"c{i}" for i in owner], dtype=object)
    return pd.DataFrame({"client": client, "y": y} | {f"x_{j}": x[:, j] for j in range(3)})


@pytest.mark.parametrize(
    ("ids", "single", "shuffled", "suffix", "more"),
    [
        ("numbers", False, False, ".parquet", ()),
        ("text", True, True, ".parquet", ("--no-intercept",)),
        ("text", False, True, ".csv.gz", ("--features", "x_2,x_0")),
    ],
)
def test_a_fit_on_a_store_writes_the_bytes_of_the_fit_on_its_file(tmp_path, ids, single, shuffled, suffix, more):
    path = written(mixed(0, ids, single=single, shuffled=shuffled), tmp_path / f"t{suffix}")
    columns = ("--client", "client", "--target", "y")
    features = more if "--features" in more else ()
    packed = mixfed("pack", path, *columns, *features, "--out", tmp_path / "packed")
    assert packed.exit_code == 0, packed.output
    n_features = 2 if features else 3
    assert f"3000 rows of 400 clients, {n_features} features, " in packed.stdout
    assert f"next: mixfed fit {tmp_path / 'packed'} --out result" in packed.stdout
    for data, named, out in ((path, columns, "file"), (tmp_path / "packed", (), "store")):
        result = mixfed("fit", data, *named, *more, "--clusters", 2, "--out", tmp_path / out)
        assert result.exit_code == 0, result.output
    for name in ("model.json", "clients.parquet"):
        assert (tmp_path / "store" / name).read_bytes() == (tmp_path / "file" / name).read_bytes()
    assert json.loads((tmp_path / "store" / "model.json").read_text())["target_column"] == "y"
    if not features:
        kinds = tmp_path / "kinds.parquet"
        assert mixfed("assign", tmp_path / "store", tmp_path / "packed", "--out", kinds).exit_code == 0
        assert kinds.read_bytes() == (tmp_path / "file" / "clients.parquet").read_bytes()
        out = tmp_path / "p.parquet"
        result = mixfed("predict", tmp_path / "store", path, "--history", tmp_path / "packed", "--out", out)
        assert "the kinds of 400 of 400 clients are known" in result.stdout


def test_the_command_line_says_in_one_line_what_is_wrong(tmp_path):
    path = written(mixed(0, "numbers", single=False, shuffled=False), tmp_path / "t.parquet")
    assert mixfed("pack", path, "--client", "client", "--target", "y", "--out", tmp_path / "packed").exit_code == 0
    out = tmp_path / "out"
    assert_one_line(mixfed("fit", path, "--out", out), "the columns are client, y, x_0, x_1, x_2")
    assert_one_line(mixfed("fit", tmp_path / "packed", "--target", "x_0", "--out", out), "not 'x_0': pack it again")
    assert_one_line(mixfed("fit", tmp_path, "--out", out), "no packed table in it")
    assert_one_line(mixfed("pack", path, "--client", "c", "--target", "y", "--out", out), "no column 'c'")
    assert not out.exists()
    fitted = mixfed("fit", tmp_path / "packed", "--clusters", 1, "--out", out)
    assert fitted.exit_code == 0, fitted.output
    predictions = tmp_path / "p.parquet"
    assert_one_line(
        mixfed("predict", out, tmp_path / "packed", "--out", predictions), "does not keep the order of rows"
    )
    other = tmp_path / "other"
    assert mixfed("pack", path, "--client", "client", "--target", "x_0", "--out", other).exit_code == 0
    assert_one_line(mixfed("assign", out, other, "--out", predictions), "with the target 'x_0', not 'y'")
    assert_one_line(mixfed("pack", path, "--client", "client", "--target", "y", "--out", out), "something else here")


LIMITED = """
import os, resource, sys
from pathlib import Path
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])  # BLAS has a buffer of 32 MB for each thread
from mixfed import AutoSettings, Clients, LocalPool, Store, fit_auto, pack

def fit(store):
    clients = Store.open(store)
    model = fit_auto(LocalPool(clients), clients.features, 2, AutoSettings(), seed=0).model
    model.assign(clients)
    return sorted(model.coef[:, 0].round(2).tolist())

job, folder = sys.argv[1], Path(sys.argv[2])
jobs = {
    "pack": lambda name: pack(folder / f"{name}.parquet", folder / name, "c", "y").size,
    "fit": lambda name: fit(folder / name),
    "load": lambda name: Clients.from_file(folder / f"{name}.parquet", "c", "y").n_rows,
}
jobs[job]("small")  # compiles, starts threads
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limit = used + int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
print(jobs[job]("large"))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of memory are of Linux")
def test_packing_and_fitting_need_less_memory_than_the_table(tmp_path):
    rng = np.random.default_rng(0)
    headroom = 100_000_000
    for name, rows in (("small", 20_000), ("large", 800_000)):
        owner = rng.integers(0, rows // 8, rows)
        x = rng.standard_normal((rows, 24))
        y = x[:, 0] * np.where(owner % 2, 2.0, -1.0) + 0.3 * rng.standard_normal(rows)
        order = np.argsort(owner // 100, kind="stable")  # almost sorted
        table = pa.table({"c": owner[order], "y": y[order]} | {f"x_{j}": x[order, j] for j in range(24)})
        small = {"row_group_size": 50_000, "data_page_size": 1 << 17, "use_dictionary": False}
        pq.write_table(table, tmp_path / f"{name}.parquet", **small)
    # Allocators that set address space aside, or keep what was freed, would hide what is used.
    quirks = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "1000000"}
    quirks["OPENBLAS_NUM_THREADS"] = "1"

    def limited(job):
        command = [sys.executable, "-c", LIMITED, job, str(tmp_path), str(headroom)]
        environment = os.environ | quirks
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)

    packed, fitted, loaded = limited("pack"), limited("fit"), limited("load")
    assert packed.returncode == 0, packed.stderr
    assert int(packed.stdout) > 1.5 * headroom
    assert fitted.returncode == 0, fitted.stderr
    assert fitted.stdout == "[-1.0, 2.0]\n"
    assert "MemoryError" in loaded.stderr  # in memory there is no room for it
