"""The federation on NVIDIA FLARE: a server and sites as processes of their own, on the loopback interface.

One federation serves all tests, and each of them leaves it whole.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.command_line import mixfed
from helpers.examples import COMMANDS, example, run
from mixfed.clients.local import LocalPool
from mixfed.clients.packed import Clients
from mixfed.core.errors import PoolError
from mixfed.evaluation.simulation import simulate
from mixfed.federation import Job
from mixfed.recipes.auto import fit_auto
from mixfed.tables.write import write_parquet

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: install mixfed[flare]")

from mixfed.federation.flare import admin as desk, jobs, processes as parties
from mixfed.federation.flare.admin import AdminSession, new_run, read_result
from mixfed.federation.flare.kits import Role, open_kit, provision
from mixfed.federation.flare.local import divide, largest_difference, running

pytestmark = [
    pytest.mark.flare,
    pytest.mark.filterwarnings("ignore:ssl_context is deprecated"),  # the engine's own
]

# Some hundred exchanges: time enough to disturb them.
LONG = Job(2, settings={"update": "fedprox", "step": 0.1}, timeout=6.0, tries=2)
FEATURES = ["x_0", "x_1", "x_2"]


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
    clients = Clients.from_file(table, "client", "y", FEATURES)
    made = divide(clients, "client", "y", 3, tmp_path_factory.mktemp("federation") / "kits")
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


def greet(kits, kit):
    """Connect to the server with the certificate of a kit, or without, and give what it says."""
    context = ssl.create_default_context(cafile=kits["site-1"].path / "startup" / "rootCA.pem")
    context.check_hostname = False
    if kit is not None:
        context.load_cert_chain(kit.path / "startup" / "client.crt", kit.path / "startup" / "client.key")
    port = int(kits["server"].address.rpartition(":")[2])
    try:
        with socket.create_connection(("127.0.0.1", port), 10) as line, context.wrap_socket(line) as secure:
            secure.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return secure.recv(100)
    except (ssl.SSLError, ConnectionError):
        return b""


@pytest.fixture(scope="module")
def stranger(kits, tmp_path_factory):
    """A site of another federation that knows the way to the server of ours."""
    port = int(kits["server"].address.rpartition(":")[2])
    made = provision(tmp_path_factory.mktemp("others") / "kits", ["stranger"], port=port)
    yield made[1]
    parties.stop(made)


def test_the_server_talks_to_nobody_without_a_certificate_of_its_authority(kits, stranger):
    assert greet(kits, kits["site-1"]).startswith(b"HTTP/1.1")
    assert greet(kits, None) == b""
    assert greet(kits, stranger) == b""


def test_a_stranger_and_a_site_under_the_name_of_another_are_refused(kits, stranger, tmp_path):
    shutil.copytree(kits["site-2"].path, tmp_path / "impostor")
    file = tmp_path / "impostor" / "startup" / "fed_client.json"
    file.write_text(file.read_text().replace('"fqsn": "site-2"', '"fqsn": "site-1"'))
    impostor = open_kit(tmp_path / "impostor")
    assert impostor.name == "site-1"
    heard = kits["server"].log.stat().st_size
    try:
        started = [parties.start(stranger), parties.start(impostor)]
        wait_until(lambda: "CERTIFICATE_VERIFY_FAILED" in stranger.log.read_text())
        refusal = "authenticated as 'site-2' but claimed endpoint 'site-1'"
        wait_until(lambda: refusal in kits["server"].log.read_text()[heard:])
        assert not any(party.wait(0.5) for party in started)
    finally:
        parties.stop([stranger, impostor])


def test_a_site_runs_the_answering_end_and_nothing_else(kits):
    from nvflare.apis.workspace import Workspace
    from nvflare.app_common.widgets.component_path_authorizer import ComponentPathAuthorizer

    def build(path):
        site = Workspace(str(kits["site-1"].path), "site-1")
        ComponentPathAuthorizer().authorize_component_config({"path": path}, workspace=site)

    build(jobs.EXECUTOR)
    build(jobs.ANSWERER)
    for path in (jobs.CONDUCTOR, jobs.CONTROLLER, "nvflare.app_common.np.np_trainer.NPTrainer", "subprocess.Popen"):
        with pytest.raises(Exception, match="not in allow_list"):
            build(path)


def test_a_site_takes_no_code(kits, tmp_path, monkeypatch):
    def with_code(folder, run):
        jobs.write_job(folder, run)
        (folder / "site" / "custom").mkdir()
        (folder / "site" / "custom" / "own.py").write_text("answer = 42\n")

    monkeypatch.setattr(desk, "write_job", with_code)
    with AdminSession(kits["admin"]) as line:
        job = line.submit(new_run(kits["admin"], "code", LONG))
        line.follow(job, ignore)
        with pytest.raises(PoolError, match="BYOC not permitted"):
            line.fetch(job, tmp_path / "out")


def test_a_site_answers_the_server_only():
    from nvflare.collab.api.context import set_call_context

    from mixfed.federation.flare.ends import Answerer

    set_call_context(SimpleNamespace(caller="site-2"))
    try:
        with pytest.raises(PermissionError, match="only the server"):
            Answerer().answer(b"")
    finally:
        set_call_context(None)


def test_local_gives_the_fit_of_one_process_and_leaves_nothing_running(table, tmp_path):
    """As in the example in its help, with four sites."""
    (tmp_path / "clients.parquet").write_bytes(table.read_bytes())
    done = run([*example(COMMANDS["federate", "local"]), "--kits", "kits", "--json"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["largest_difference"] < 1e-9
    parties_there = [open_kit(tmp_path / "kits" / name) for name in ("server", *(f"site-{j}" for j in range(1, 5)))]
    assert not any(map(parties.processes, parties_there))


def test_the_examples_in_the_help_run(kits, tmp_path):
    """In the folder of the kits, where whoever follows the guide is."""
    there = kits["admin"].path.parent
    for name in ("init", "status", "submit", "resume", "down", "up"):
        done = run(example(COMMANDS["federate", name]), tmp_path if name == "init" else there)
        assert done.returncode == 0, (name, done.stderr)
        assert done.stdout.strip()
    assert "kinds of client" in (there / "result" / "report.html").read_text()


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
    options = ["--clusters", "2", "--config", out.with_suffix(".toml"), "--timeout", "6", "--tries", "2", "--run", run]
    out.with_suffix(".toml").write_text(f"[auto]\nupdate = 'fedprox'\nstep = {LONG.settings['step']}\n")
    command = [sys.executable, "-m", "mixfed", "federate", "submit", kits["admin"].path, *options, "--out", out]
    begun = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: exchanges(kits, run) > 20)
    return begun


def check_it_goes_on(kits, begun, run, out, complaint):
    """See that a run which was cut off says so and how to go on, and that it does not begin anew."""
    _, said = begun.communicate(timeout=60)
    assert begun.returncode == 2
    assert re.search(complaint, said)
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
    assert [job["status"] for job in known["jobs"] if job["run"] == "worker"] == [
        "FINISHED:EXECUTION_EXCEPTION",
        "FINISHED:COMPLETED",
    ]
    # The kinds of a site's clients are for the site alone.
    assert pq.read_table(kits["site-1"].path / "result" / "clients.parquet").num_rows == 200


def server_start(kits):
    with AdminSession(kits["admin"]) as line:
        return line.server_start()


def test_a_run_goes_on_after_the_server_was_killed(kits, tmp_path):
    before = server_start(kits)
    begun = begin(kits, "server", tmp_path / "out")
    kill(*parties.processes(kits["server"]))
    restarted = parties.start(kits["server"])
    assert restarted.wait(60)
    assert server_start(kits) > before
    # Which of the two depends on whether a question came while it was gone.
    check_it_goes_on(kits, begun, "server", tmp_path / "out", "does not answer|was started anew")


def test_a_server_that_is_back_before_anybody_noticed_has_lost_the_job(kits):
    """It says of the job for ever that it is running."""
    starts = iter([1.0, 1.0, 2.0])
    session = SimpleNamespace(
        get_job_status=lambda job: "RUNNING",
        get_system_info=lambda: SimpleNamespace(server_info=SimpleNamespace(start_time=next(starts))),
        do_app_command=lambda *asked: {},
    )
    line = AdminSession(kits["admin"])
    line._session = session
    with pytest.raises(PoolError, match="was started anew"):
        line.follow("job", ignore)


def test_a_run_without_a_site_that_was_killed_is_the_fit_of_the_others(kits, tmp_path):
    run = new_run(kits["admin"], "site", LONG)
    with AdminSession(kits["admin"]) as line:
        job = line.submit(run)
        wait_until(lambda: exchanges(kits, "site") > 20)
        kill(*parties.processes(kits["site-2"]))
        line.follow(job, ignore)
        line.fetch(job, tmp_path)
    found = read_result(tmp_path)
    assert sorted(found.about["sites"]) == ["site-1", "site-3"]
    assert largest_difference(found.fit.model, fit_here([kits["site-1"], kits["site-3"]], LONG)) < 1e-9
    assert parties.start(kits["site-2"]).wait(60)
