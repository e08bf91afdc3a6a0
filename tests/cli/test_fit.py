"""What `fit` writes and shows, and what it refuses."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from helpers.command_line import CONFIG, FILES, assert_one_line, fit_arguments, mixfed, write
from helpers.examples import COMMANDS
from mixfed import bottleneck_distance
from mixfed.families.registry import FAMILIES


def test_fit_writes_the_files_of_the_contract(table, fitted):
    out, printed = fitted
    assert {path.name for path in out.iterdir()} == set(FILES)
    model = json.loads((out / "model.json").read_text())
    assert model["format"] == "mixfed/2"
    assert model["features"] == ["x_0", "x_1", "x_2", "x_3"]
    assert (model["n_clusters"], model["loss"], model["recipe"], model["seed"]) == (2, "squared", "paper", 0)
    assert np.shape(model["coef"]) == (2, 4)
    assert [np.shape(model[name]) for name in ("intercept", "weights", "noise")] == [(2,)] * 3
    truth = json.loads(table.with_name("t.truth.json").read_text())
    assert bottleneck_distance(model["coef"], truth["coef"]) < 0.05
    clients = pd.read_parquet(out / "clients.parquet")
    assert list(clients.columns[:4]) == ["client", "rows", "cluster", "probability"]
    np.testing.assert_allclose(clients[["probability_0", "probability_1"]].max(axis=1), clients.probability)
    trace = pd.read_parquet(out / "trace.parquet")
    assert len(trace) == printed["rounds"]
    assert printed["coef"] == model["coef"]
    assert set(printed["seconds"]) == {"census", "fedmd", "fedx", "describe"}
    assert printed["exchanges"] > len(trace)


def test_the_default_recipe_needs_no_settings(table, tmp_path):
    result = mixfed("fit", table, "--client", "client", "--target", "y", "--out", tmp_path, "--json")
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    model = json.loads((tmp_path / "model.json").read_text())
    truth = json.loads(table.with_name("t.truth.json").read_text())
    assert printed["n_clusters"] == model["n_clusters"] == 2
    assert model["recipe"] == "auto"
    assert model["warnings"] == []
    assert bottleneck_distance(model["coef"], truth["coef"]) < 0.05
    assert np.abs(model["intercept"]).max() < 0.05
    assert np.shape(model["coef_error"]) == (2, 4)
    assert [entry["n_clusters"] for entry in model["details"]["choice"]] == [1, 2, 3, 4]
    trace = pd.read_parquet(tmp_path / "trace.parquet")
    assert trace.exchanges.tolist() == list(range(1, len(trace) + 1))


def test_a_text_summary_shows_the_kinds(table, tmp_path):
    result = mixfed(*fit_arguments(table, tmp_path / "out"))
    assert "2 kinds of client" in result.stdout
    assert str(tmp_path / "out") in result.stdout.replace("\n", "")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_recruits": 5000}, "lower n_recruits or rounds"),
        ({"pairs": 500}, "lower n_anchors, pairs or rounds"),
        ({"separation": 0.001}, "form 8 groups .* not the 2 clusters asked for: raise rounds"),
        ({"separation": 50.0}, "form 1 groups .* not the 2 clusters asked for: lower separation"),
        ({"n_anchor": 3}, "unknown key 'n_anchor'; did you mean 'n_anchors'"),
    ],
)
def test_settings_that_do_not_fit_are_one_line_and_exit_2(table, tmp_path, settings, message):
    lines = dict(line.split(" = ") for line in CONFIG.format(rounds=5).splitlines()[1:])
    lines |= {name: str(value) for name, value in settings.items()}
    config = write(tmp_path / "p.toml", "[paper]\n" + "\n".join(f"{a} = {b}" for a, b in lines.items()))
    arguments = list(fit_arguments(table, tmp_path / "out"))
    arguments[arguments.index("--config") + 1] = config
    assert_one_line(mixfed(*arguments), message)
    assert not (tmp_path / "out" / "model.json").exists()


def test_bad_tables_are_one_line_and_exit_2(table, tmp_path):
    frame = pd.read_parquet(table)
    frame.loc[16, "x_2"] = np.nan
    frame.to_parquet(tmp_path / "nan.parquet")
    (tmp_path / "paper.toml").write_text(CONFIG.format(rounds=5))
    result = mixfed(*fit_arguments(tmp_path / "nan.parquet", tmp_path / "out"))
    assert_one_line(result, r"nan.parquet: column 'x_2' has a missing value in row 17 \(index 16\)")
    assert not (tmp_path / "out").exists()
    assert_one_line(mixfed(*fit_arguments(tmp_path / "none.parquet", tmp_path / "out")), "no such file")
    arguments = list(fit_arguments(table, tmp_path / "out"))
    arguments[arguments.index("--clusters") + 1] = "auto"
    assert_one_line(mixfed(*arguments), "--clusters K")
    assert_one_line(mixfed("assign", tmp_path, table, "--out", tmp_path / "k.parquet"), "no model here")


def test_an_output_that_cannot_be_written_is_one_line_and_exit_2(table, tmp_path):
    blocked = write(tmp_path / "file", "in the way")
    assert_one_line(mixfed(*fit_arguments(table, blocked)), "file: File exists")
    assert_one_line(mixfed(*fit_arguments(table, blocked / "below")), "Not a directory")
    assert_one_line(mixfed("simulate", "--clients", 5, "--out", tmp_path / "t.csv"), "must end in .parquet")


@pytest.mark.parametrize(("option", "word"), [("--family", "binomial"), ("--loss", "logistic")])
def test_a_family_is_named_by_its_name_or_its_loss(option, word, tmp_path):
    rng = np.random.default_rng(0)
    owner, x = np.repeat(np.arange(120), 8), rng.standard_normal(960)
    chance = 1.0 / (1.0 + np.exp(-np.where(owner % 2, 3.0, -3.0) * x))
    table = pd.DataFrame({"client": owner, "x": x, "bought": (rng.random(960) < chance).astype(int)})
    table.to_parquet(tmp_path / "rows.parquet")
    asked = ("fit", tmp_path / "rows.parquet", "--client", "client", "--target", "bought", "--clusters", "2")
    done = mixfed(*asked, "--out", tmp_path / "numbers")
    assert "--family binomial fits probabilities" in " ".join(done.output.split())
    done = mixfed(*asked, option, word, "--out", tmp_path / "result")
    assert done.exit_code == 0, done.output
    assert "fitted as a number" not in done.output
    model = json.loads((tmp_path / "result" / "model.json").read_text())
    assert (model["family"], model["loss"], model["noise"]) == ("binomial", "logistic", None)
    assert np.abs(np.sort(np.ravel(model["coef"])) - [-3.0, 3.0]).max() < 0.8
    done = mixfed("predict", tmp_path / "result", tmp_path / "rows.parquet", "--out", tmp_path / "chances.csv")
    assert done.exit_code == 0, done.output
    found = np.loadtxt(tmp_path / "chances.csv", skiprows=1)
    assert found.min() > 0.0
    assert found.max() < 1.0
    done = mixfed(*asked, option, word, "--personal", "--out", tmp_path / "none")
    assert done.exit_code == 2
    assert "personal models are for the family gaussian" in done.stderr


def test_weights_and_exposures_are_columns_that_the_model_remembers(tmp_path):
    rng = np.random.default_rng(1)
    owner, x, days = np.repeat(np.arange(150), 8), rng.standard_normal(1200), rng.uniform(1, 30, 1200)
    visits = rng.poisson(days * np.exp(np.where(owner % 2, 0.8, -0.8) * x - 1.0))
    table = pd.DataFrame({"client": owner, "x": x, "days": days, "often": 2, "visits": visits})
    table.to_csv(tmp_path / "rows.csv", index=False)
    asked = ("fit", tmp_path / "rows.csv", "--client", "client", "--target", "visits", "--clusters", "2")
    done = mixfed(*asked, "--family", "poisson", "--exposure", "days", "--weights", "often", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    model = json.loads((tmp_path / "out" / "model.json").read_text())
    assert (model["features"], model["exposure_column"]) == (["x"], "days")
    assert np.abs(np.sort(np.ravel(model["coef"])) - [-0.8, 0.8]).max() < 0.05
    assert np.abs(np.array(model["intercept"]) + 1.0).max() < 0.05
    # Every row counts twice: as in the table with all rows given twice.
    pd.concat([table, table]).drop(columns="often").to_csv(tmp_path / "twice.csv", index=False)
    asked = ("fit", tmp_path / "twice.csv", *asked[2:], "--family", "poisson", "--exposure", "days")
    assert mixfed(*asked, "--out", tmp_path / "twice").exit_code == 0
    twice = json.loads((tmp_path / "twice" / "model.json").read_text())
    for part in ("coef", "intercept", "coef_error"):
        np.testing.assert_allclose(model[part], twice[part], rtol=1e-6)
    done = mixfed("predict", tmp_path / "out", tmp_path / "rows.csv", "--out", tmp_path / "rates.csv")
    assert done.exit_code == 0, done.output
    found = np.loadtxt(tmp_path / "rates.csv", skiprows=1)
    assert np.corrcoef(found, days * np.exp(np.where(owner % 2, 0.8, -0.8) * x))[0, 1] > 0.98
    done = mixfed("predict", tmp_path / "out", write(tmp_path / "no.csv", "client,x\n1,0.5\n"), "--out", "p.csv")
    assert done.exit_code == 2
    assert "days" in done.stderr


def test_the_family_is_found_where_it_is_left_open(tmp_path):
    rng = np.random.default_rng(2)
    owner, x = np.repeat(np.arange(100), 8), rng.standard_normal(800)
    visits = rng.poisson(np.exp(np.where(owner % 2, 0.8, -0.8) * x))
    pd.DataFrame({"client": owner, "x": x, "visits": visits}).to_csv(tmp_path / "rows.csv", index=False)
    asked = ("fit", tmp_path / "rows.csv", "--client", "client", "--target", "visits", "--family", "auto")
    done = mixfed(*asked, "--clusters", "2", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "The target is taken to be poisson, of the lowest BIC: gaussian" in " ".join(done.output.split())
    assert json.loads((tmp_path / "out" / "model.json").read_text())["family"] == "poisson"


def test_every_family_can_be_asked_for():
    named = {word for family in FAMILIES.values() for word in (family.name, family.loss)}
    option = next(option for option in COMMANDS["fit",].params if option.name == "family")
    assert set(option.type.choices) == {"auto", *named}
    assert option.opts == ["--family", "--loss"]


def test_the_ridge_can_be_turned_off_and_raised(tmp_path):
    rng = np.random.default_rng(3)
    owner, x = np.repeat(np.arange(60), 6), rng.standard_normal(360)
    y = (rng.random(360) < 1.0 / (1.0 + np.exp(-np.where(owner % 2, 2.0, -2.0) * x))).astype(int)
    pd.DataFrame({"client": owner, "x": x, "y": y}).to_csv(tmp_path / "rows.csv", index=False)
    asked = ("fit", tmp_path / "rows.csv", "--client", "client", "--target", "y", "--clusters", "2")
    gaps = []
    for ridge in ("0", "1", "50"):
        done = mixfed(*asked, "--family", "binomial", "--ridge", ridge, "--json", "--out", tmp_path / ridge)
        assert done.exit_code == 0, done.output
        gaps.append(np.ptp(json.loads((tmp_path / ridge / "model.json").read_text())["coef"]))
    assert gaps[0] > gaps[1] > gaps[2]
    for wrong, said in (
        (("--family", "binomial", "--ridge", "-1"), "ridge = -1.0 must be a number, 0 or more"),
        (("--family", "gaussian", "--ridge", "1"), "goes with another family than gaussian"),
        (("--family", "auto", "--ridge", "1"), "a family that is named"),
    ):
        assert_one_line(mixfed(*asked, *wrong, "--out", tmp_path / "none"), said)
