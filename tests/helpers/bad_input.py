"""A good table, what to do to it, and the commands that read it."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

COLUMNS = "--client store --target sales"
ROWS = 120


def good_table():
    rng = np.random.default_rng(0)
    store = np.repeat(np.arange(30), 4)
    price, size = rng.standard_normal((2, ROWS)).round(3)
    sales = (price * np.where(store % 2, 2.0, -1.0) + 0.1 * rng.standard_normal(ROWS)).round(3)
    return pd.DataFrame({"store": store, "price": price, "size": size, "sales": sales})


def text(name, content):
    """A file with this content."""
    return lambda work: (work / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def good(name, **changes):
    """The good table, with values changed: ``column=(row, value)``, or a whole column."""

    def make(work):
        table = good_table()
        for column, change in changes.items():
            if isinstance(change, tuple):
                table[column] = table[column].astype(object if isinstance(change[1], str) else float)
                table.loc[change[0], column] = change[1]
            else:
                table[column] = change
        if name.endswith(".parquet"):
            table.to_parquet(work / name, index=False)
        else:
            table.to_csv(work / name, index=False)

    return make


def cut(name, old, share=0.5):
    """A file that was cut off."""

    def make(work):
        whole = (work / old).read_bytes()
        (work / name).write_bytes(whole[: int(len(whole) * share)])

    return make


def model(**changes):
    """The model with other content."""

    def make(work):
        path = work / "result" / "model.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return make


def nothing(work):
    """The workspace as it is."""


def fit(data, more="--clusters 2 --out out"):
    return f"fit {data} {COLUMNS} {more}"


def pack(data):
    return f"pack {data} {COLUMNS} --out out"


def everything_in(folder):
    """All files with their content, and all folders."""
    return {path.relative_to(folder): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}
