"""Files as they are read, and what is said of bad ones."""

from __future__ import annotations

import gzip

import pyarrow as pa
import pytest

from helpers.tables import ROWS, table
from mixfed import Clients, DataError
from mixfed.tables.reading import planned, read_rows


@pytest.mark.usefixtures("many_batches")
def test_predict_reads_rows_without_a_target(tmp_path):
    table().drop(columns="sales").to_csv(tmp_path / "t.csv", sep="\t", index=False)
    rows = read_rows(*planned(tmp_path / "t.csv", "store", None, ["price", "open"]), intercept=True)
    assert rows.y is None
    assert rows.phi.shape == (ROWS, 2)


def _write(path, text):
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", "c,y,x\n" + "1,2,3\n" * 16 + "1,2,\n", r"t.csv: column 'x' has a missing value in row 17"),
        ("t.csv", "c,y,x\n" + "1,2,3\n" * 4 + "1,2,oops\n", r"'x' has 'oops' in row 5 \(index 4\)"),
        ("t.csv", "c,y,x\n1,two,3\n1,3,4\n", r"'y' has 'two' in row 1"),
        ("t.csv", "c,y,x\n,2,3\n1,3,4\n", r"column 'c': no client id in row 1"),
        ("t.csv", "c,y,x\na,2,3\n,3,4\n", r"column 'c': no client id in row 2"),
        ("t.csv", "c,y,(intercept)\n1,2,3\n", "rename it"),
        ("t.csv", "c,y,x,x\n1,2,3,4\n", "column 'x' occurs twice"),
        ("t.csv", "c,y,x\n", "no rows"),
        ("t.csv", "", "empty"),
        (
            "t.csv",
            "c:y:x\n1:2:3\n",
            "no column 'c'; .*the only column is 'c:y:x': are the columns parted by something else",
        ),
        ("t.csv", "c,y,town\n1,2,Ghent\n", "no numeric column is left"),
        ("t.csv", "c,y,x\n1,2,3\n1,2\n", r"row 2 \(index 1\) has 2 fields, the header has 3 \('1,2'\)"),
        ("t.parquet", "not parquet", "cannot be read"),
        ("t.json", "c,y,x\n", "unknown kind of file"),
        ("t.xlsx", "PK", "save it as CSV"),
    ],
)
def test_bad_files_are_refused_by_name(tmp_path, name, content, message):
    path = _write(tmp_path / name, content)
    with pytest.raises(DataError, match=message):
        Clients.from_file(path, "c", "y")


def test_missing_files_folders_and_broken_archives_are_refused(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        Clients.from_file(tmp_path / "none.csv", "c", "y")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match="a folder"):
        Clients.from_file(tmp_path / "folder.csv", "c", "y")
    whole = gzip.compress(b"c,y,x\n" + b"1,2,3\n" * 1000)
    (tmp_path / "cut.csv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"cut.csv.gz: cannot be read"):
        Clients.from_file(tmp_path / "cut.csv.gz", "c", "y")


def test_ids_of_a_csv_file_keep_their_leading_zeros(tmp_path):
    (tmp_path / "t.csv").write_text("c,y,x\n007,1,2\n7,3,4\n12,5,6\n")
    assert Clients.from_file(tmp_path / "t.csv", "c", "y").ids.tolist() == ["007", "12", "7"]
    (tmp_path / "u.csv").write_text("c,y,x\n10,1,2\n7,3,4\n")
    assert Clients.from_file(tmp_path / "u.csv", "c", "y").ids.tolist() == [7, 10]


def test_numbers_too_large_for_a_double_are_rounded(tmp_path):
    (tmp_path / "t.csv").write_text(f"c,y,x\n1,1,{2**60 + 1}\n2,2,3\n")
    assert Clients.from_file(tmp_path / "t.csv", "c", "y").phi[0, 0] == 2.0**60


def test_ids_that_are_lists_are_refused():
    with pytest.raises(DataError, match="one value"):
        Clients.from_frame(pa.table({"c": [[1], [2]], "y": [1.0, 2.0], "x": [1.0, 3.0]}), "c", "y")


def test_a_word_far_down_in_a_column_of_numbers_is_found(tmp_path):
    rows = [f"{i % 50},{i}.5,{i}\n" for i in range(100_000)]
    rows[90_000] = "7,1.0,oops\n"
    (tmp_path / "t.csv").write_text("c,y,x\n" + "".join(rows))
    with pytest.raises(DataError, match=r"t.csv: column 'x' has 'oops' in row 90001 \(index 90000\)"):
        Clients.from_file(tmp_path / "t.csv", "c", "y")
