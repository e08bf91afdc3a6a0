"""Tables of a few clients, their files, and when two readers took the same clients from them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from mixfed import Clients, pack


def frame(seed, rows=300, clients=40, *, ids="numbers", single=False):
    rng = np.random.default_rng(seed)
    owner = rng.integers(0, clients, rows)
    kinds = {
        "numbers": owner * 7 - 50,
        "text": np.array([f"k{i}ü" for i in owner], dtype=object),
        "sorted": np.sort(owner),
    }
    table = pd.DataFrame({"store": kinds[ids], "sales": rng.standard_normal(rows), "town": "Ghent"})
    for name in ("price", "size"):
        table[name] = rng.standard_normal(rows).astype(np.float32 if single else np.float64)
    return table if single else table.assign(count=rng.integers(0, 5, rows))


def sales_frame(rows=40, seed=0):
    """Rows of stores, with two features."""
    rng = np.random.default_rng(seed)
    columns = {"store": rng.integers(0, 9, rows), "sales": rng.standard_normal(rows)}
    return pd.DataFrame(columns | {name: rng.standard_normal(rows) for name in ("price", "size")})


def written(table, path):
    if path.suffix == ".parquet":
        table.to_parquet(path, row_group_size=101)
    else:
        table.to_csv(path, index=False)
    return path


def assert_same(held, clients):
    """The same clients, array by array and block by block."""
    assert held.features == clients.features
    assert (held.dim, held.intercept, held.n_rows) == (clients.dim, clients.intercept, clients.n_rows)
    assert held.n_clients == clients.n_clients
    assert held.blocks == clients.blocks
    assert held.digest == clients.digest
    whole = held.block(0, held.n_clients)
    for name in ("ids", "offsets", "rows", "keys", "phi", "y"):
        theirs, ours = getattr(clients, name), getattr(whole, name)
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


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


ROWS = 200


def table(rows=ROWS):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "store": [f"S{i:02}" for i in rng.integers(0, 30, rows)],
            "town": np.where(rng.random(rows) < 0.5, "Köln, Süd", "Gent"),
            "day": pd.date_range("2024-01-01", periods=rows).strftime("%Y-%m-%d"),
            "open": np.where(rng.random(rows) < 0.5, "yes", "no"),
            "price": rng.standard_normal(rows).round(4),
            "count": rng.integers(0, 1000, rows),
            "sales": rng.standard_normal(rows).round(2),
        }
    )


def both(path, client="store", target="sales", features=None):
    """Read a file by both readers, which must agree."""
    clients = Clients.from_file(path, client, target, features)
    assert_same(pack(path, path.with_name("packed"), client, target, features), clients)
    return clients
