"""What is told of a table, and what is guessed."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pytest

from helpers.tables import ROWS, table
from mixfed import Clients, pack
from mixfed.tables.describe import guess, notes

pytestmark = pytest.mark.usefixtures("many_batches")


@pytest.mark.slow
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


def test_notes_propose_a_family_for_classes_and_counts_alone(tmp_path):
    rng, n = np.random.default_rng(0), 400
    owner, x = np.repeat(np.arange(n // 4), 4), rng.standard_normal((n, 2))

    def told(y, family="gaussian"):
        pa.csv.write_csv(pa.table({"who": owner, "x": x[:, 0], "y": y}), tmp_path / "t.csv")
        taken = Clients.from_file(tmp_path / "t.csv", "who", "y")
        return notes(tmp_path / "t.csv", "who", "y", taken, family=family)

    classes = (x[:, 0] > 0).astype(float)
    assert "two values only" in told(classes)[0]
    assert told(classes)[0].endswith("--family binomial fits probabilities")
    assert told(1 + classes)[0].endswith("not as a class")
    assert told(classes, "binomial") == ()
    counts = rng.poisson(np.exp(x[:, 0])).astype(float)
    assert told(counts)[0].endswith("--family poisson fits rates")
    assert told(counts, "poisson") == ()
    marks, pounds = rng.integers(3, 11, n).astype(float), np.round(rng.normal(900, 200, n))
    marks[0] = 0.0
    for other in (marks, pounds, counts + 0.5, -counts):
        assert told(other) == ()
