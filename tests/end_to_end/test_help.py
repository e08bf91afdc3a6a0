"""Every example that a command's help gives, and every command in the README, runs as written."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from helpers.examples import COMMANDS, example, run
from mixfed.cli import app
from mixfed.tables.sources import read_parquet

ROOT = Path(__file__).parents[2]
FEDERATION = {"init", "up", "down", "submit", "status", "resume", "local"}
"""Their examples run in tests/federation/flare/test_flare.py, with a federation that is up."""


def test_every_extra_has_code_behind_it():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    code = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    for needed in (needed for name, some in extras.items() if name not in ("dev", "docs") for needed in some):
        package = re.match(r"\w+", needed)[0]  # mlflow-skinny is mlflow
        assert re.search(rf"^ *(from|import) {package}\b", code, re.MULTILINE), needed


@pytest.mark.parametrize("name", COMMANDS, ids=" ".join)
def test_the_help_shows_its_example(name):
    shown = CliRunner().invoke(app, [*name, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert shown.exit_code == 0
    assert " ".join(example(COMMANDS[name])) in re.sub(r"\s+", " ", shown.output)
    assert example(COMMANDS[name])[: len(name) + 1] == ["mixfed", *name]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder as it is after a newcomer's first commands, with a table of new clients."""
    place = tmp_path_factory.mktemp("examples")
    for first in (("simulate",), ("fit",)):
        done = run(example(COMMANDS[first]), place)
        assert done.returncode == 0, done.stderr
    (place / "new.parquet").write_bytes((place / "clients.parquet").read_bytes())
    return place


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in COMMANDS if name[-1] not in FEDERATION], ids=" ".join)
def test_the_example_in_the_help_runs(name, folder):
    arguments = example(COMMANDS[name])
    done = run(arguments, folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.strip()
    written = [arguments[i + 1] for i, word in enumerate(arguments) if word in ("--out", "--card", "--coef")]
    assert all((folder / path).exists() for path in written)
    assert all(read_parquet(folder / path).num_rows for path in written if path.endswith(".parquet"))


def blocks(page):
    """Give the blocks of a page, with their language."""
    return re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / page).read_text(), re.S | re.M)


def commands(page):
    """Give the commands that a page shows, in order, but for those of the federation, which have tests of their own."""
    lines = [
        line.split("#")[0].strip() for kind, block in blocks(page) if kind in ("", "sh") for line in block.splitlines()
    ]
    found = [line.removeprefix(".venv/bin/") for line in lines]
    return [line for line in found if line.startswith("mixfed") and " federate " not in line]


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize(("page", "least"), [("README.md", 6), ("docs/tutorial.md", 3)])
def test_the_page_runs(page, least, tmp_path):
    assert len(commands(page)) >= least
    for line in commands(page):
        done = run(shlex.split(line), tmp_path)
        assert done.returncode == 0, (line, done.stderr)
    code = [block for kind, block in blocks(page) if kind == "python"]
    assert code
    for block in code:
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-c", block], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()
