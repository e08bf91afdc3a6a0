"""Personal models on the command line."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from helpers.command_line import mixfed
from helpers.personal import stores
from mixfed import Model


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return stores(tmp_path_factory.mktemp("personal"))


def read_error(table, predictions):
    return float(np.sqrt(np.mean((predictions - pd.read_parquet(table / "future.parquet").sales) ** 2)))


def test_personal_models_predict_better_and_their_intervals_hold(table, tmp_path):
    columns = ["--client", "store", "--target", "sales", "--clusters", 2]
    errors = {}
    for name, more in (("plain", []), ("personal", ["--personal"])):
        out = tmp_path / name
        assert mixfed("fit", table / "past.parquet", *columns, *more, "--out", out, "--quiet").exit_code == 0
        wanted = ["--interval", 0.9, "--out", tmp_path / f"{name}.parquet"]
        done = mixfed("predict", out, table / "future.parquet", *wanted)
        assert done.exit_code == 0, done.output
        found = pd.read_parquet(tmp_path / f"{name}.parquet")
        errors[name] = read_error(table, found.prediction)
        truth = pd.read_parquet(table / "future.parquet").sales
        assert 0.84 < ((found.low <= truth) & (truth <= found.high)).mean() < 0.96
    assert errors["personal"] < 0.8 * errors["plain"]
    model = Model.load(tmp_path / "personal")
    assert model.personal
    assert np.sqrt(model.deviation[:, 0, 0]) == pytest.approx(0.6, rel=0.25)
    html = (tmp_path / "personal" / "report.html").read_text()
    assert "the pale bar holds the coefficients of 80 %" in html
    assert "mixed model" in _card(tmp_path)


def _card(tmp_path):
    assert mixfed("report", tmp_path / "personal", "--card", tmp_path / "card.md").exit_code == 0
    return (tmp_path / "card.md").read_text()


def test_a_history_tells_the_deviation_of_a_new_client(table, tmp_path):
    past = pd.read_parquet(table / "past.parquet")
    old = past.store < "s200"
    past[old].to_parquet(tmp_path / "old.parquet")
    past[~old].to_parquet(tmp_path / "new.parquet")
    columns = ["--client", "store", "--target", "sales", "--clusters", 2, "--personal"]
    assert mixfed("fit", tmp_path / "old.parquet", *columns, "--out", tmp_path / "m", "--quiet").exit_code == 0
    future = pd.read_parquet(table / "future.parquet")
    strangers = future.store >= "s200"
    errors = []
    for more in ([], ["--history", tmp_path / "new.parquet"]):
        wanted = ["--out", tmp_path / "p.csv", "--interval", 0.8]
        assert mixfed("predict", tmp_path / "m", table / "future.parquet", *more, *wanted).exit_code == 0
        found = pd.read_csv(tmp_path / "p.csv")
        assert (found.low < found.high).all()
        errors.append(np.sqrt(np.mean((found.prediction - future.sales)[strangers] ** 2)))
    assert errors[1] < 0.5 * errors[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "past.parquet", "--personal", "--recipe", "paper", "--clusters", 2], "--personal goes with --recipe"),
        (
            ["predict", "m", "future.parquet", "--out", "p.csv", "--interval", 90],
            "--interval 90: a probability between 0 and 1 is wanted, such as 0.9",
        ),
        (["compare", "past.parquet", "--share", 2], "share = 2 must be between 0 and 1"),
        (["compare", "past.parquet", "--time", "dya"], "no column 'dya'; did you mean 'day'"),
        (["compare", "past.parquet"], None),
    ],
)
def test_what_cannot_be_is_one_line(table, arguments, message, monkeypatch):
    monkeypatch.chdir(table)
    columns = ["--client", "store", "--target", "sales"]
    if arguments[0] == "predict" and not (table / "m").exists():
        assert mixfed("fit", "past.parquet", *columns, "--clusters", 1, "--out", "m", "--quiet").exit_code == 0
    more = [] if arguments[0] == "predict" or message is None else columns
    done = mixfed(*arguments, *more)
    assert done.exit_code == 2
    assert (message or "give --client and --target") in done.stderr
    assert len(done.stderr.splitlines()) == 1
