"""A journal is of one run only."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.paper import settings_for
from mixfed import LocalPool, SettingsError, simulate
from mixfed.exchange.journal import JournalPool, fingerprint
from mixfed.exchange.moments import GramSum
from mixfed.exchange.registry import MESSAGES


@pytest.fixture(scope="module")
def small():
    return simulate(n_clients=2000, dim=4, n_clusters=2, n_anchors=10, anchor_rows=400, seed=5)


def test_a_journal_of_other_data_or_settings_is_refused(small, tmp_path, monkeypatch):
    path, pool = tmp_path / "journal", LocalPool(small.clients)
    with pytest.raises(KeyboardInterrupt), JournalPool(pool, path, "one", resume=False):
        raise KeyboardInterrupt
    with pytest.raises(SettingsError, match="other data or settings"):
        JournalPool(pool, path, "two", resume=True)
    with JournalPool(pool, path, "two", resume=False) as fresh:
        assert fresh.traffic.exchanges == 0
    first = fingerprint(small.clients, settings_for(small))
    assert first != fingerprint(small.clients, settings_for(small, step=0.02))
    assert first != fingerprint(small.clients.subset(np.arange(1999)), settings_for(small))
    monkeypatch.setitem(MESSAGES, "ModelSum", GramSum)  # an earlier program's replies, made of other sums
    assert first != fingerprint(small.clients, settings_for(small))
