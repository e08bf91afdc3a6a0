"""Help, silence, and output that nobody takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.command_line import mixfed
from mixfed import __version__


def test_without_a_command_help_is_shown():
    for arguments in ((), ("federate",)):
        result = mixfed(*arguments)
        assert result.exit_code == 2
        assert "Usage: mixfed" in result.output


def test_version_and_help_name_the_program():
    assert mixfed("--version").stdout.strip() == f"mixfed {__version__}"
    assert all(name in mixfed("--help").stdout for name in ("simulate", "fit", "assign", "predict", "theory", "demo"))


@pytest.mark.process
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


@pytest.mark.process
@pytest.mark.slow
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
