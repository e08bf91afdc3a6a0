"""Student's t: heavy tails and outliers, and degrees of freedom that are found."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from helpers.federations import split
from mixfed import AutoSettings, Clients, LocalPool, MixedRegressor, Model, SettingsError, bottleneck_distance, fit_auto
from mixfed.federation import InProcess, Job, conduct


def heavy(seed=0, nu=3.0, k=2, n_clients=400):
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal((k, 4)) * 1.5
    sizes = rng.integers(4, 12, n_clients)
    owner, labels = np.repeat(np.arange(n_clients), sizes), rng.integers(k, size=n_clients)
    x = rng.standard_normal((len(owner), 3))
    eta = np.einsum("nd,nd->n", np.column_stack([x, np.ones(len(x))]), theta[labels[owner]])
    y = eta + 0.5 * (rng.standard_t(nu, len(x)) if nu else rng.standard_normal(len(x)))
    return Clients.from_arrays(x, y, owner, intercept=True), theta


def fitted(clients, k, family="student"):
    return fit_auto(LocalPool(clients), clients.features, k, AutoSettings(family=family))


def test_one_kind_is_at_the_maximum_of_the_likelihood():
    clients, _ = heavy(k=1)
    found = fitted(clients, 1)
    model = found.model
    left = clients.y - clients.design @ model.theta[0]

    def likelihood(nu, scale, shift=0.0):
        return stats.t.logpdf(left - shift, nu, scale=scale).sum()

    best = likelihood(model.degrees, model.noise[0])
    assert model.log_likelihood == pytest.approx(best, rel=1e-9)
    for nu, scale, shift in ((1.05, 1, 0), (0.95, 1, 0), (1, 1.01, 0), (1, 0.99, 0), (1, 1, 0.01), (1, 1, -0.01)):
        assert likelihood(nu * model.degrees, scale * model.noise[0], shift) < best
    assert 2.3 < model.degrees < 4.0
    assert found.stop == "the likelihood is at its maximum"


def test_heavy_tails_cost_less_than_a_normal_target_does():
    gains = []
    for seed in range(3):
        clients, theta = heavy(seed)
        student, normal = fitted(clients, 2).model, fitted(clients, 2, "gaussian").model
        gains.append(bottleneck_distance(student.theta, theta) / bottleneck_distance(normal.theta, theta))
        assert student.bic < normal.bic
        covered = np.abs(
            student.theta - theta[np.argsort(np.linalg.norm(theta[:, None] - student.theta, axis=2), axis=0)[0]]
        )
        assert np.mean(covered < 3.0 * student.theta_error) > 0.9
    assert np.mean(gains) < 0.95


def test_normal_targets_have_many_degrees_of_freedom_and_the_same_models():
    clients, _ = heavy(nu=None)
    student, normal = fitted(clients, 2).model, fitted(clients, 2, "gaussian").model
    assert student.degrees > 25
    np.testing.assert_allclose(student.theta, normal.theta, atol=0.02)


def test_the_model_is_kept_and_predicts(tmp_path):
    clients, _ = heavy()
    owner = np.repeat(clients.ids, clients.rows)
    fit = MixedRegressor(2, family="student").fit(clients.phi, clients.y, groups=owner)
    fit.model_.save(tmp_path / "model.json")
    again = Model.load(tmp_path / "model.json")
    assert again.degrees == fit.model_.degrees
    np.testing.assert_array_equal(again.assign(clients).probabilities, fit.client_proba_)
    low, high = fit.predict_interval(clients.phi, groups=owner, level=0.9).T
    assert np.mean((low <= clients.y) & (clients.y <= high)) == pytest.approx(0.9, abs=0.03)
    fit.report(tmp_path / "report.html")


def test_sites_find_what_all_clients_in_one_place_do(tmp_path):
    clients, _ = heavy()
    found = conduct(InProcess(split(clients, 4)), Job(2, settings={"family": "student"}), tmp_path).model
    expected = fitted(clients, 2).model
    np.testing.assert_allclose(found.theta, expected.theta, atol=1e-6)
    assert found.degrees == pytest.approx(expected.degrees, rel=1e-4)


def test_what_it_does_not_go_with_says_so():
    with pytest.raises(SettingsError, match="student goes with update = 'exact'"):
        AutoSettings(family="student", update="fedprox")
    with pytest.raises(SettingsError, match="degrees of freedom"):
        AutoSettings(family="student:x")
