"""The report says what the model says."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest

from helpers.command_line import mixfed
from helpers.report import embedded, some_fit
from mixfed import LocalPool, Model, fit_auto, simulate
from mixfed.model.assignment import Assignment
from mixfed.report import report_html


@pytest.mark.parametrize("case", ["one kind", "one client each", "no intercept", "no labels"])
def test_every_fit_has_a_report(case):
    clients = simulate("mirror", n_clients=60, dim=2, seed=1).clients
    fit = fit_auto(LocalPool(clients), clients.features, 1 if case == "one kind" else 2)
    assigned = None if case == "no labels" else fit.model.assign(clients)
    html = report_html(fit, assigned)
    assert embedded(html)["coefficients"]["values"] == fit.model.theta.tolist()
    assert ('id="clients"' in html) == (case != "no labels")
    assert not re.search(
        r'(src|href)="(?!#)|https?://|url\(|@import', re.sub(r"<script.*?</script>", "", html, flags=re.S)
    )


def test_a_report_of_a_million_clients_stays_small():
    rng = np.random.default_rng(0)
    count = 1_000_000
    ids = np.array([f"customer-{i:09d}-of-a-long-name" for i in range(count)], dtype=object)
    assigned = Assignment(ids, rng.integers(1, 50, count), rng.dirichlet([0.1, 0.1, 0.1], count))
    html = report_html(some_fit(sizes=[[2, count]], kind_rows=[1.0, 1.0, 1.0], settings={}), assigned)
    assert len(html.encode()) < 1_000_000


def test_the_report_says_what_the_model_says(fitted):
    html, model = (fitted / "report.html").read_text(), json.loads((fitted / "model.json").read_text())
    numbers = embedded(html)
    theta = np.column_stack([model["coef"], model["intercept"]])
    np.testing.assert_array_equal(numbers["coefficients"]["values"], theta)
    assert [kind["share"] for kind in numbers["kinds"]] == model["weights"]
    assert [kind["noise"] for kind in numbers["kinds"]] == model["noise"]
    clients = pd.read_parquet(fitted / "clients.parquet")
    listed = pd.DataFrame(numbers["clients"]["listed"]).set_index(0)
    assert len(listed) == len(clients) == numbers["clients"]["total"]
    assert (listed[2].reindex(clients.client).to_numpy() == clients.cluster.to_numpy()).all()


def test_the_report_can_be_written_again(fitted, tmp_path):
    files = ["--card", tmp_path / "model.md", "--coef", tmp_path / "coef.csv"]
    done = mixfed("report", fitted, "--out", tmp_path / "again.html", *files)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "again.html").read_text() == (fitted / "report.html").read_text()
    model = Model.load(fitted)
    table = pd.read_csv(tmp_path / "coef.csv")
    assert table.feature.tolist() == list(model.terms) * model.n_clusters
    np.testing.assert_array_equal(table.coefficient.to_numpy().reshape(model.theta.shape), model.theta)
    np.testing.assert_array_equal(table.standard_error.to_numpy().reshape(model.theta.shape), model.theta_error)
    card = (tmp_path / "model.md").read_text()
    assert f"# Model card: sales by shop, {model.n_clusters} kinds" in card
    assert f"| {model.weights[0]:.1%} |" in card


def test_a_report_of_a_broken_folder_is_one_line(fitted, tmp_path):
    shutil.copytree(fitted, tmp_path / "broken")
    (tmp_path / "broken" / "run.json").write_text("{")
    done = mixfed("report", tmp_path / "broken")
    assert done.exit_code == 2
    assert "run.json" in done.output
    assert len(done.output.splitlines()) == 1
