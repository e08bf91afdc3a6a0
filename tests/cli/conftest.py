"""A table of two kinds and its fit by the paper's recipe."""

from __future__ import annotations

import json

import pytest

from helpers.command_line import CONFIG, fit_arguments, mixfed


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    made = mixfed(
        "simulate", "--clients", 2000, "--dim", 4, "--clusters", 2, "--anchors", 10, "--anchor-rows", 400,
        "--seed", 5, "--out", folder / "t.parquet",
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    (folder / "paper.toml").write_text(CONFIG.format(rounds=150))
    return folder / "t.parquet"


@pytest.fixture(scope="session")
def fitted(table, tmp_path_factory):
    out = tmp_path_factory.mktemp("fitted")
    result = mixfed(*fit_arguments(table, out, "--json"))
    assert result.exit_code == 0, result.output
    return out, json.loads(result.stdout)
