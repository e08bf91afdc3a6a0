"""Folders that version 0.1 wrote are read as ever: those of a fit and those of packed tables."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from helpers.command_line import mixfed

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture
def before(tmp_path):
    for name in ("result-1", "packed-1"):
        shutil.copytree(FIXTURES / name, tmp_path / name)
    return tmp_path


def test_a_result_of_before_is_reported_and_predicts(before):
    result, packed = before / "result-1", before / "packed-1"
    assert json.loads((result / "model.json").read_text())["format"] == "mixfed/1"
    done = mixfed("report", result, "--card", before / "card.md", "--coef", before / "coefficients.csv")
    assert done.exit_code == 0, done.output
    assert "From a sample" not in (result / "report.html").read_text()
    assert mixfed("theory", result, "--json").exit_code == 0
    done = mixfed("assign", result, packed, "--out", before / "kinds.csv")
    assert done.exit_code == 0, done.output
    lines = (before / "kinds.csv").read_text().splitlines()
    assert len(lines) == 61
    assert '"effects_0_1"' in lines[0]  # a column for each number of a list


def test_a_packed_table_of_before_is_fitted(before):
    done = mixfed("fit", before / "packed-1", "--clusters", "2", "--out", before / "again", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["n_clusters"] == 2
