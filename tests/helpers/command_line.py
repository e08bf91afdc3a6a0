"""The command line, in this process and in one of its own."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

from click.testing import CliRunner

from mixfed.cli import app

CONFIG = """[paper]
separation = 2.12
n_anchors = 8
n_recruits = 300
pairs = 30
rounds = 6
refine_rounds = {rounds}
"""


def mixfed(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def run_process(*arguments, **options):
    command = [sys.executable, "-m", "mixfed", *(str(argument) for argument in arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def wait_for(condition, process, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "the run did not get this far"
        time.sleep(0.01)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def assert_one_line(result, message):
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("mixfed: ")
    assert re.search(message, result.stderr), result.stderr


FILES = ["clients.parquet", "model.json", "report.html", "run.json", "trace.parquet"]


def fit_arguments(table, out, *more):
    config = table.with_name("paper.toml")
    return (
        "fit", table, "--client", "client", "--target", "y", "--clusters", 2, "--recipe", "paper",
        "--config", config, "--no-intercept", "--out", out, *more,
    )  # fmt: skip
