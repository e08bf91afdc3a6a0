"""Steps among covariances: none leads outside, and the best is found."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from mixfed.core.symmetric import doubled, packed, unpacked
from mixfed.recipes.personal.psd_newton import PsdConstraint, maximise_barrier, unbound


@pytest.mark.parametrize("full", [True, False])
def test_the_way_within_the_cone_starts_where_each_eigenvalue_is_best(full):
    """mu log x - h (x - value)^2 / 2 has its maximum where h x (x - value) = mu."""
    rng, mu = np.random.default_rng(8), 0.3
    numbers = packed(np.diag([-2.0, 0.5, 1.0])) if full else np.array([-2.0, 0.5, 1.0])
    half = rng.standard_normal((len(numbers), len(numbers)))
    curvature, cone = half @ half.T + np.eye(len(numbers)), PsdConstraint(1, 3, full)
    found = cone.lifted(numbers, curvature, mu, np.zeros(1))
    own = np.array([0, 2, 5]) if full else np.arange(3)
    np.testing.assert_allclose(np.diag(curvature)[own] * found[own] * (found - numbers)[own], mu)
    np.testing.assert_allclose(np.delete(found, own), 0, atol=1e-12)
    assert cone.inside(found)
    np.testing.assert_allclose(cone.lifted(numbers, curvature, mu, np.full(1, 9.0))[own], 9.0)


@pytest.mark.parametrize("full", [True, False])
def test_a_step_within_the_cone_is_the_best_one(full):
    """No covariance drawn at random is better; the optimality conditions hold."""
    rng = np.random.default_rng(4)
    dim, size = 3, 6 if full else 3
    half = rng.standard_normal((size + 2, size + 2))
    curvature, slope = half @ half.T + 0.1 * np.eye(size + 2), 3 * rng.standard_normal(size + 2)
    now = packed(np.eye(dim)) if full else np.ones(dim)
    slope[2:] -= 5 * curvature[2:, 2:] @ now
    step, gain = maximise_barrier(
        curvature, slope, unbound(curvature, slope), now, PsdConstraint(1, dim, full), np.array([1e-6])
    )
    psi = unpacked(now + step[2:], dim) if full else np.diag(now + step[2:])
    assert np.linalg.eigvalsh(psi).min() >= 0
    lean = (slope - curvature @ step)[2:]
    lean = unpacked(lean / doubled(dim), dim) if full else np.diag(lean)
    assert np.abs((slope - curvature @ step)[:2]).max() < 1e-6
    assert np.linalg.eigvalsh(lean).max() < 0.1 * np.abs(slope).max()
    assert -0.1 * gain < np.trace(lean @ psi) < 0
    assert np.linalg.eigvalsh(psi).min() < 0.05  # the edge is reached at all


def steep_problem(seed, full):
    """Two covariances near the edge, Fisher's information of many clients, and a step that leads far outside."""
    rng, k, dim, free = np.random.default_rng([seed, full]), 2, 3, 4
    axes = np.linalg.qr(rng.standard_normal((k, dim, dim)))[0] if full else np.tile(np.eye(dim), (k, 1, 1))
    now = (axes * 10 ** rng.uniform(-3, 0, (k, 1, dim))) @ axes.swapaxes(1, 2)
    units = unpacked(np.eye(6), dim) if full else np.eye(dim)[:, :, None] * np.eye(dim)[:, None]
    half = rng.standard_normal((free + k * len(units),) * 2)
    curvature = half @ half.T + 0.1 * np.eye(len(half))
    for j in range(k):
        precise = np.linalg.inv(now[j] + 0.01 * np.eye(dim))
        own = slice(free + j * len(units), free + (j + 1) * len(units))
        curvature[own, own] += 30 * np.einsum("ab,pbc,cd,qda->pq", precise, units, precise, units)
    numbers = packed(now).ravel() if full else np.diagonal(now, 0, 1, 2).ravel()
    return curvature, curvature @ rng.standard_normal(len(half)), numbers, PsdConstraint(k, dim, full)


def best_gain(curvature, slope, numbers, cone):
    """Covariances as products of their roots have no edge: any method finds the maximum."""
    split, times = len(slope) - len(numbers), np.tile(doubled(cone.dim), cone.k) if cone.full else 1.0
    eyes = np.zeros_like(cone.matrices(numbers)) + np.eye(cone.dim if cone.full else 1)

    def loss(flat):
        root = flat[split:].reshape(eyes.shape)
        step = np.concatenate([flat[:split], cone.numbers(root @ root.swapaxes(1, 2)) - numbers])
        lean = slope - curvature @ step
        uphill = 2 * cone.matrices(lean[split:] / times) @ root
        return -0.5 * step @ (slope + lean), -np.concatenate([lean[:split], uphill.ravel()])

    start = np.concatenate([np.zeros(split), eyes.ravel()])
    return -minimize(loss, start, jac=True, method="BFGS", options={"maxiter": 2000}).fun


@pytest.mark.parametrize("full", [True, False])
def test_a_step_within_the_cone_gains_nine_tenths_of_the_best_one(full):
    for seed in range(60):
        curvature, slope, numbers, cone = steep_problem(seed, full)
        step, gain = maximise_barrier(curvature, slope, unbound(curvature, slope), numbers, cone, np.full(2, 1e-6))
        assert cone.inside(numbers + step[-len(numbers) :])
        assert 0.9 <= gain / best_gain(curvature, slope, numbers, cone) < 1 + 1e-6
