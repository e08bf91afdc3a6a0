"""Jobs as people write them."""

from __future__ import annotations

import pytest

from mixfed import SettingsError
from mixfed.federation import Job
from mixfed.federation.flare.jobs import NamedJob


def test_jobs(tmp_path):
    named = NamedJob("first", Job(4, settings={"noise": "shared"}, seed=7), ("north", "south"), ("north",))
    named.save(tmp_path / "first.json")
    assert NamedJob.load(tmp_path / "first.json") == named
    for bad, complaint in (
        ({"recipe": "other"}, "unknown recipe 'other'"),
        ({"recipe": "paper"}, "separation is missing"),
        ({"recipe": "paper", "settings": {"separation": 1.0}}, "give n_clusters"),
        ({"settings": {"nois": "own"}}, "did you mean 'noise'"),
        ({"min_share": 1.5}, "must be 1 or less"),
        ({"tries": 0}, "tries = 0 must be 1 or more"),
        ({"tries": 2.5}, "tries = 2.5 is a float"),
        ({"seed": "x"}, "seed = 'x' is a str"),
        ({"seed": 2**63}, "more than the 64 bits"),
        ({"n_clusters": "3"}, "n_clusters = '3' is a str"),
        ({"min_share": float("nan")}, "min_share = nan must be"),
        ({"loss": "other"}, "unknown family"),
    ):
        with pytest.raises(SettingsError, match=complaint):
            Job(**bad)
    for text, complaint in (
        ('{"job": {"kinds": 3}}', "unknown key 'kinds'"),
        ('{"job": 3}', "not a run"),
        ("{", "not a run"),
    ):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(SettingsError, match=complaint):
            NamedJob.load(tmp_path / "bad.json")
