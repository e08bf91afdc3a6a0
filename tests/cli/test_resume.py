"""Runs that were stopped go on."""

from __future__ import annotations

import signal

import pytest

from helpers.command_line import CONFIG, FILES, assert_one_line, fit_arguments, mixfed, run_process, wait_for


@pytest.mark.process
@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_with_the_same_data_only(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    simulate = "simulate --clients 2000 --dim 4 --clusters 2 --anchors 10 --anchor-rows 400 --out t.parquet"
    made = mixfed(*simulate.split())
    assert made.exit_code == 0, made.output
    (tmp_path / "c.toml").write_text(CONFIG.format(rounds=1500))
    columns = ["--client", "client", "--target", "y", "--clusters", "2"]
    command = ["fit", "t.parquet", *columns, "--recipe", "paper", "--config", "c.toml", "--out", "out"]
    process = run_process(*command)
    journal = tmp_path / "out" / "journal.bin"
    wait_for(lambda: journal.exists() and journal.read_bytes().count(b"ModelSum") > 20, process)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "mixfed: stopped; the same command with --resume goes on\n")
    kept = journal.read_bytes()
    assert_one_line(
        mixfed(*command, "--resume", "--seed", 1), r"journal.bin: this run was started with other data or set"
    )
    assert journal.read_bytes() == kept
    resumed = mixfed(*command, "--resume")
    assert resumed.exit_code == 0, resumed.output
    assert (tmp_path / "out" / "model.json").exists()
    assert not journal.exists()


@pytest.mark.process
@pytest.mark.slow
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


@pytest.mark.process
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
