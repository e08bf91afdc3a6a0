"""Jobs as people write them."""

from __future__ import annotations

import pytest

from mixfed import SettingsError
from mixfed.federation import Job


def test_jobs():
    job = Job(4, settings={"noise": "shared"}, seed=7)
    assert Job.from_json(job.to_json()) == job
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
    with pytest.raises(SettingsError, match="unknown key"):
        Job.from_json('{"kinds": 3}')
    with pytest.raises(SettingsError, match="not a job"):
        Job.from_json("{")
