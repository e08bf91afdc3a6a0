"""A workspace with a good table."""

from __future__ import annotations

import gzip
import shutil

import pytest

from helpers.bad_input import COLUMNS, good_table
from helpers.command_line import mixfed


@pytest.fixture(scope="session")
def workspace(tmp_path_factory):
    """A table in three formats, a packed one, a model, and a file in the way."""
    folder = tmp_path_factory.mktemp("bad")
    table = good_table()
    table.to_csv(folder / "good.csv", index=False)
    table.to_parquet(folder / "good.parquet", index=False)
    (folder / "good.csv.gz").write_bytes(gzip.compress((folder / "good.csv").read_bytes()))
    (folder / "file").write_text("in the way")
    (folder / "empty").mkdir()
    columns = COLUMNS.split()
    assert mixfed("pack", folder / "good.csv", *columns, "--out", folder / "packed").exit_code == 0
    fitted = mixfed("fit", folder / "good.csv", *columns, "--clusters", 2, "--out", folder / "result")
    assert fitted.exit_code == 0, fitted.output
    return folder


@pytest.fixture
def work(workspace, tmp_path, monkeypatch):
    """Go to a copy of the workspace."""
    shutil.copytree(workspace, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"
