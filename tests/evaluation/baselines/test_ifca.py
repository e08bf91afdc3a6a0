"""IFCA, as others start it."""

from __future__ import annotations

from mixfed import LocalPool, bottleneck_distance, simulate
from mixfed.evaluation.baselines.ifca import fit_ifca


def test_ifca_from_the_truth_stays_near_it():
    made = simulate(n_clients=1000, dim=3, n_clusters=2, seed=0)
    theta = fit_ifca(LocalPool(made.clients), made.theta, step=0.5, rounds=100)
    assert bottleneck_distance(theta, made.theta) < 0.05
