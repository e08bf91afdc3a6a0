"""Columns that the command does not name are shown."""

from __future__ import annotations

import re

import pytest

from helpers.bad_input import everything_in
from helpers.command_line import assert_one_line, mixfed

LISTED = r"""Columns of good.csv \(120 rows\)
.*
│ store  │ whole numbers │       30 │ 0 +│ client\? │
│ price  │ numbers +│ +\d+ │ -?[\d.]+ +│ +│
│ size   │ numbers +│ +\d+ │ -?[\d.]+ +│ +│
│ sales  │ numbers +│ +\d+ │ -?[\d.]+ +│ target\? │
"""


@pytest.mark.parametrize(
    ("command", "more", "missing", "example"),
    [
        ("fit", "--out out", "--client and --target", "--client store --target sales --out result"),
        ("fit", "--out out --client store", "--target", "--client store --target sales --out result"),
        ("pack", "--out out --target price", "--client", "--client store --target price --out packed"),
        ("federate local", "", "--client and --target", "--client store --target sales"),
    ],
)
def test_columns_that_are_not_named_are_shown_to_choose_from(work, command, more, missing, example):
    before = everything_in(work)
    result = mixfed(*command.split(), "good.csv", *more.split())
    assert result.exit_code == 2
    assert (
        result.stderr == f"mixfed: good.csv: give {missing}; the columns are store, price, size, sales; "
        f"for example `mixfed {command} good.csv {example}`\n"
    )
    if "price" not in more:
        assert re.search(LISTED, re.sub(r" +\n", "\n", result.stdout), re.DOTALL), result.stdout
    assert everything_in(work) == before


def test_with_json_the_columns_are_not_shown(work):
    result = mixfed("fit", "good.csv", "--out", "out", "--json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert_one_line(result, "good.csv: give --client and --target; the columns are")
