"""Tables as people have them: however they are written, both readers take the same clients from them."""

from __future__ import annotations

import bz2
import datetime
import gzip
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.command_line import mixfed
from helpers.tables import assert_same
from mixfed import Clients, DataError, pack
from mixfed.tables import sources as streams
from mixfed.tables.describe import guess, notes
from mixfed.tables.dialect import Dialect, sniff
from mixfed.tables.reading import planned, read_rows

ROWS = 200


@pytest.fixture(autouse=True)
def many_batches(monkeypatch):
    """Small tables are several batches, too."""
    monkeypatch.setattr(streams, "BATCH_ROWS", 37)
    monkeypatch.setattr(streams, "BLOCK_BYTES", 900)


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


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The clients of the table as a plain CSV file."""
    path = tmp_path_factory.mktemp("plain") / "t.csv"
    table().to_csv(path, index=False)
    return Clients.from_file(path, "store", "sales")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("t.csv", {"sep": ";"}),
        ("t.csv", {"sep": "\t"}),
        ("t.csv", {"sep": "|"}),
        ("t.csv", {"sep": ";", "decimal": ","}),
        ("t.tsv", {"sep": "\t"}),
        ("t.tsv", {"sep": "\t", "decimal": ","}),
        ("t.txt", {"sep": "\t"}),
        ("t.txt", {}),
        ("T.CSV", {}),
        ("t.csv", {"quoting": 1}),
        ("t.csv", {"sep": ";", "quoting": 1, "decimal": ","}),
        ("t.csv", {"encoding": "utf-8-sig"}),
        ("t.csv", {"encoding": "utf-8-sig", "sep": ";"}),
        ("t.csv", {"encoding": "latin-1"}),
        ("t.csv", {"encoding": "utf-16"}),
        ("t.csv", {"lineterminator": "\r\n", "sep": ";"}),
        ("t.csv", {"index": True}),
    ],
)
def test_a_table_is_the_same_however_it_is_written(tmp_path, plain, name, options):
    table().to_csv(tmp_path / name, **({"index": False} | options))
    clients = both(tmp_path / name)
    assert clients.features == ("open", "price", "count", "(intercept)")
    assert_same(clients, plain)


@pytest.mark.parametrize("ending", ["gz", "bz2", "zst", "GZ"])
def test_a_table_may_be_compressed(tmp_path, plain, ending):
    content = table().to_csv(index=False).encode()
    path = tmp_path / f"t.csv.{ending}"
    packers = {"gz": gzip.compress, "bz2": bz2.compress, "GZ": gzip.compress}
    if ending == "zst":
        with pa.CompressedOutputStream(str(path), "zstd") as file:
            file.write(content)
    else:
        path.write_bytes(packers[ending](content))
    assert_same(both(path), plain)


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("a,b\n1,2\n", Dialect()),
        ("a;b\n1;2\n", Dialect(";")),
        ("a;b\n1;2,5\n", Dialect(";", ",")),
        ("a;b\n1;-2,5e3\n2;7\n", Dialect(";", ",")),
        ("a;b\n1;2,5\n2;2.5\n", Dialect(";")),  # both: not safe
        ("a;b\n1;1,234\n2;5,678\n", Dialect(";")),  # thousands, or not
        ("a;b\n1;0,234\n2;5,678\n", Dialect(";", ",")),  # not thousands
        ("a;b\n1;01.02.2024\n2;2,5\n", Dialect(";", ",")),  # days with points are no numbers
        ('"x,y";b\n1;2\n', Dialect(";")),
        ("price, EUR;size, m\n1,5;2,5\n3,5;1,5\n", Dialect(";", ",")),
        ('a,b\n"1;2;3;4",2\n"5;6;7;8",2\n', Dialect()),
        ("a,b;c\n1,x\n2,y\n", Dialect()),
        ("a\tb c\n1\t2\n", Dialect("\t")),
        ("a\n1\n", Dialect()),
        ('a,b\n"x\ny",2\n', Dialect(broken_lines=True)),
        ("a,b\n" + "1,2\n" * 20_000, Dialect()),
        ("a;b\n", Dialect(";")),
    ],
)
def test_separators_and_decimal_signs_are_told_from_the_first_lines(tmp_path, text, dialect):
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    assert sniff(tmp_path / "t.csv") == dialect


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


def test_latin_1_far_down_is_read_too(tmp_path):
    text = "c,town,x,y\n" + "".join(f"k{i % 90},Gent,{i},{i}.5\n" for i in range(3000)) + "kö,Köln,1,2\n"
    (tmp_path / "t.csv").write_bytes(text.encode("latin-1"))
    clients = both(tmp_path / "t.csv", "c", "y")
    assert clients.ids.tolist()[-1] == "kö"


@pytest.mark.parametrize("odd", ["town", "client"])
@pytest.mark.parametrize("before", [3000, 200_000])  # rows: more than is looked at first, more than a batch
def test_latin_1_far_down_is_told_and_its_text_is_text(tmp_path, before, odd):
    lines = [f"k{i % 90},Gent,{i},{i}.5" for i in range(before)]
    lines.append("k1,Köln,1,2" if odd == "town" else "kö,Gent,1,2")
    path, text = tmp_path / "t.csv", "\n".join(["client,town,x,y", *lines])
    told = "t.csv: not UTF-8, read as LATIN-1: save it as UTF-8 if letters look wrong"
    left_out = "left out: 'town' (Gent): not numbers"
    for read in (Clients.from_file, lambda path, *columns: pack(path, tmp_path / "packed", *columns)):
        path.unlink(missing_ok=True)
        path.write_bytes(text.encode("latin-1"))
        held = read(path, "client", "y")
        if odd == "client" or read is Clients.from_file or before == 3000:  # else nobody has read that letter
            assert notes(path, "client", "y", held) == (told, left_out)
        assert ("kö" in held.ids) == (odd == "client")
        assert [column.example for column in guess(path).columns] == ["k0", "Gent", "0", "0.5"]
        path.write_bytes(text.encode("utf-8"))
        assert notes(path, "client", "y", read(path, "client", "y")) == (left_out,)


def test_an_empty_column_of_any_file_is_left_out(tmp_path):
    frame = pd.DataFrame({"c": np.arange(90) % 9, "y": np.arange(90.0), "x": np.arange(90.0), "void": np.nan})
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=20)
    frame.to_csv(tmp_path / "t.csv", index=False)
    for name in ("t.parquet", "t.csv"):
        assert both(tmp_path / name, "c", "y").features == ("x", "(intercept)")


def test_rows_of_a_file_with_decimal_commas_and_a_stray_word_are_read_as_text(tmp_path):
    lines = [f"k{i % 9};{i},5;{i},25;w" for i in range(400)]
    (tmp_path / "t.csv").write_text("c;x;y;w\n" + "\n".join([*lines, "k1; 7,5;3,0;w"]) + "\n")
    clients = both(tmp_path / "t.csv", "c", "y")
    assert {7.5, 399.5} <= set(clients.phi[:, 0].tolist())
    (tmp_path / "t.csv").write_text("c;x;y;w\n" + "\n".join([*lines, "k1;1.234,5;3,0;w"]) + "\n")
    for read in (Clients.from_file, lambda path, *columns: pack(path, tmp_path / "packed", *columns)):
        with pytest.raises(
            DataError, match=r"'x' has '1.234,5' in row 401 \(index 400\), .*: write numbers like 1234.5"
        ):
            read(tmp_path / "t.csv", "c", "y")


def test_notes_say_what_was_noticed(tmp_path):
    def told(columns, client="store", **options):
        columns.to_csv(tmp_path / "t.csv", **({"index": False} | options))
        return notes(tmp_path / "t.csv", client, "sales", Clients.from_file(tmp_path / "t.csv", client, "sales"))

    whole = table()
    assert told(whole.assign(void=""), sep=";", decimal=",", encoding="latin-1", index=True) == (
        "t.csv: read as columns parted by semicolons with decimal commas",
        "t.csv: not UTF-8, read as LATIN-1: save it as UTF-8 if letters look wrong",
        "left out: '' (row numbers, by the name)",
        f"left out: 'town' ({whole.town[0]}): not numbers",
        "left out: 'day' (dates: to use them as days since 1970-01-01, name them in --features)",
        "left out: 'void' (empty)",
    )
    numbers = whole[["store", "price", "sales"]]
    assert told(numbers) == ()
    (said,) = told(numbers.assign(store="A"))
    assert said.startswith("column 'store' has one value only")
    (said,) = told(numbers.assign(store=range(ROWS)))
    assert said.startswith("column 'store' is different in every row")


def test_fit_shows_notes_unless_json_is_asked_for(tmp_path):
    table().to_csv(tmp_path / "t.csv", index=False)
    command = ("fit", tmp_path / "t.csv", "--client", "store", "--target", "sales", "--clusters", 1, "--out")
    assert "left out: 'town'" in mixfed(*command, tmp_path / "a").stdout
    assert "left out" not in mixfed(*command, tmp_path / "b", "--json").stdout
    assert "left out" not in mixfed(*command, tmp_path / "c", "--features", "price").stdout


@pytest.mark.parametrize(
    ("columns", "client", "target"),
    [
        ({"patient": np.arange(90) // 3, "age": np.arange(90) % 7, "dose": np.arange(90) / 7}, "patient", "dose"),
        ({"y": np.arange(90) / 7, "x": np.arange(90) / 3, "userId": ["a", "b", "c"] * 30}, "userId", "y"),
        ({"town": [f"t{i % 20}" for i in range(90)], "x": np.arange(90) / 7, "z": np.arange(90) / 3}, "town", "z"),
        ({"row_id": np.arange(90), "x": np.arange(90) / 7, "price": np.arange(90)}, None, "price"),
        ({"a": ["x", "y"] * 45, "b": np.arange(90) % 12, "c": 1.0}, None, "b"),
    ],
)
def test_client_and_target_are_guessed(tmp_path, columns, client, target):
    pd.DataFrame(columns).to_csv(tmp_path / "t.csv", index=False)
    pd.DataFrame(columns).to_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        found = guess(tmp_path / name)
        assert (found.client, found.target) == (client, target)
        assert [column.name for column in found.columns] == list(columns)
        assert found.whole


def test_predict_reads_rows_without_a_target(tmp_path):
    table().drop(columns="sales").to_csv(tmp_path / "t.csv", sep="\t", index=False)
    rows = read_rows(*planned(tmp_path / "t.csv", "store", None, ["price", "open"]), intercept=True)
    assert rows.y is None
    assert rows.phi.shape == (ROWS, 2)
