"""Ids of clients in every form that people have them in."""

from __future__ import annotations

import datetime
import uuid

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from helpers.clients import random_clients
from mixfed import DataError, MixedRegressor, simulate
from mixfed.model import assignment
from mixfed.model.assignment import Assignment
from mixfed.tables.ids import find_clients, in_form, joined

OWNERS = np.array([3, 1, 2, 3, 1, 9])
DAYS = OWNERS.astype("datetime64[D]")
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


PAIRS = [
    (OWNERS, OWNERS.astype(float)),
    (OWNERS, OWNERS.astype(str)),
    (OWNERS.astype(float), OWNERS.astype(str).astype(object)),
    (OWNERS + 2**60, (OWNERS + 2**60).astype(np.uint64)),
    (DAYS.astype("datetime64[us]"), DAYS.astype("datetime64[ns]")),
    (DAYS, DAYS.astype("datetime64[us]")),
    (OWNERS.astype("timedelta64[s]"), OWNERS.astype("timedelta64[s]").astype("timedelta64[ns]")),
    (np.array([str(uuid.UUID(int=int(one))) for one in OWNERS]),) * 2,
    (OWNERS, OWNERS.astype(float).astype(str)),
    (OWNERS.astype(str), OWNERS.astype(float).astype(str).astype(object)),
    (OWNERS.astype(float), np.array([f"{one},00" for one in OWNERS])),
]


@pytest.mark.parametrize(("fitted", "asked"), PAIRS, ids=lambda ids: str(ids.dtype))
@pytest.mark.parametrize("turned", [False, True])
def test_the_same_clients_are_found_whatever_their_ids_became(fitted, asked, turned):
    if turned:
        fitted, asked = asked, fitted
    fitted, asked = np.unique(fitted), np.unique(asked)
    known = Assignment(fitted, np.ones(4, int), np.tile([0.2, 0.8], (4, 1)))
    np.testing.assert_array_equal(known.places(asked), np.arange(4))
    newer = Assignment(asked[1:2], np.ones(1, int), np.array([[1.0, 0.0]]))
    both = known.updated(newer)
    assert len(both) == 4
    for ids in (fitted, asked):
        np.testing.assert_array_equal(both.probabilities[both.places(ids), 0], [0.2, 1.0, 0.2, 0.2])


def test_a_new_client_with_a_name_leaves_the_others_known():
    numbers = Assignment(np.array([1.0, 2.5, 2.0**53]), np.ones(3, int), np.ones((3, 1)))
    both = numbers.updated(Assignment(np.array(["new"]), np.ones(1, int), np.ones((1, 1))))
    for ids in (numbers.ids, numbers.ids.astype(object), ["1", "2.5", str(2**53)]):
        np.testing.assert_array_equal(both.places(np.asarray(ids)), [0, 1, 2])
    assert joined(np.array([2**60 + 1]), np.array([2**63], np.uint64)).tolist() == [str(2**60 + 1), str(2**63)]


@pytest.mark.parametrize("kind", [float, np.float32, str, "whole floats as text"])
def test_a_regressor_knows_clients_by_numbers_in_any_form(kind):
    made = simulate("mirror", n_clients=60, dim=2, seed=0)
    clients, groups = made.clients, np.repeat(made.clients.ids, made.clients.rows)
    fitted = MixedRegressor(2).fit(clients.phi, clients.y, groups=groups)
    now = groups.astype(float).astype(str) if kind == "whole floats as text" else groups.astype(kind)
    expected = fitted.predict(clients.phi, groups=groups)
    assert np.abs(expected - fitted.predict(clients.phi)).max() > 0.1
    np.testing.assert_array_equal(fitted.predict(clients.phi, groups=now), expected)
    history = fitted.assign(clients.phi, clients.y, groups=now)
    np.testing.assert_allclose(fitted.predict(clients.phi, groups=groups, history=history), expected)


def test_ids_that_differ_by_a_fraction_of_zero_are_told_apart_where_both_are_there():
    known = Assignment(np.array(["1", "1.0", "v2.0", "3.10"], object), np.ones(4, int), np.ones((4, 1)))
    asked = np.array(["1.0", "1", "v2.0", "v2", "2", "3.1", "3.10"], object)
    np.testing.assert_array_equal(known.places(asked), [1, 0, 2, -1, -1, -1, 3])


def shuffled(ids):
    return np.random.default_rng(0).permutation(ids)


@pytest.mark.parametrize(
    ("known", "asked"),
    [
        (shuffled(np.arange(-50, 50) * 3), np.arange(-200, 200)),
        (shuffled(np.arange(50)), np.arange(0, 60, 0.5)),
        (np.arange(0, 60, 0.5), np.array([3, 7, 999])),
        (np.array([2**53 + 1, 5]), np.array([2.0**53, 5.0, np.inf])),
        (np.array([2**24, 2**24 + 1]), np.array([2**24], np.float32)),
        (np.array([2**60 + 1, -1]), np.array([2**60 + 1, 2**64 - 1], np.uint64)),
        (np.array([0.1, 0.5]), np.array([0.1, 0.5], np.float32)),
        (shuffled(np.array([f"client {i}" for i in range(300)], object)), np.array(["client 7", "client", "x", ""])),
        (np.array(["b", "ä", "a", "\U0001f600"]), np.array(["ä", "\U0001f600", "z", "a"], object)),
        (np.array([], object), np.array(["a", "b"])),
        (np.array(["a"]), np.array([], object)),
    ],
    ids=range(11),
)
def test_clients_are_found_as_in_a_dictionary(known, asked):
    place = {client: i for i, client in enumerate(known.tolist())}
    expected = [place.get(client, -1) for client in asked.tolist()]
    assigned = Assignment(known, np.ones(len(known), int), np.ones((len(known), 1)))
    np.testing.assert_array_equal(assigned.places(asked), expected)
    np.testing.assert_array_equal(assigned.places(asked[::-1]), expected[::-1])


def test_known_clients_are_put_in_order_once(monkeypatch):
    known = Assignment(np.array(["b", "a", "c"], object), np.ones(3, int), np.ones((3, 1)))
    orders = []
    monkeypatch.setattr(assignment, "in_form", lambda ids, form: orders.append(ids is known.ids) or in_form(ids, form))
    for asked in ("a", "b", "x", "y"):
        known.places(np.array([asked]))
    assert sum(orders) == 2  # as they are, and without fractions of zero


def test_groups_of_another_shape_are_refused():
    clients = random_clients(0, [3, 3], 2)
    for groups, shape in (
        (np.zeros((6, 1)), r"\(6, 1\)"),
        ([1, 2], r"\(2,\)"),
        (pd.DataFrame({"a": range(6)}), "6, 1"),
    ):
        with pytest.raises((DataError, ValueError), match=f"{shape}|inconsistent"):
            MixedRegressor(1).fit(clients.phi, clients.y, groups=groups)
