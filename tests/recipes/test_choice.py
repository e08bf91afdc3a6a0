"""The family is found where the user leaves it open."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from helpers.families import simulated
from mixfed import AutoSettings, Clients, LocalPool, MixedRegressor, SettingsError
from mixfed.recipes import fit


@pytest.mark.parametrize("family", ["binomial", "poisson"])
def test_classes_and_counts_are_known(family):
    clients = simulated(family)[0]
    found = fit(LocalPool(clients), clients.features, 2, AutoSettings(), loss="auto")
    assert found.model.family == family
    tried = {one["family"]: one for one in found.model.details["families"]}
    assert set(tried) == ({"binomial"} if family == "binomial" else {"gaussian", "poisson"})
    assert [name for name, one in tried.items() if one["chosen"]] == [family]
    assert tried[family]["bic"] == found.model.bic
    assert len(found.trace) == found.traffic.exchanges - 1  # but for the census that it began with


def test_whole_numbers_that_are_no_counts_stay_numbers():
    clients = simulated("poisson")[0]
    rng = np.random.default_rng(0)
    for level, spread in ((900.0, 100.0), (7.0, 1.0)):
        y = np.maximum(np.round(level + spread * rng.standard_normal(clients.n_rows)), 0.0)
        whole = Clients(clients.phi, y, clients.offsets, clients.ids, clients.features)
        assert fit(LocalPool(whole), clients.features, 1, AutoSettings(), loss="auto").model.family in (
            "gaussian",
            "student",
        )
    owner = np.repeat(clients.ids, clients.rows)
    assert MixedRegressor(1, family="auto").fit(clients.phi, y, groups=owner).model_.family == "gaussian"
    with pytest.raises(SettingsError, match="unknown family"):
        MixedRegressor(1, family="any").fit(clients.phi, y, groups=owner)


@pytest.mark.realdata
@pytest.mark.skipif("MIXFED_DATA" not in os.environ, reason="MIXFED_DATA names no folder with real tables")
@pytest.mark.parametrize("name", ["konza_bison", "movietweetings_100k"])
def test_pounds_and_marks_stay_numbers(name):
    if "MIXFED_DATA" not in os.environ:
        pytest.skip("MIXFED_DATA names no folder with the real data sets")
    path = Path(os.environ["MIXFED_DATA"]) / f"{name}.parquet"
    features = [column for column in pq.read_schema(path).names if column.startswith("x_")]
    clients = Clients.from_file(path, "client", "y", features)
    found = fit(LocalPool(clients), clients.features, 2, AutoSettings(), loss="auto")
    assert found.model.family == "gaussian"


def test_heavy_tails_are_known():
    clients = simulated("poisson")[0]
    rng = np.random.default_rng(1)
    y = clients.phi[:, 0] + rng.standard_t(2.0, clients.n_rows)
    heavy = Clients(clients.phi, y, clients.offsets, clients.ids, clients.features)
    found = fit(LocalPool(heavy), clients.features, 1, AutoSettings(), loss="auto").model
    assert found.family == "student"
    assert [one["family"] for one in found.details["families"]] == ["gaussian", "student"]
