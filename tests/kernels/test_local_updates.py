"""Local updates against a plain loop: clients of all sizes, with few rows and with many, in every precision."""

import numpy as np
import pytest

from mixfed.kernels.local_updates import FEDAVG, FEDPROX, add_shifts

UPDATES = [
    (FEDAVG, 0.1, 1),
    (FEDAVG, 0.1, 2),
    (FEDAVG, 0.1, 5),
    (FEDAVG, 0.05, 40),
    (FEDPROX, 0.5, 1),
    (FEDPROX, 1e3, 1),
]


def shift_of(x, residual, update, step, steps, share):
    """Say how a client moves its model, step by step: x (n, d), residual (n,)."""
    rows, dim = x.shape
    rate = step * share / rows
    if update == FEDPROX:
        return np.linalg.solve(np.eye(dim) + rate * x.T @ x, rate * x.T @ residual)
    shift = np.zeros(dim)
    for _ in range(steps):
        shift = shift + rate * x.T @ (residual - x @ shift)
    return shift


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("dim", [1, 2, 8, 17, 40])
def test_clients_move_as_in_a_plain_loop(dim, kind):
    rng = np.random.default_rng(dim)
    sizes = rng.permutation([1, 1, 2, 3, 5, 8, 9, 10, 11, 16, 33, 41, 90])
    edges = np.concatenate([[0], np.cumsum(sizes)])
    x, predicted = (rng.standard_normal((edges[-1], size)).astype(kind) for size in (dim, 3))
    y, membership = rng.standard_normal(edges[-1]), rng.random((len(sizes), 3))
    membership[0] = [0.0, 1.0, 0.0]
    for update, step, steps in UPDATES:
        total, expected, scale = np.zeros((3, dim)), np.zeros((3, dim)), 0.0
        add_shifts(0, update, step, steps, x, y, predicted, 7 + edges, membership, total)
        for i, rows in enumerate(sizes):
            own = slice(edges[i], edges[i + 1])
            for j in range(3):
                residual = y[own] - predicted[own, j]
                shift = shift_of(x[own].astype(float), residual, update, step, steps, membership[i, j])
                expected[j] += rows * shift
                scale += rows * np.abs(shift).max()
        np.testing.assert_allclose(total, expected, rtol=0, atol=1e-11 * scale)


@pytest.mark.parametrize("rows", [1, 2, 5, 33, 90])
@pytest.mark.parametrize("dim", [3, 40])
@pytest.mark.parametrize("step", [1.0, 100.0])
def test_proximal_steps_in_single_precision_are_right_for_columns_far_from_zero(rows, dim, step):
    rng = np.random.default_rng(rows)
    x, y = rng.standard_normal((rows, dim)).astype(np.float32), rng.standard_normal(rows)
    x[:, 0] = rng.integers(2000, 2025, rows)  # such as years
    total, predicted = np.zeros((1, dim)), np.zeros((rows, 1), np.float32)
    add_shifts(0, FEDPROX, step, 1, x, y, predicted, np.array([0, rows]), np.ones((1, 1)), total)
    expected = rows * shift_of(x.astype(float), y, FEDPROX, step, 1, 1.0)
    np.testing.assert_allclose(total[0], expected, rtol=0, atol=1e-8 * np.abs(expected).max())
