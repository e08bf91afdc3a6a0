"""The command line with a cluster, and without dask."""

from __future__ import annotations

import subprocess
import sys

import pandas as pd
import pytest
from click.testing import CliRunner

from helpers.dask_cluster import Disturbed, auto, same
from mixfed import LocalPool, PoolError, SettingsError, cli
from mixfed.cli import fit as cli_fit
from mixfed.clients.dask import connect
from mixfed.model.model import Model

# Sockets that dask leaves to the garbage collector are not what is tested here.
pytestmark = [
    pytest.mark.dask,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]


def mixfed(*arguments):
    command = [sys.executable, "-m", "mixfed", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_command_line_fits_on_a_cluster(cluster, made, tmp_path):
    pd.DataFrame(made.columns()).to_parquet(tmp_path / "t.parquet", index=False)
    arguments = ("--client", "client", "--target", "y", "--clusters", 2, "--no-intercept", "--json")
    fit = ("fit", tmp_path / "t.parquet", *arguments, "--seed", 1, "--out", tmp_path / "out")
    result = mixfed(*fit, "--dask", cluster.scheduler_address)
    assert (result.returncode, result.stderr) == (0, "")
    same(Model.load(tmp_path / "out"), auto(LocalPool(made.clients), made.clients).model)


def test_a_fit_that_lost_its_cluster_can_be_resumed(made, tmp_path, monkeypatch):
    def lose():
        raise PoolError("the cluster is lost")

    pd.DataFrame(made.columns()).to_parquet(tmp_path / "t.parquet", index=False)
    arguments = ["--client", "client", "--target", "y", "--clusters", "2", "--no-intercept", "--seed", "1"]
    fit = ["fit", str(tmp_path / "t.parquet"), *arguments, "--out", str(tmp_path / "out")]
    with monkeypatch.context() as patch:
        patch.setattr(cli_fit, "_pool", lambda table, scheduler: Disturbed(LocalPool(table), 7, lose))
        result = CliRunner().invoke(cli.app, fit)
    assert result.exit_code == 2
    assert result.stderr.endswith("mixfed: the cluster is lost; the same command with --resume goes on\n")
    assert CliRunner().invoke(cli.app, [*fit, "--resume"]).exit_code == 0
    same(Model.load(tmp_path / "out"), auto(LocalPool(made.clients), made.clients).model)


def test_an_address_where_nobody_answers_is_one_line(made, tmp_path):
    pd.DataFrame(made.columns()).to_parquet(tmp_path / "t.parquet", index=False)
    fit = ("fit", tmp_path / "t.parquet", "--client", "client", "--target", "y", "--out", tmp_path / "out")
    result = mixfed(*fit, "--dask", "tcp://127.0.0.1:9")
    assert result.returncode == 2
    assert result.stderr == "mixfed: no dask scheduler answers at tcp://127.0.0.1:9 within 5 s: is it running?\n"
    assert not (tmp_path / "out").exists()
    with pytest.raises(SettingsError, match="--dask nowhere: give the address of a scheduler"):
        connect("nowhere")


def test_without_dask_the_command_line_says_what_to_install(made, tmp_path):
    pd.DataFrame(made.columns()).to_parquet(tmp_path / "t.parquet", index=False)
    fit = ["mixfed", "fit", str(tmp_path / "t.parquet"), "--client", "client", "--target", "y", "--out", "o"]
    program = f"import sys; sys.modules['distributed'] = None; sys.argv = {[*fit, '--dask', 'tcp://x:1']}"
    result = subprocess.run(
        [sys.executable, "-c", f"{program}; from mixfed.cli import run; run()"],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 2
    assert result.stderr == "mixfed: --dask needs dask.distributed: install mixfed[dask]\n"


def test_importing_mixfed_does_not_import_dask():
    program = "import sys, mixfed, mixfed.cli, mixfed.exchange.pool; sys.exit('dask' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
