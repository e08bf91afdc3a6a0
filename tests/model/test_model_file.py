"""Models survive their files, and other files are refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from helpers.families import COUNTING, simulated
from mixfed import AutoSettings, DataError, LocalPool, fit_auto, simulate
from mixfed.exchange.local_update import Mixture
from mixfed.model.assignment import Assignment
from mixfed.model.model import Model
from mixfed.tables.rows import rows_from_arrays


@pytest.mark.parametrize("name", [f"model-{number}-{kind}.json" for number in (1, 2) for kind in ("plain", "personal")])
def test_models_of_each_format_are_read_as_ever(name, tmp_path):
    """Files that were written by a version with that format, of a fit that is repeated here."""
    made = simulate("mirror", n_clients=300, dim=2, seed=0).clients
    settings = AutoSettings(personal="personal" in name, max_clusters=3)
    now = fit_auto(LocalPool(made), made.features, None, settings).model
    then = Model.load(Path(__file__).parents[1] / "fixtures" / name)
    np.testing.assert_allclose(then.theta, now.theta, rtol=1e-9)
    np.testing.assert_array_equal(then.assign(made).cluster, now.assign(made).cluster)
    assert then.details["likelihood"] == pytest.approx(now.details["likelihood"])
    for old, new in zip(then.details["choice"], now.details["choice"], strict=True):
        assert old["bic"] == pytest.approx(new["bic"], abs=0.05)
        assert old["likelihood"] == pytest.approx(new["likelihood"], abs=0.05)
    then.save(tmp_path / "model.json")
    assert Model.load(tmp_path).to_dict() == then.to_dict()
    assert then.to_dict()["format"] == "mixfed/2"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not a model file"),
        ('{"format": "mixfed/9"}', "the format is 'mixfed/9', this version of mixfed reads 'mixfed/2' and 'mixfed/1'"),
        ('{"format": "mixfed/2"}', "damaged"),
        ('{"format": "mixfed/1"}', "damaged"),
        ('{"format": "mixfed/2", "flavour": "sweet"}', "this version of mixfed does not know flavour: update mixfed"),
    ],
)
def test_other_model_files_are_refused(tmp_path, content, message):
    (tmp_path / "model.json").write_text(content)
    with pytest.raises(DataError, match=message):
        Model.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noise": [1.0] * 5000}, "noise is not"),
        ({"weights": [1.0]}, "weights is not"),
        ({"intercept": []}, "intercept is not"),
        ({"coef": [[1.0, 2.0]]}, "coef is not"),
        ({"coef": []}, "damaged"),
        ({"noise": [-1.0, 1.0]}, "below 0"),
        ({"noise": [float("nan"), 1.0]}, "noise is not"),
        ({"has_intercept": "yes"}, "has_intercept is neither"),
    ],
)
def test_a_model_whose_parts_disagree_is_refused(tmp_path, change, message):
    mixture = Mixture(np.ones((2, 3)), np.array([0.5, 0.5]), np.ones(2))
    model = Model.from_mixture(mixture, ("a", "b", "c"), loss="squared", recipe="auto", seed=0)
    (tmp_path / "model.json").write_text(json.dumps(model.to_dict() | change))
    with pytest.raises(DataError, match=message):
        Model.load(tmp_path)


@pytest.mark.slow
def test_models_and_assignments_survive_their_files(tmp_path, two):
    X, _, owner, _, held, clients, model = two
    model.save(tmp_path / "model.json")
    content = json.loads((tmp_path / "model.json").read_text())
    assert content["personal"] is True
    assert np.shape(content["deviation"]) == (2, 3, 3)
    again = Model.load(tmp_path)
    known = model.assign(clients)
    table = pa.table(known.columns())
    read = Assignment.from_table(table, 2)
    rows = rows_from_arrays(X[held], None, owner[held], intercept=True)
    np.testing.assert_array_equal(again.predict_interval(rows, read), model.predict_interval(rows, known))
    np.testing.assert_array_equal(again.predict(rows, read), model.predict(rows, known))
    for name in ("factor", "personal", "deviation"):
        content.pop(name)
    assert not Model.from_json(json.dumps(content), "old").personal
    content["factor"] = [[[1.0]]]
    with pytest.raises(DataError, match="factor"):
        Model.from_json(json.dumps(content), "damaged")


@pytest.mark.parametrize("family", COUNTING)
def test_a_model_without_noise_comes_back_from_its_file(tmp_path, family):
    clients = simulated(family, n_clients=60)[0]
    model = fit_auto(LocalPool(clients), clients.features, 2, AutoSettings(family=family)).model
    model.save(tmp_path / "model.json")
    content = json.loads((tmp_path / "model.json").read_text())
    assert (content["family"], content["noise"]) == (family, None)
    assert content["log_likelihood"] == model.log_likelihood
    again = Model.load(tmp_path / "model.json")
    np.testing.assert_array_equal(again.assign(clients).probabilities, model.assign(clients).probabilities)
    for changed in ({"noise": [1.0, 1.0]}, {"loss": "squared"}, {"family": "wavy"}):
        (tmp_path / "model.json").write_text(json.dumps(content | changed))
        with pytest.raises(DataError):
            Model.load(tmp_path / "model.json")
