"""Ids of clients in every form that people have them in."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from helpers.ids import DAYS, OWNERS
from mixfed import DataError
from mixfed.tables.ids import find_clients

TIMES = pd.Series(DAYS.astype("datetime64[ns]"))
SAME = {
    "numbers": OWNERS,
    "a list": OWNERS.tolist(),
    "floats": OWNERS.astype(float),
    "half floats": OWNERS.astype(np.float16),
    "long floats": OWNERS.astype(np.longdouble),
    "other bytes": OWNERS.astype(">i8"),
    "unsigned": OWNERS.astype(np.uint8),
    "nullable": pd.Series(OWNERS, dtype="Int64"),
    "of Arrow": pd.Series(OWNERS, dtype="int64[pyarrow]"),
    "categories": pd.Categorical(OWNERS),
    "an index": pd.Index(OWNERS),
    "polars": pl.Series(OWNERS),
    "a column": pa.chunked_array([OWNERS[:2], OWNERS[2:]]),
    "days": DAYS,
    "hours": DAYS.astype("datetime64[h]"),
    "months": OWNERS.astype("datetime64[M]"),
    "times": TIMES,
    "times of a zone": TIMES.dt.tz_localize("Europe/Berlin"),
    "nanoseconds": pd.Series(pd.to_datetime(OWNERS, unit="ns")),
    "nanoseconds of a zone": pd.Series(pd.to_datetime(OWNERS, unit="ns")).dt.tz_localize("UTC"),
    "nanoseconds in a list": list(pd.to_datetime(OWNERS, unit="ns")),
    "spans of days": OWNERS.astype("timedelta64[D]"),
    "periods": pd.Series(pd.PeriodIndex.from_ordinals(OWNERS, freq="M")),
    "dates": [datetime.date(2020, 1, day) for day in OWNERS.tolist()],
}


@pytest.mark.parametrize("name", SAME)
def test_ids_of_any_type_are_found_in_order(name):
    ids, owner = find_clients(SAME[name], "ids")
    assert len(ids) == 4
    if name != "periods":  # which are text, in its order
        np.testing.assert_array_equal(owner, [2, 0, 1, 2, 0, 3])
    np.testing.assert_array_equal(owner == owner[0], [True, False, False, True, False, False])


TEXT = ["b", "a", None, "b"]


@pytest.mark.parametrize(
    "ids",
    [
        TEXT,
        np.array(TEXT, object),
        ["b", "a", float("nan"), "b"],
        ["b", "a", "", "b"],
        pd.Series(TEXT),
        pd.Series(TEXT, dtype=object),
        pd.Series(["b", "a", np.nan, "b"], dtype=object),
        pd.Categorical(TEXT),
        pl.Series(TEXT),
        np.array(["b", "a", pd.NA, "b"], object),
        np.ma.masked_equal([2, 1, 0, 2], 0),
        np.array([2, 1, np.nan, 2]),
        pd.to_datetime(pd.Series(["2020-01-02", "2020-01-01", None, "2020-01-02"])),
    ],
    ids=str,
)
def test_a_missing_id_is_told_with_its_row(ids):
    with pytest.raises(DataError, match=r"ids: no client id in row 3 \(index 2\): give every row an id"):
        find_clients(ids, "ids")


@pytest.mark.parametrize(
    ("ids", "why"),
    [
        ([1, "1"], "mix types; make them all text or all numbers"),
        (np.array([1, "a"], object), "mix types"),
        ([10**30, 1 + 10**30], "values of type int cannot be client ids; make them text"),
        (["\ud800", "a"], "values of type str cannot be"),
        (np.array([1j, 2j]), "values of type complex128 cannot be"),
        ([(1, 2), (3, 4)], "must be one value, not a list"),
    ],
)
def test_ids_that_cannot_be_are_told_why(ids, why):
    with pytest.raises(DataError, match=why):
        find_clients(ids, "ids")
