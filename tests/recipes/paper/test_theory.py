"""The paper's quantities, against their definitions."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from mixfed.exchange.local_update import FedAvg, FedProx
from mixfed.recipes.paper import theory


def example(**changes):
    arguments = {
        "sizes": np.array([1, 3, 4]),
        "counts": np.array([2, 4, 1]),
        "peak": 5.0,
        "kind_rows": np.array([12.0, 6.0]),
        "theta": np.array([[1.0, 0.0], [0.0, 1.0]]),
        "noise": 0.7,
        "update": FedAvg(0.1, 3),
    }
    return theory.predict(**(arguments | changes))


def test_quantities_equal_their_definitions():
    rows = np.array([1, 1, 3, 3, 3, 3, 4])
    found = example()
    gamma = 0.1 * 5
    kappa = gamma * 3 / (1 - (1 - gamma) ** 3)
    shares = rows / rows.sum()
    delta = math.sqrt(2)
    errors = np.minimum(1, 4 * 2 * np.exp(-rows * min(1, delta**2 / 0.49) ** 2))
    chi2 = np.sum((shares - 1 / 7) ** 2 / (1 / 7))
    nu = np.sum(rows * errors) / rows.sum() + math.sqrt(2 * 2 * math.log(2) / 7 * (chi2 + 1))
    assert found.gamma == pytest.approx(gamma)
    assert found.kappa == pytest.approx(kappa)
    assert found.rho == pytest.approx(6 / 18)
    assert found.chi2 == pytest.approx(chi2)
    assert found.separation == pytest.approx(delta)
    assert found.nu == pytest.approx(nu)
    assert found.p_e == pytest.approx(min(1, 8 * math.exp(-3)))
    assert found.contraction == pytest.approx(1 - 3 * 0.1 * (1 / 3) / kappa)
    if nu < delta:
        assert found.rounds == math.ceil(kappa / (3 * 0.1 / 3) * math.log(delta / nu))


def test_constants_enter_where_the_paper_has_them():
    wide = example(constants=theory.Constants(error=2.0, deviation=0.0, contraction=0.5))
    assert wide.p_e == pytest.approx(8 * math.exp(-6))
    assert 1 - wide.contraction == pytest.approx(0.5 * (1 - example().contraction))


def test_clients_of_any_size_take_no_room():
    one = example(sizes=np.array([10**12]), counts=np.array([4]))
    assert (one.p_e, one.chi2) == (0, pytest.approx(0))
    assert one.p_e_rows == 10**12


def test_equal_clients_have_no_skew_and_one_kind_no_errors():
    assert example(sizes=np.array([2]), counts=np.array([9])).chi2 == pytest.approx(0, abs=1e-12)
    single = example(theta=np.ones((1, 2)), kind_rows=np.array([18.0]))
    assert single.nu == 0
    assert single.rounds is None
    assert single.as_dict()["separation"] is None
    assert single.rho == 1


def test_nothing_pulls_an_empty_kind():
    settled = {"sizes": np.array([40]), "counts": np.array([99]), "constants": theory.Constants(deviation=0.1)}
    full, empty = (example(kind_rows=np.array(rows), **settled) for rows in ([12.0, 6.0], [18.0, 0.0]))
    assert full.rounds > 0
    assert (empty.rho, empty.contraction, empty.rounds) == (0, 1, None)


@pytest.mark.parametrize("gamma", [1e-14, 1e-9, 0.3, 0.999])
def test_kappa_of_fedavg_is_accurate_even_for_tiny_steps(gamma):
    exact = 4 / sum((1 - gamma) ** power for power in range(4))
    assert theory.stability(FedAvg(1.0, 4), gamma) == pytest.approx(exact, rel=1e-12)
    assert theory.stability(FedProx(1.0), gamma) == 1 + gamma


def test_every_quantity_is_described():
    found = example()
    names = {name for name, _, _ in found.described()}
    assert names | {"p_e_rows"} == {field.name for field in dataclasses.fields(found)}
