"""The command line, as a user runs it: in a process of its own where that matters."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from helpers.command_line import CONFIG, assert_one_line, mixfed, run_process, wait_for, write
from mixfed import Model, __version__, bottleneck_distance, simulate

FILES = ["clients.parquet", "model.json", "report.html", "run.json", "trace.parquet"]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    made = mixfed(
        "simulate", "--clients", 2000, "--dim", 4, "--clusters", 2, "--anchors", 10, "--anchor-rows", 400,
        "--seed", 5, "--out", folder / "t.parquet",
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    (folder / "paper.toml").write_text(CONFIG.format(rounds=150))
    return folder / "t.parquet"


def fit_arguments(table, out, *more):
    config = table.with_name("paper.toml")
    return (
        "fit", table, "--client", "client", "--target", "y", "--clusters", 2, "--recipe", "paper",
        "--config", config, "--no-intercept", "--out", out, *more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def fitted(table, tmp_path_factory):
    out = tmp_path_factory.mktemp("fitted")
    result = mixfed(*fit_arguments(table, out, "--json"))
    assert result.exit_code == 0, result.output
    return out, json.loads(result.stdout)


def test_simulate_writes_the_truth_beside_the_table(table):
    truth = json.loads(table.with_name("t.truth.json").read_text())
    frame = pd.read_parquet(table)
    assert list(frame.columns) == ["client", "y", "x_0", "x_1", "x_2", "x_3"]
    assert frame.client.nunique() == len(truth["labels"]) == 2000
    assert np.shape(truth["coef"]) == (2, 4)


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


def test_assign_gives_the_clients_of_the_fit_what_the_fit_gave_them(table, fitted, tmp_path):
    out, _ = fitted
    assert mixfed("assign", out, table, "--out", tmp_path / "kinds.parquet").exit_code == 0
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "kinds.parquet"), pd.read_parquet(out / "clients.parquet"))


def test_predict_uses_what_is_known_of_each_client(table, fitted, tmp_path):
    out, _ = fitted
    model = json.loads((out / "model.json").read_text())
    everything = pd.read_parquet(table)
    frame = everything.sample(500, random_state=0)
    history = everything.drop(frame.index).assign(client=everything.client + 10**6)
    new = frame.drop(columns="y").assign(client=frame.client + 10**6)
    frame.drop(columns="y").to_csv(tmp_path / "known.csv", index=False)
    new.to_csv(tmp_path / "new.csv", index=False)
    history.to_csv(tmp_path / "history.csv", index=False)
    for name, more in {"known": (), "new": (), "new2": ("--history", tmp_path / "history.csv")}.items():
        data = tmp_path / f"{name.rstrip('2')}.csv"
        result = mixfed("predict", out, data, *more, "--out", tmp_path / f"{name}.parquet")
        assert result.exit_code == 0, result.output
    x = frame[model["features"]].to_numpy()
    by_kind = x @ np.array(model["coef"]).T
    known, new, helped = (
        pd.read_parquet(tmp_path / f"{name}.parquet").prediction.to_numpy() for name in ("known", "new", "new2")
    )
    np.testing.assert_allclose(new, by_kind @ model["weights"])
    clients = pd.read_parquet(out / "clients.parquet").set_index("client")
    shares = clients.loc[frame.client, ["probability_0", "probability_1"]].to_numpy()
    np.testing.assert_allclose(known, np.sum(by_kind * shares, axis=1))
    error = {"known": known, "new": new, "helped": helped}
    error = {name: np.sqrt(np.mean((values - frame.y) ** 2)) for name, values in error.items()}
    assert error["known"] < error["helped"] < 0.5 * error["new"]  # all its rows, some, none


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("fitted_as", [int, float, str])
@pytest.mark.parametrize("asked_as", [int, float, str])
def test_predict_knows_clients_whose_numbers_became_floats_or_text(tmp_path, suffix, fitted_as, asked_as):
    made = simulate("mirror", n_clients=60, dim=2, seed=0)
    frame = pd.DataFrame(made.columns())

    def written(name, kind):
        path = (tmp_path / name).with_suffix(suffix)
        changed = frame.assign(client=frame.client.astype(kind))
        changed.to_csv(path, index=False) if suffix == ".csv" else changed.to_parquet(path, index=False)
        return path

    fit, asked = written("fit", fitted_as), written("asked", asked_as)
    columns = ("--client", "client", "--target", "y", "--clusters", 2, "--out", tmp_path / "out", "--quiet")
    assert mixfed("fit", fit, *columns).exit_code == 0
    done = mixfed("predict", tmp_path / "out", asked, "--out", tmp_path / "p.csv")
    assert "the kinds of 60 of 60 clients are known" in done.stdout
    known = mixfed("predict", tmp_path / "out", asked, "--history", fit, "--out", tmp_path / "h.csv")
    assert "the kinds of 60 of 60 clients are known" in known.stdout
    expected = Model.load(tmp_path / "out").predict(frame.drop(columns="client"))
    assert np.abs(pd.read_csv(tmp_path / "p.csv").prediction - expected).max() > 0.1  # not as of strangers


def test_theory_prints_the_papers_quantities(fitted):
    out, _ = fitted
    found = json.loads(mixfed("theory", out, "--json").stdout)
    assert found["note"] == "up to constants"
    assert 0 < found["contraction"] < 1
    assert {"gamma", "kappa", "rho", "chi2", "nu", "p_e", "rounds"} <= set(found)
    assert "up to constants" in mixfed("theory", out).stdout


def test_theory_of_exact_models_leaves_out_what_local_steps_would_say(table, tmp_path):
    result = mixfed("fit", table, "--client", "client", "--target", "y", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    found = json.loads(mixfed("theory", tmp_path, "--json").stdout)
    assert found["gamma"] is None
    assert 0 < found["rho"] < 1
    assert re.search(r"gamma +│ - ", mixfed("theory", tmp_path).stdout)


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


def test_version_and_help_name_the_program():
    assert mixfed("--version").stdout.strip() == f"mixfed {__version__}"
    assert all(name in mixfed("--help").stdout for name in ("simulate", "fit", "assign", "predict", "theory", "demo"))


def test_the_command_hides_no_package_from_its_process():
    program = """
import sys
from mixfed.__main__ import main
sys.argv = ["mixfed", "--version"]
try:
    main()
except SystemExit:
    import pandas
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


def test_a_killed_run_resumes_to_the_same_bytes(table, tmp_path):
    (table.with_name("paper.toml")).write_text(CONFIG.format(rounds=1500))
    try:
        whole = mixfed(*fit_arguments(table, tmp_path / "whole"))
        assert whole.exit_code == 0, whole.output
        process = run_process(*fit_arguments(table, tmp_path / "killed"))
        journal = tmp_path / "killed" / "journal.bin"
        wait_for(lambda: journal.exists() and journal.read_bytes().count(b"ModelSum") > 20, process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert not (tmp_path / "killed" / "model.json").exists()
        resumed = mixfed(*fit_arguments(table, tmp_path / "killed", "--resume"))
        assert resumed.exit_code == 0, resumed.output
    finally:
        (table.with_name("paper.toml")).write_text(CONFIG.format(rounds=150))
    assert (tmp_path / "killed" / "model.json").read_bytes() == (tmp_path / "whole" / "model.json").read_bytes()
    assert {path.name for path in (tmp_path / "killed").iterdir()} == set(FILES)


def test_ctrl_c_leaves_a_run_that_can_go_on(table, tmp_path):
    config = tmp_path / "long.toml"
    config.write_text(CONFIG.format(rounds=10**6) + "step = 1e-9\n")
    arguments = list(fit_arguments(table, tmp_path / "out"))
    arguments[arguments.index("--config") + 1] = config
    process = run_process(*arguments)
    wait_for((tmp_path / "out" / "journal.bin").exists, process)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said == "mixfed: stopped; the same command with --resume goes on\n"


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


def test_demo_compares_with_the_truth(tmp_path):
    environment = os.environ | {"COLUMNS": "120"}
    process = run_process("demo", "--out", tmp_path / "demo", env=environment)
    said, complaint = process.communicate(timeout=300)
    assert process.returncode == 0, complaint
    assert "Against the truth: error 0.0" in said
    assert (tmp_path / "demo" / "model.json").exists()


def test_quiet_prints_nothing(tmp_path):
    def silent(*arguments):
        done = mixfed(*arguments, "--quiet")
        assert done.exit_code == 0, done.output
        assert done.output == ""

    data, result = tmp_path / "t.parquet", tmp_path / "result"
    silent("simulate", "--clients", 200, "--dim", 2, "--clusters", 2, "--out", data)
    silent("pack", data, "--client", "client", "--target", "y", "--out", tmp_path / "packed")
    silent("fit", tmp_path / "packed", "--clusters", 2, "--out", result)
    silent("assign", result, data, "--out", tmp_path / "kinds.parquet")
    silent("predict", result, data, "--out", tmp_path / "predictions.parquet")
    silent("report", result)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk to write to")
@pytest.mark.parametrize("command", [["--version"], ["--help"], ["assign"]], ids=lambda command: command[0])
def test_output_that_cannot_be_written_is_told_and_output_that_nobody_reads_is_not(table, fitted, tmp_path, command):
    if command == ["assign"]:
        command = ["assign", str(fitted[0]), str(table), "--out", str(tmp_path / "kinds.parquet")]
    command = [sys.executable, "-m", "mixfed", *command]
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (result.returncode, result.stderr) == (2, "mixfed: standard output: No space left on device\n")
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone:
        result = subprocess.run(command, stdout=gone, stderr=subprocess.PIPE, text=True)
    assert (result.returncode, result.stderr) == (1, "")
