"""What a column holds: numbers, words, dates, times, switches or ids."""

from __future__ import annotations

import datetime
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.command_line import mixfed
from helpers.tables import ROWS, assert_same, both, table
from mixfed import Clients, DataError, pack

pytestmark = pytest.mark.usefixtures("many_batches")


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        (pa.binary(), str.encode),
        (pa.binary(3), str.encode),
        (pa.large_binary(), str.encode),
        (pa.string_view(), str),
        (pa.uuid(), lambda name: name.ljust(16).encode()),
    ],
    ids=["binary", "fixed", "large", "view", "uuid"],
)
def test_ids_that_are_bytes_or_uuids_become_text(plain, tmp_path, kind, written):
    frame = pa.Table.from_pandas(table())
    ids = pa.array([written(name) for name in table()["store"]], kind)
    pq.write_table(frame.set_column(0, "store", ids), tmp_path / "t.parquet")
    clients = both(tmp_path / "t.parquet")
    np.testing.assert_array_equal(clients.y, plain.y)
    assert clients.ids[0] == ("53303020-2020-2020-2020-202020202020" if kind == pa.uuid() else plain.ids[0])
    listed = mixfed("fit", tmp_path / "t.parquet", "--out", tmp_path / "r")
    assert "client?" in listed.stdout, listed.output


def test_ids_that_are_bytes_but_no_text_are_refused(tmp_path):
    frame = pa.Table.from_pandas(table())
    ids = pa.array([name.encode("utf-16") for name in table()["store"]], pa.binary())
    pq.write_table(frame.set_column(0, "store", ids), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"t.parquet: column 'store': the client ids are bytes that are no text: write"):
        Clients.from_file(tmp_path / "t.parquet", "store", "sales")


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("kind", [pa.timestamp("ns", "Europe/Berlin"), pa.duration("ns"), pa.time64("ns")], ids=str)
def test_times_to_the_nanosecond_are_shown_and_left_out(tmp_path, kind):
    frame = pa.Table.from_pandas(table()).append_column("when", pa.array(np.arange(17, 17 + ROWS), kind))
    pq.write_table(frame, tmp_path / "t.parquet")
    # In a process of its own: where there is pandas, Arrow asks it for times that Python has no form for.
    for more in ((), ("--client", "store", "--target", "sales", "--clusters", "2")):
        command = [sys.executable, "-m", "mixfed", "fit", tmp_path / "t.parquet", "--out", tmp_path / "r", *more]
        result = subprocess.run(command, capture_output=True, text=True)
        assert result.returncode == (0 if more else 2), result.stderr
        assert "when" in result.stdout + result.stderr


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["true", "false"], [1, 0]),
        (["TRUE", "False"], [1, 0]),
        (["yes", "no"], [1, 0]),
        (["Yes", "0"], [1, 0]),
        (["1", "0"], [1, 0]),
        (["2.5", " 7"], [2.5, 7]),
        (["1e3", "-4"], [1000, -4]),
    ],
)
def test_what_may_be_a_number_is_a_feature(tmp_path, values, expected):
    frame = pd.DataFrame({"c": [f"k{i % 9}" for i in range(100)], "x": values * 50, "y": np.arange(100)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    clients = both(tmp_path / "t.csv", "c", "y")
    assert_same(Clients.from_frame(frame, "c", "y"), clients)  # text in a frame is read alike
    order = np.argsort(clients.y)
    np.testing.assert_array_equal(clients.phi[order, 0], expected * 50)


@pytest.mark.parametrize("values", [["1,234", "5,678.50"], ["1.234.567", "2.345.678"]])
def test_numbers_with_parted_thousands_are_not_left_out_unseen(tmp_path, values):
    frame = pd.DataFrame({"c": ["a", "b"] * 20, "price": values * 20, "x": 1.5, "y": np.arange(40)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    for read in (Clients.from_file, lambda path, *names: pack(path, tmp_path / "packed", *names)):
        with pytest.raises(DataError, match=r"column .price. has .1.234.*write numbers like 1234.5"):
            read(tmp_path / "t.csv", "c", "y")


@pytest.mark.parametrize(
    ("values", "later"),
    [
        (["yes", "no"], "maybe"),
        (["yes", "no"], "12"),
        (["NO", "DE"], "SE"),
        (["", "late delivery", "", ""], "again"),
        (["", "", "", ""], ""),
        (["NA", "NaN"], "null"),
        (["10:30", "11:30"], "12:00"),
        (["2024-01-01", "2024-01-02"], "2024-01-03"),
        (["2024-01-01T10:00:00Z", "2024-01-02T10:00:00Z"], "2024-01-03T10:00:00Z"),
        (["2024-01-01", "2024-01-02"], "soon"),
    ],
)
def test_what_is_not_a_number_is_left_out(tmp_path, values, later):
    count = 200
    column = [*(values * count)[: count - 1], later]
    frame = pd.DataFrame({"c": [f"k{i % 9}" for i in range(count)], "w": column, "x": 1.5, "y": np.arange(count)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert both(tmp_path / "t.csv", "c", "y").features == ("x", "(intercept)")


@pytest.mark.parametrize("later", ["oops", "yes", "2024-01-01"])
def test_a_word_among_numbers_is_refused_by_both_readers(tmp_path, later):
    column = [str(i % 7 + 0.5) for i in range(399)] + [later]
    frame = pd.DataFrame({"c": [f"k{i % 9}" for i in range(400)], "x": column, "y": np.arange(400)})
    path = tmp_path / "t.csv"
    frame.to_csv(path, index=False)
    for read in (lambda: Clients.from_file(path, "c", "y"), lambda: pack(path, tmp_path / "packed", "c", "y")):
        with pytest.raises(
            DataError, match=rf"column 'x' has '{later}' in row 400 \(index 399\), which is not a number"
        ):
            read()


def test_a_named_date_is_days_since_1970_in_every_file(tmp_path):
    days = [datetime.date(2024, 1, 1) + datetime.timedelta(i % 50) for i in range(100)]
    expected = np.array([(day - datetime.date(1970, 1, 1)).days for day in days], dtype=float)
    plain = pd.DataFrame({"c": np.arange(100) % 9, "y": np.arange(100), "day": days})
    plain.to_csv(tmp_path / "t.csv", index=False)
    plain.to_parquet(tmp_path / "t.parquet")
    plain.assign(day=pd.to_datetime(plain.day)).to_parquet(tmp_path / "u.parquet")
    plain.assign(day=plain.day.astype(str)).to_parquet(tmp_path / "v.parquet")
    pq.write_table(pa.table({"c": plain.c, "y": plain.y, "day": pa.array(days, pa.date64())}), tmp_path / "w.parquet")
    for name in ("t.csv", "t.parquet", "u.parquet", "v.parquet", "w.parquet"):
        clients = both(tmp_path / name, "c", "y", ["day"])
        np.testing.assert_array_equal(clients.phi[np.argsort(clients.y), 0], expected)
    hours = pd.to_datetime(plain.day) + pd.Timedelta(hours=6)
    for form in ("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S.000"):
        plain.assign(day=hours.dt.strftime(form)).to_csv(tmp_path / "t.csv", index=False)
        clients = both(tmp_path / "t.csv", "c", "y", ["day"])
        np.testing.assert_allclose(clients.phi[np.argsort(clients.y), 0], expected + 0.25, rtol=1e-14)


def test_dates_and_switches_are_the_same_at_predict(tmp_path):
    table().to_csv(tmp_path / "t.csv", index=False)
    table().iloc[150:].to_csv(tmp_path / "new.csv", index=False, sep=";", decimal=",")
    columns = ("--client", "store", "--target", "sales", "--features", "price,day,open", "--clusters", 1)
    assert mixfed("fit", tmp_path / "t.csv", *columns, "--out", tmp_path / "out").exit_code == 0
    for name in ("t", "new"):
        made = mixfed("predict", tmp_path / "out", tmp_path / f"{name}.csv", "--out", tmp_path / f"{name}.parquet")
        assert made.exit_code == 0, made.output
    whole, part = (pd.read_parquet(tmp_path / f"{name}.parquet").prediction for name in ("t", "new"))
    np.testing.assert_array_equal(whole.to_numpy()[150:], part)


def test_an_empty_column_of_any_file_is_left_out(tmp_path):
    frame = pd.DataFrame({"c": np.arange(90) % 9, "y": np.arange(90.0), "x": np.arange(90.0), "void": np.nan})
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=20)
    frame.to_csv(tmp_path / "t.csv", index=False)
    for name in ("t.parquet", "t.csv"):
        assert both(tmp_path / name, "c", "y").features == ("x", "(intercept)")


def test_a_category_that_is_no_number_is_found():
    frame = pd.DataFrame({"c": [1, 1, 2, 2], "y": [1.0, 2.0, 3.0, 4.0], "x": pd.Categorical(["1", "2", "x", "4"])})
    with pytest.raises(
        DataError, match=r"frame: column 'x' has 'x' in row 3 \(index 2\), which is not a number: mend it"
    ):
        Clients.from_frame(frame, "c", "y", ["x"])
