"""Runs that are kept by MLflow, too."""

from __future__ import annotations

import pytest

from helpers.command_line import mixfed

NEEDED = "MLflow is not installed: pip install --editable '.[mlflow]'"


@pytest.mark.slow
def test_mlflow_keeps_the_run(fitted, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason=NEEDED)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "runs").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    table = fitted.parent / "shops.parquet"
    done = mixfed("fit", table, "--client", "shop", "--target", "sales", "--clusters", 2, "--out", "r", "--mlflow")
    assert done.exit_code == 0, done.output
    [run] = mlflow.search_runs(output_format="list")
    assert run.data.metrics["n_clusters"] == 2
    assert run.data.params["target"] == "sales"
    artifacts = {path.name for path in (tmp_path / "runs").rglob("artifacts/*")}
    assert artifacts == {path.name for path in (tmp_path / "r").iterdir()}


def test_a_run_that_mlflow_refuses_is_there_all_the_same(fitted, tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason=NEEDED)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://nowhere")
    table = fitted.parent / "shops.parquet"
    wanted = ["--client", "shop", "--target", "sales", "--clusters", 2, "--out", tmp_path / "r"]
    done = mixfed("fit", table, *wanted, "--mlflow", "--quiet")
    assert done.exit_code == 2
    assert "MLflow did not take the run" in done.output
    assert len(done.output.splitlines()) == 1
    assert (tmp_path / "r" / "model.json").exists()
