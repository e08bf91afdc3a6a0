"""Fits of real tables, where they are at hand (MIXFED_DATA)."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from helpers.auto import fit
from mixfed import Clients, LocalPool, fit_auto
from mixfed.evaluation.baselines.em import EM
from mixfed.evaluation.compare import compare
from mixfed.tables.rows import rows_from_arrays

pytestmark = pytest.mark.realdata


@pytest.mark.parametrize("name", ["konza_bison", "lahman_fielding_1954_2024"])
def test_real_data_is_fitted_as_well_as_by_the_best_of_many_random_starts(name):
    if "MIXFED_DATA" not in os.environ:
        pytest.skip("MIXFED_DATA names no folder with the real data sets")
    pd = pytest.importorskip("pandas")
    table = pd.read_parquet(Path(os.environ["MIXFED_DATA"]) / f"{name}.parquet")
    X = table.filter(regex="^x_").to_numpy()
    clients = Clients.from_arrays(
        (X - X.mean(axis=0)) / X.std(axis=0), table["y"].to_numpy(), table["client"].to_numpy(), intercept=True
    )
    em, rng = EM(clients), np.random.default_rng(0)
    for k in (2, 3):
        best = max(em.climb(em.at_random(k, rng), steps=60)[1] for _ in range(6))
        assert fit(clients, k).model.details["likelihood"] > best - 0.5


def real(name):
    """Rows of a real table, and the table."""
    folder = os.environ.get("MIXFED_DATA")
    if folder is None or not (Path(folder) / f"{name}.parquet").exists():
        pytest.skip(f"MIXFED_DATA names no folder with {name}.parquet")
    table = pq.read_table(Path(folder) / f"{name}.parquet").to_pandas()
    features = [column for column in table.columns if column.startswith("x_")]
    return table[features].to_numpy(float), table["y"].to_numpy(float), table["client"].to_numpy(), table


def test_two_kinds_of_bison_are_the_sexes():
    from sklearn.metrics import adjusted_rand_score

    X, y, client, table = real("konza_bison")
    clients = Clients.from_arrays(X, y, client, intercept=True)
    model = fit_auto(LocalPool(clients), clients.features, 2).model
    known = model.assign(clients)
    about = table.groupby("client").agg(age=("m_age", "max"), sex=("z_sex", "first")).loc[known.ids]
    grown = (about["age"] >= 4).to_numpy()
    assert adjusted_rand_score(about["sex"][grown], known.cluster[grown]) >= 0.9


def test_kinds_with_deviations_are_no_worse_on_bison():
    X, y, client, _ = real("konza_bison")
    rows = rows_from_arrays(X, y, client, intercept=True)
    rivals = ["one model", "random intercept", "ridge to the common model", "mixed model", "kinds + personal"]
    result = compare(rows, splits=1, rivals=rivals)
    *others, best = result.outcomes
    assert best.rmse <= 1.003 * min(one.rmse for one in others)
