"""What a kind stands out by."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.report import some_fit
from mixfed import LocalPool, Model, fit_auto
from mixfed.clients.packed import Clients
from mixfed.model.traits import by_difference, traits


def test_columns_in_large_units_do_not_look_important():
    model = some_fit(spread=[1.0, 0.001]).model
    assert by_difference(model).tolist() == [0, 1]
    assert by_difference(some_fit().model).tolist() == [1, 0]
    trait = traits(some_fit().model, 1, 1)[0]
    assert (trait.name, trait.value, trait.others) == ("b", -3.0, 5.0)


def test_kinds_can_stand_out_by_their_level_and_their_noise():
    rng = np.random.default_rng(0)
    label = np.repeat(np.arange(300) % 3, 6)
    X = rng.normal(50, 1, (len(label), 1))
    y = 2 * X[:, 0] + np.array([0.0, 30.0, 0.0])[label] + np.array([1.0, 1.0, 9.0])[label] * rng.normal(size=len(label))
    clients = Clients.from_arrays(X, y, np.repeat(np.arange(300), 6), intercept=True, features=("x",))
    model = fit_auto(LocalPool(clients), clients.features, 3).model
    high, loud = int(np.argmax(model.intercept + 50 * model.coef[:, 0])), int(np.argmax(model.noise))
    assert traits(model, high)[0].name == "usual level"
    assert traits(model, high)[0].value == pytest.approx(130, abs=1)
    assert traits(model, loud)[0].name in ("noise", "usual level")
    assert any(trait.name == "noise" and trait.value == pytest.approx(9, rel=0.1) for trait in traits(model, loud))


def test_a_kind_does_not_stand_out_by_what_is_not_sure():
    fit = some_fit()
    unsure = Model(**{**vars(fit.model), "coef_error": np.full((3, 2), 10.0)})
    assert [trait.name for trait in traits(unsure, 1)] == ["noise"]
