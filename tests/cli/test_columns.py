"""What is told of a table's columns."""

from __future__ import annotations

import pytest

from helpers.command_line import mixfed
from helpers.tables import table

pytestmark = pytest.mark.usefixtures("many_batches")


def test_fit_shows_notes_unless_json_is_asked_for(tmp_path):
    table().to_csv(tmp_path / "t.csv", index=False)
    command = ("fit", tmp_path / "t.csv", "--client", "store", "--target", "sales", "--clusters", 1, "--out")
    assert "left out: 'town'" in mixfed(*command, tmp_path / "a").stdout
    assert "left out" not in mixfed(*command, tmp_path / "b", "--json").stdout
    assert "left out" not in mixfed(*command, tmp_path / "c", "--features", "price").stdout
