"""The federation on NVIDIA FLARE: a server and sites as processes of their own, on the loopback interface.

One federation serves all tests, and each of them leaves it whole.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from mixfed.auto import fit_auto
from mixfed.cli import app
from mixfed.data import Clients
from mixfed.errors import PoolError
from mixfed.federation import Job
from mixfed.pool import LocalPool
from mixfed.simulation import simulate
from mixfed.tables import write_parquet

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: install mixfed[flare]")

from mixfed.federation import jobs, parties
from mixfed.federation.desk import Desk, new_run, read_result
from mixfed.federation.kits import Role, open_kit, provision
from mixfed.federation.rehearsal import divide, largest_difference, running

pytestmark = [
    pytest.mark.xdist_group("flare"),  # all go to one worker, so that the federation is started once
    pytest.mark.filterwarnings("ignore:ssl_context is deprecated"),  # the engine's own
]

# Some hundred exchanges: time enough to disturb them.
LONG = Job(2, settings={"update": "fedprox", "step": 0.1}, timeout=10.0, tries=2)
FEATURES = ["x_0", "x_1", "x_2"]


def mixfed(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def ignore(event):
    pass


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "clients.parquet"
    write_parquet(path, simulate(n_clients=600, dim=3, n_clusters=2, seed=3).columns())
    return path


@pytest.fixture(scope="module")
def kits(table, tmp_path_factory):
    """The kits of a federation that runs as long as the tests, by name."""
    made = divide(table, "client", "y", FEATURES, 3, tmp_path_factory.mktemp("federation") / "kits")
    fit_here(made, LONG)  # compiles what the sites would else compile all at once
    with running(made):
        yield {kit.path.name: kit for kit in made}


def fit_here(kits, job):
    """The fit of the rows of some sites in this process."""
    rows = pa.concat_tables(pq.read_table(kit.path / "table.parquet") for kit in kits if kit.role is Role.SITE)
    clients = Clients.from_arrays(
        rows.select(FEATURES).to_pandas().to_numpy(), rows["y"].to_numpy(), rows["client"].to_numpy(), intercept=True
    )
    settings = job.recipe_settings()
    return fit_auto(LocalPool(clients), clients.features, job.n_clusters, settings, seed=job.seed).model


def wait_until(holds, seconds=60.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def exchanges(kits, run):
    try:
        return (kits["server"].path / "runs" / run / "exchanges.jsonl").read_text().count('"number"')
    except FileNotFoundError:
        return 0


def kill(*processes):
    for process in processes:
        process.kill()
        process.wait(10)


def test_local_gives_the_fit_of_one_process_and_leaves_nothing_running(table, tmp_path):
    done = mixfed(
        "federate", "local", table, "--client", "client", "--target", "y", "--sites", 2, "--clusters", 2,
        "--kits", tmp_path / "kits", "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert printed["largest_difference"] < 1e-9
    assert not any(parties.processes(open_kit(tmp_path / "kits" / name)) for name in ("server", "site-1", "site-2"))


def test_local_that_is_interrupted_leaves_nothing_running(table, tmp_path):
    command = [sys.executable, "-m", "mixfed", "federate", "local", table, "--client", "client", "--target", "y"]
    begun = subprocess.Popen([*command, "--sites", "1", "--kits", tmp_path / "kits"], stderr=subprocess.PIPE, text=True)
    site = tmp_path / "kits" / "site-1"
    wait_until(lambda: (site / "README.md").exists() and parties.processes(open_kit(site)))
    begun.send_signal(signal.SIGINT)
    _, said = begun.communicate(timeout=60)
    assert begun.returncode == 130
    assert said.strip() == "mixfed: stopped"
    assert not any(parties.processes(open_kit(tmp_path / "kits" / name)) for name in ("server", "site-1"))


def begin(kits, run, out):
    """Submit a run as a user does, and wait until it is well under way."""
    options = ["--clusters", "2", "--config", out.with_suffix(".toml"), "--timeout", "10", "--tries", "2", "--run", run]
    out.with_suffix(".toml").write_text(f"[auto]\nupdate = 'fedprox'\nstep = {LONG.settings['step']}\n")
    command = [sys.executable, "-m", "mixfed", "federate", "submit", kits["admin"].path, *options, "--out", out]
    begun = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: exchanges(kits, run) > 20)
    return begun


def check_it_goes_on(kits, begun, run, out, complaint):
    """See that a run which was cut off says so and how to go on, and that it does not begin anew."""
    _, said = begun.communicate(timeout=60)
    assert begun.returncode == 2
    assert complaint in said
    assert said.strip().endswith(f"`mixfed federate resume {kits['admin'].path} --run {run} --out {out}` goes on")
    assert said.count("\n") == 1
    assert not out.exists()
    before = exchanges(kits, run)
    done = mixfed("federate", "resume", kits["admin"].path, "--out", out, "--json")
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert sorted(printed["sites"]) == ["site-1", "site-2", "site-3"]
    assert exchanges(kits, run) - before < printed["exchanges"]
    assert largest_difference(read_result(out).fit.model, fit_here(kits.values(), LONG)) < 1e-9


def test_a_run_goes_on_after_a_worker_was_killed(kits, tmp_path):
    begun = begin(kits, "worker", tmp_path / "out")
    kill(parties.processes(kits["site-2"])[-1])
    check_it_goes_on(kits, begun, "worker", tmp_path / "out", "the engine has stopped the job")
    known = json.loads(mixfed("federate", "status", kits["admin"].path, "--json").stdout)
    assert known["sites"] == ["site-1", "site-2", "site-3"]
    assert [job["status"] for job in known["jobs"]] == ["FINISHED:EXECUTION_EXCEPTION", "FINISHED:COMPLETED"]
    # The kinds of a site's clients are for the site alone.
    assert pq.read_table(kits["site-1"].path / "result" / "clients.parquet").num_rows == 200


def test_a_run_goes_on_after_the_server_was_killed(kits, tmp_path):
    begun = begin(kits, "server", tmp_path / "out")
    kill(*parties.processes(kits["server"]))
    restarted = parties.start(kits["server"])
    assert restarted.wait(60)
    check_it_goes_on(kits, begun, "server", tmp_path / "out", "does not answer")


def test_a_run_without_a_site_that_was_killed_is_the_fit_of_the_others(kits, tmp_path):
    run = new_run(kits["admin"], "site", LONG)
    with Desk(kits["admin"]) as desk:
        job = desk.submit(run)
        wait_until(lambda: exchanges(kits, "site") > 20)
        kill(*parties.processes(kits["site-2"]))
        desk.follow(job, ignore)
        desk.fetch(job, tmp_path)
    found = read_result(tmp_path)
    assert sorted(found.about["sites"]) == ["site-1", "site-3"]
    assert largest_difference(found.fit.model, fit_here([kits["site-1"], kits["site-3"]], LONG)) < 1e-9
    assert parties.start(kits["site-2"]).wait(60)
