"""Simulated clients have the shape that their design asks for."""

from __future__ import annotations

import numpy as np
import pytest

from mixfed import SettingsError, bottleneck_distance, simulate
from mixfed.evaluation.simulation import FAMILIES
from mixfed.recipes.paper.theory import least_gap


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_follows_its_own_model(family):
    made = simulate(family, n_clients=3000, seed=1)
    noise = made.design.noise
    owner = np.repeat(made.labels, made.clients.rows)
    residual = made.clients.y - np.einsum("nd,nd->n", made.clients.phi, made.theta[owner])
    assert residual.std() == pytest.approx(noise, rel=0.05)
    assert bottleneck_distance(made.oracle(), made.theta) < 0.6
    weights = np.array(made.design.weights or [1 / len(made.theta)] * len(made.theta))
    np.testing.assert_allclose(np.bincount(made.labels) / 3000, weights / weights.sum(), atol=0.04)


def test_most_clients_have_two_to_four_rows_and_a_few_many():
    made = simulate(n_clients=20_000, dim=2, n_clusters=2, n_anchors=24, anchor_rows=1000)
    rows = made.clients.rows
    assert np.mean((rows >= 2) & (rows <= 4)) > 0.7
    assert np.sum(rows == 1000) == 24
    assert rows.min() == 2


def test_nested_pairs_are_at_distance_one_around_far_centres():
    theta = simulate("nested", n_clients=10).theta
    pairs = theta.reshape(2, 2, -1)
    np.testing.assert_allclose(np.linalg.norm(pairs[:, 0] - pairs[:, 1], axis=1), 1.0)
    np.testing.assert_allclose(np.linalg.norm(pairs.mean(axis=1), axis=1), 2.0)


@pytest.mark.parametrize(("k", "dim", "least"), [(3, 2, 1.0), (5, 3, 1.0), (4, 1, 0.9), (4, 4, 2.0)])
def test_models_are_well_apart_even_where_there_are_more_than_features(k, dim, least):
    for seed in range(5):
        assert least_gap(simulate(n_clients=10, dim=dim, n_clusters=k, radius=1.5, seed=seed).theta) > least


def test_mirror_clusters_are_opposite():
    theta = simulate("mirror", n_clients=10).theta
    np.testing.assert_allclose(theta[0], -theta[1])


def test_skewed_covariances_have_the_spread_asked_for_and_differ_by_kind():
    made = simulate("skewed", n_clients=30_000, dim=5, seed=3)
    owner = np.repeat(made.labels, made.clients.rows)
    covariances = [np.cov(made.clients.phi[owner == j].T) for j in range(3)]
    for covariance in covariances:
        eigenvalues = np.linalg.eigvalsh(covariance)
        assert eigenvalues[-1] / eigenvalues[0] == pytest.approx(6, rel=0.15)
    assert np.linalg.norm(covariances[0] - covariances[1]) > 0.5


@pytest.mark.parametrize("law", ["normal", "uniform", "rademacher"])
def test_features_have_mean_zero_and_variance_one(law):
    phi = simulate(n_clients=5000, dim=3, n_clusters=2, law=law).clients.phi
    np.testing.assert_allclose(phi.mean(axis=0), 0, atol=0.04)
    np.testing.assert_allclose(phi.var(axis=0), 1, atol=0.05)


def test_polynomial_features_are_monomials_of_second_moment_one():
    clients = simulate(n_clients=500, dim=2, n_clusters=2, degree=2).clients
    assert clients.features == ("x_0", "x_1", "x_0^2", "x_0*x_1", "x_1^2")
    np.testing.assert_allclose(np.mean(clients.phi**2, axis=0), 1)
    ratio = clients.phi[:, 3] / (clients.phi[:, 0] * clients.phi[:, 1])
    np.testing.assert_allclose(ratio, ratio[0])


def test_families_may_be_named_with_underscores():
    named = [simulate(name, n_clients=20).theta for name in ("nested-unbalanced", "nested_unbalanced")]
    np.testing.assert_array_equal(*named)


def test_same_seed_same_clients_and_other_seed_others():
    first, again, other = (simulate("rare", n_clients=50, seed=seed) for seed in (4, 4, 5))
    np.testing.assert_array_equal(first.clients.phi, again.clients.phi)
    np.testing.assert_array_equal(first.labels, again.labels)
    assert np.any(first.theta != other.theta)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"what": "nosuch"}, "unknown family 'nosuch'; choose from nested"),
        ({"what": "nested", "n_clusters": 3}, "come in pairs"),
        ({"noise": -1.0}, "noise = -1.0"),
        ({"weights": (0.5, 0.5), "n_clusters": 3}, "weights"),
    ],
)
def test_impossible_designs_are_refused(arguments, message):
    with pytest.raises(SettingsError, match=message):
        simulate(**arguments)


@pytest.mark.parametrize(("target", "level"), [("binomial", -1.0), ("poisson", 0.5)])
def test_classes_and_counts_follow_their_linear_predictor(target, level):
    made = simulate(n_clients=4000, dim=3, n_clusters=2, radius=0.8, target=target, level=level, seed=3)
    owner = np.repeat(made.labels, made.clients.rows)
    eta = np.einsum("nd,nd->n", made.clients.phi, made.theta[owner]) + level
    mean = 1 / (1 + np.exp(-eta)) if target == "binomial" else np.exp(eta)
    variance = mean * (1 - mean) if target == "binomial" else mean
    left = (made.clients.y - mean) / np.sqrt(variance)
    assert left.mean() == pytest.approx(0.0, abs=0.04)
    assert left.std() == pytest.approx(1.0, abs=0.04)
    np.testing.assert_allclose(made.oracle(), made.theta, atol=0.15)
    with pytest.raises(SettingsError, match="target = 'wavy'"):
        simulate(target="wavy")
