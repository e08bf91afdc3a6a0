"""Text tables as people have them: however they are written, the same clients are taken from them."""

from __future__ import annotations

import bz2
import gzip

import pyarrow as pa
import pytest

from helpers.tables import assert_same, both, table
from mixfed import Clients, DataError, pack
from mixfed.tables.dialect import Dialect, sniff

pytestmark = pytest.mark.usefixtures("many_batches")


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


def test_latin_1_far_down_is_read_too(tmp_path):
    text = "c,town,x,y\n" + "".join(f"k{i % 90},Gent,{i},{i}.5\n" for i in range(3000)) + "kö,Köln,1,2\n"
    (tmp_path / "t.csv").write_bytes(text.encode("latin-1"))
    clients = both(tmp_path / "t.csv", "c", "y")
    assert clients.ids.tolist()[-1] == "kö"


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
