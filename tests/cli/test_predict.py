"""What is known of a client is used for its predictions."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from helpers.command_line import mixfed
from mixfed import Model, simulate


def test_assign_gives_the_clients_of_the_fit_what_the_fit_gave_them(table, fitted, tmp_path):
    out, _ = fitted
    assert mixfed("assign", out, table, "--out", tmp_path / "kinds.parquet").exit_code == 0
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "kinds.parquet"), pd.read_parquet(out / "clients.parquet"))


def test_predict_uses_what_is_known_of_each_client(table, fitted, tmp_path):
    out, _ = fitted
    model = json.loads((out / "model.json").read_text())
    everything = pd.read_parquet(table)
    frame = everything.sample(500, random_state=0)
    history = everything.drop(frame.index).assign(client=everything.client + 10**6)
    new = frame.drop(columns="y").assign(client=frame.client + 10**6)
    frame.drop(columns="y").to_csv(tmp_path / "known.csv", index=False)
    new.to_csv(tmp_path / "new.csv", index=False)
    history.to_csv(tmp_path / "history.csv", index=False)
    for name, more in {"known": (), "new": (), "new2": ("--history", tmp_path / "history.csv")}.items():
        data = tmp_path / f"{name.rstrip('2')}.csv"
        result = mixfed("predict", out, data, *more, "--out", tmp_path / f"{name}.parquet")
        assert result.exit_code == 0, result.output
    x = frame[model["features"]].to_numpy()
    by_kind = x @ np.array(model["coef"]).T
    known, new, helped = (
        pd.read_parquet(tmp_path / f"{name}.parquet").prediction.to_numpy() for name in ("known", "new", "new2")
    )
    np.testing.assert_allclose(new, by_kind @ model["weights"])
    clients = pd.read_parquet(out / "clients.parquet").set_index("client")
    shares = clients.loc[frame.client, ["probability_0", "probability_1"]].to_numpy()
    np.testing.assert_allclose(known, np.sum(by_kind * shares, axis=1))
    error = {"known": known, "new": new, "helped": helped}
    error = {name: np.sqrt(np.mean((values - frame.y) ** 2)) for name, values in error.items()}
    assert error["known"] < error["helped"] < 0.5 * error["new"]  # all its rows, some, none


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("fitted_as", [int, float, str])
@pytest.mark.parametrize("asked_as", [int, float, str])
def test_predict_knows_clients_whose_numbers_became_floats_or_text(tmp_path, suffix, fitted_as, asked_as):
    made = simulate("mirror", n_clients=60, dim=2, seed=0)
    frame = pd.DataFrame(made.columns())

    def written(name, kind):
        path = (tmp_path / name).with_suffix(suffix)
        changed = frame.assign(client=frame.client.astype(kind))
        changed.to_csv(path, index=False) if suffix == ".csv" else changed.to_parquet(path, index=False)
        return path

    fit, asked = written("fit", fitted_as), written("asked", asked_as)
    columns = ("--client", "client", "--target", "y", "--clusters", 2, "--out", tmp_path / "out", "--quiet")
    assert mixfed("fit", fit, *columns).exit_code == 0
    done = mixfed("predict", tmp_path / "out", asked, "--out", tmp_path / "p.csv")
    assert "the kinds of 60 of 60 clients are known" in done.stdout
    known = mixfed("predict", tmp_path / "out", asked, "--history", fit, "--out", tmp_path / "h.csv")
    assert "the kinds of 60 of 60 clients are known" in known.stdout
    expected = Model.load(tmp_path / "out").predict(frame.drop(columns="client"))
    assert np.abs(pd.read_csv(tmp_path / "p.csv").prediction - expected).max() > 0.1  # not as of strangers
