"""Local updates against a loop over clients: clients of all sizes, with few rows and with many, in every precision."""

import numpy as np
import pytest

from mixfed.kernels import compiled, plain
from mixfed.kernels.plain import FEDAVG, FEDPROX

UPDATES = [
    (FEDAVG, 0.1, 1),
    (FEDAVG, 0.1, 2),
    (FEDAVG, 0.1, 5),
    (FEDAVG, 0.05, 40),
    (FEDPROX, 0.5, 1),
    (FEDPROX, 1e3, 1),
]
KERNELS = pytest.mark.parametrize(
    "kernels", [pytest.param(plain, id="plain"), pytest.param(compiled, id="compiled", marks=pytest.mark.compiles)]
)


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


@KERNELS
@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("dim", [1, 2, 8, 17, 40])
def test_clients_move_as_in_a_loop_over_them(kernels, dim, kind):
    rng = np.random.default_rng(dim)
    sizes = rng.permutation([1, 1, 2, 3, 5, 8, 9, 10, 11, 16, 33, 41, 90])
    edges = np.concatenate([[0], np.cumsum(sizes)])
    x, theta = (0.3 * rng.standard_normal((size, dim)).astype(kind) for size in (edges[-1], 3))
    y, theta = rng.standard_normal(edges[-1]), np.ascontiguousarray(theta.T)
    about = np.log([0.2, 0.3, 0.5]), np.array([1.0, 2.0, 1.5])
    membership = plain.memberships(x.astype(float), y, edges, theta.astype(float), *about, False, 0)[0]
    tolerance = 1e-11 if kind is np.float64 else 1e-5
    for update, step, steps in UPDATES:
        total = kernels.local_updates(x, y, edges, theta, *about, False, 0, update, step, steps)[0]
        expected, scale = np.zeros((3, dim)), 0.0
        for i, rows in enumerate(sizes):
            own = slice(edges[i], edges[i + 1])
            for j in range(3):
                residual = y[own] - x[own].astype(float) @ theta[:, j]
                shift = shift_of(x[own].astype(float), residual, update, step, steps, membership[i, j])
                expected[j] += rows * shift
                scale += rows * np.abs(shift).max()
        np.testing.assert_allclose(total, expected, rtol=0, atol=tolerance * scale)


@KERNELS
@pytest.mark.parametrize("rows", [1, 2, 5, 33, 90])
@pytest.mark.parametrize("dim", [3, 40])
@pytest.mark.parametrize("step", [1.0, 100.0])
def test_proximal_steps_in_single_precision_are_right_for_columns_far_from_zero(kernels, rows, dim, step):
    rng = np.random.default_rng(rows)
    x, y = rng.standard_normal((rows, dim)).astype(np.float32), rng.standard_normal(rows)
    x[:, 0] = rng.integers(2000, 2025, rows)  # such as years
    theta, alone = np.zeros((dim, 1), np.float32), (np.zeros(1), np.ones(1))
    edges = np.array([0, rows])
    total = kernels.local_updates(x, y, edges, theta, *alone, True, 0, FEDPROX, step, 1)[0]
    expected = rows * shift_of(x.astype(float), y, FEDPROX, step, 1, 1.0)
    np.testing.assert_allclose(total[0], expected, rtol=0, atol=1e-8 * np.abs(expected).max())
