"""Tables of a few clients, their files, and when two readers took the same clients from them."""

from __future__ import annotations

import numpy as np
import pandas as pd


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
