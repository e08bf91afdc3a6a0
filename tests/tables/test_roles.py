"""Which column is the client, the target and a feature."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest

from helpers.tables import sales_frame
from mixfed import Clients, DataError
from mixfed.core.names import INTERCEPT


def test_text_columns_are_not_features_but_numbers_kept_as_text_are():
    table = sales_frame().assign(
        town="Ghent", code=[str(i % 7) for i in range(40)], open=[i % 2 == 0 for i in range(40)]
    )
    assert Clients.from_frame(table, "store", "sales").features[:-1] == ("price", "size", "code", "open")


def test_text_of_polars_is_text():
    table = sales_frame().assign(
        store=[f"s{i % 7}" for i in range(40)], code=[str(i % 5) for i in range(40)], town="Ghent"
    )
    clients = Clients.from_frame(pl.from_pandas(table), "store", "sales")
    assert clients.features[:-1] == ("price", "size", "code")
    assert clients.digest == Clients.from_frame(table, "store", "sales").digest


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
    table = sales_frame().assign(when=pd.Timestamp("2024-01-01"), town="Ghent", hour=datetime.time(10, 30))
    with pytest.raises(DataError, match=message):
        Clients.from_frame(table, client, target, features)


def test_an_index_of_pandas_is_a_column_only_by_name():
    frame = pd.DataFrame({"who": np.arange(60) // 3, "y": np.arange(60.0), "x": np.arange(60) % 7}).rename_axis("row")
    for some in (frame, frame[frame.x > 0]):
        assert Clients.from_frame(some, "who", "y").features == ("x", INTERCEPT)
        assert Clients.from_frame(some.set_index("who"), "who", "y").features == ("x", INTERCEPT)
    named = Clients.from_frame(frame[frame.x > 0], "who", "y", ["x", "row"])
    assert named.features == ("x", "row", INTERCEPT)
    with pytest.raises(DataError, match="cannot be made a table"):
        Clients.from_frame(pl.DataFrame({"who": [1], "y": [1.0]}).lazy(), "who", "y")
