"""The ways to the maximum: soft, hard and by local updates, of all clients or of a sample."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.auto import FEW, fit
from helpers.packed import panel
from mixfed import AutoSettings, LocalPool, SettingsError, bottleneck_distance, fit_auto, simulate
from mixfed.recipes.auto import refine


@pytest.mark.slow
def test_soft_memberships_beat_hard_labels_when_clients_have_few_rows():
    ratios = []
    for seed in range(4):
        made = simulate("noisy", n_clients=15_000, seed=seed, **FEW)
        soft, hard = (fit(made.clients, 3, membership=name).model.theta for name in ("soft", "hard"))
        ratios.append(bottleneck_distance(hard, made.theta) / bottleneck_distance(soft, made.theta))
    assert np.median(ratios) > 1.5


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"update": "fedprox", "step": 0.3}, {"update": "fedavg", "step": 0.02}])
def test_local_updates_reach_the_floor_from_the_anchors_candidates(settings):
    made = simulate(n_clients=3000, dim=5, n_clusters=3, seed=1)
    floor = bottleneck_distance(made.oracle(), made.theta)
    found = fit(made.clients, 3, **settings)
    assert bottleneck_distance(found.model.theta, made.theta) < 1.3 * floor
    assert {record["phase"] for record in found.trace} == {"survey", "local updates"}
    assert found.stop in ("the models stopped moving", "all rounds were run")


def test_local_updates_that_diverge_are_refused():
    made = simulate(n_clients=500, dim=5, n_clusters=2, seed=1)
    with pytest.raises(SettingsError, match="diverge at step = 9"):
        fit(made.clients, 2, update="fedavg", step=9.0)


def test_a_step_that_cannot_be_taken_on_the_way_is_left_out(monkeypatch):
    clients = simulate("mirror", n_clients=60_000, dim=5).clients
    expected = fit_auto(LocalPool(clients), clients.features, 2).model
    real, calls = refine.newton, []

    def newton(candidates, *arguments):
        found = real(candidates, *arguments)
        if arguments[3] == (1.0,):  # as polish asks
            calls.append(found)
            if len(calls) == 1:
                return candidates.pick([]), np.inf
        return found

    monkeypatch.setattr(refine, "newton", newton)
    found = fit_auto(LocalPool(clients), clients.features, 2)
    assert len(calls) > 1
    np.testing.assert_allclose(found.model.theta, expected.theta, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [AutoSettings(membership="hard"), AutoSettings(update="fedprox")])
def test_other_refinements_find_as_many_kinds_on_a_sample(settings):
    clients = simulate("noisy", n_clients=20_000, dim=4, radius=3.0, seed=0).clients
    model = fit_auto(LocalPool(clients), clients.features, None, settings).model
    assert model.n_clusters == 3
    assert model.details["searched_clients"] == clients.n_clients


def test_hard_labels_end_in_single_precision():
    clients, _ = panel(4000, (2, 8), kind=np.float32)
    found = fit_auto(LocalPool(clients), clients.features, 2, AutoSettings(membership="hard"))
    assert found.stop == "no client changed its kind"
    assert found.traffic.exchanges < 30
