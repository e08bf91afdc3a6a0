"""What is shown of a fit."""

from __future__ import annotations

import json
import re

from helpers.command_line import mixfed


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
