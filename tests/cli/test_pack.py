"""Packed tables on the command line."""

from __future__ import annotations

import json

import pytest

from helpers.command_line import assert_one_line, mixfed
from helpers.tables import mixed, written

pytestmark = pytest.mark.usefixtures("many_batches")


@pytest.mark.parametrize(
    ("ids", "single", "shuffled", "suffix", "more"),
    [
        ("numbers", False, False, ".parquet", ()),
        ("text", True, True, ".parquet", ("--no-intercept",)),
        ("text", False, True, ".csv.gz", ("--features", "x_2,x_0")),
    ],
)
def test_a_fit_on_a_store_writes_the_bytes_of_the_fit_on_its_file(tmp_path, ids, single, shuffled, suffix, more):
    path = written(mixed(0, ids, single=single, shuffled=shuffled), tmp_path / f"t{suffix}")
    columns = ("--client", "client", "--target", "y")
    features = more if "--features" in more else ()
    packed = mixfed("pack", path, *columns, *features, "--out", tmp_path / "packed")
    assert packed.exit_code == 0, packed.output
    n_features = 2 if features else 3
    assert f"3000 rows of 400 clients, {n_features} features, " in packed.stdout
    assert f"next: mixfed fit {tmp_path / 'packed'} --out result" in packed.stdout
    for data, named, out in ((path, columns, "file"), (tmp_path / "packed", (), "store")):
        result = mixfed("fit", data, *named, *more, "--clusters", 2, "--out", tmp_path / out)
        assert result.exit_code == 0, result.output
    for name in ("model.json", "clients.parquet"):
        assert (tmp_path / "store" / name).read_bytes() == (tmp_path / "file" / name).read_bytes()
    assert json.loads((tmp_path / "store" / "model.json").read_text())["target_column"] == "y"
    if not features:
        kinds = tmp_path / "kinds.parquet"
        assert mixfed("assign", tmp_path / "store", tmp_path / "packed", "--out", kinds).exit_code == 0
        assert kinds.read_bytes() == (tmp_path / "file" / "clients.parquet").read_bytes()
        out = tmp_path / "p.parquet"
        result = mixfed("predict", tmp_path / "store", path, "--history", tmp_path / "packed", "--out", out)
        assert "the kinds of 400 of 400 clients are known" in result.stdout


def test_the_command_line_says_in_one_line_what_is_wrong(tmp_path):
    path = written(mixed(0, "numbers", single=False, shuffled=False), tmp_path / "t.parquet")
    assert mixfed("pack", path, "--client", "client", "--target", "y", "--out", tmp_path / "packed").exit_code == 0
    out = tmp_path / "out"
    assert_one_line(mixfed("fit", path, "--out", out), "the columns are client, y, x_0, x_1, x_2")
    assert_one_line(mixfed("fit", tmp_path / "packed", "--target", "x_0", "--out", out), "not 'x_0': pack it again")
    assert_one_line(mixfed("fit", tmp_path, "--out", out), "no packed table in it")
    assert_one_line(mixfed("pack", path, "--client", "c", "--target", "y", "--out", out), "no column 'c'")
    assert not out.exists()
    fitted = mixfed("fit", tmp_path / "packed", "--clusters", 1, "--out", out)
    assert fitted.exit_code == 0, fitted.output
    predictions = tmp_path / "p.parquet"
    assert_one_line(
        mixfed("predict", out, tmp_path / "packed", "--out", predictions), "does not keep the order of rows"
    )
    other = tmp_path / "other"
    assert mixfed("pack", path, "--client", "client", "--target", "x_0", "--out", other).exit_code == 0
    assert_one_line(mixfed("assign", out, other, "--out", predictions), "with the target 'x_0', not 'y'")
    assert_one_line(mixfed("pack", path, "--client", "client", "--target", "y", "--out", out), "something else here")
