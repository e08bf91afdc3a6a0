"""A table, written plainly."""

from __future__ import annotations

import pytest

from helpers.tables import table
from mixfed import Clients
from mixfed.tables import sources as streams


@pytest.fixture
def many_batches(monkeypatch):
    """Small tables are several batches, too, and blocks hold some rows of many columns."""
    monkeypatch.setattr(streams, "BATCH_ROWS", 37)
    monkeypatch.setattr(streams, "BLOCK_BYTES", 900)


@pytest.fixture(scope="session")
def plain(tmp_path_factory):
    """The clients of the table as a plain CSV file."""
    path = tmp_path_factory.mktemp("plain") / "t.csv"
    table().to_csv(path, index=False)
    return Clients.from_file(path, "store", "sales")
