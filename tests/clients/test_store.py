"""Packed clients on disk: the same clients as in memory, read a block at a time."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from helpers.tables import assert_same, frame, written
from mixfed import Clients, DataError, SettingsError, Store, pack
from mixfed.clients.store import FILES, open_clients
from mixfed.core.threads import side_by_side
from mixfed.exchange.journal import fingerprint
from mixfed.tables import sources as streams

pytestmark = pytest.mark.usefixtures("many_batches")


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


def test_a_store_is_replaced_whole_and_read_on_as_it_was(tmp_path):
    first, second = written(frame(0), tmp_path / "a.parquet"), written(frame(1), tmp_path / "b.parquet")
    old = pack(first, tmp_path / "packed", "store", "sales")
    (tmp_path / "packed.partial").mkdir()  # of a process that was killed
    (tmp_path / "packed.partial" / "phi.npy").write_bytes(b"half")
    new = pack(second, tmp_path / "packed", "store", "sales")
    assert_same(new, Clients.from_file(second, "store", "sales"))
    assert_same(old, Clients.from_file(first, "store", "sales"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.parquet", "b.parquet", "packed"]


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
