"""The comparison on the command line."""

from __future__ import annotations

import json

import pytest

from helpers.command_line import mixfed
from helpers.personal import stores


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return stores(tmp_path_factory.mktemp("personal"))


def test_compare_tells_who_predicts_best(table, tmp_path):
    columns = ["--client", "store", "--target", "sales", "--features", "price,ads", "--clusters", 2, "--splits", 2]
    done = mixfed("compare", table / "all.parquet", *columns, "--out", tmp_path / "out", "--json")
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    errors = {one["rival"]: one["rmse"] for one in printed["outcomes"]}
    assert min(errors, key=errors.get) == "kinds + personal"
    assert json.loads((tmp_path / "out" / "comparison.json").read_text())["outcomes"][0] == printed["outcomes"][0]
    picture = (tmp_path / "out" / "comparison.svg").read_text()
    assert f">{errors['kinds + personal']:.4g}</text>" in picture
    assert picture.count('class="bar"') + picture.count('class="best"') == 2 * len(errors)


def test_compare_can_hold_out_the_latest_rows(table):
    columns = ["--client", "store", "--target", "sales", "--features", "price,ads", "--clusters", 2]
    done = mixfed("compare", table / "all.parquet", *columns, "--time", "day")
    assert done.exit_code == 0, done.output
    assert "the mean of 1 split;" in " ".join(done.output.split())
    assert "kinds + personal" in done.output
