"""The commands to try mixfed with."""

from __future__ import annotations

import json
import os

import numpy as np
import pandas as pd
import pytest

from helpers.command_line import run_process


def test_simulate_writes_the_truth_beside_the_table(table):
    truth = json.loads(table.with_name("t.truth.json").read_text())
    frame = pd.read_parquet(table)
    assert list(frame.columns) == ["client", "y", "x_0", "x_1", "x_2", "x_3"]
    assert frame.client.nunique() == len(truth["labels"]) == 2000
    assert np.shape(truth["coef"]) == (2, 4)


@pytest.mark.process
@pytest.mark.slow
def test_demo_compares_with_the_truth(tmp_path):
    environment = os.environ | {"COLUMNS": "120"}
    process = run_process("demo", "--out", tmp_path / "demo", env=environment)
    said, complaint = process.communicate(timeout=300)
    assert process.returncode == 0, complaint
    assert "Against the truth: error 0.0" in said
    assert (tmp_path / "demo" / "model.json").exists()
