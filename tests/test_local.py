"""Local updates against a plain loop: clients of all sizes side by side and alone, in every precision and order."""

import numpy as np
import pytest

from mixfed.kernels.local_updates import FEDAVG, FEDPROX, FEW, move, room_to_move
from mixfed.kernels.products import ROOM, in_words, lined, multiply, room_for

PRECISION = {np.float64: 1e-11, np.float32: 3e-4}
UPDATES = [
    (FEDAVG, 0.1, 1),
    (FEDAVG, 0.1, 2),
    (FEDAVG, 0.1, 5),
    (FEDAVG, 0.05, 40),
    (FEDPROX, 0.5, 1),
    (FEDPROX, 1e3, 1),
]
SIZES = {
    "one client": [3],
    "one row each": [1] * 20,
    "small": [1, 1, 2, 2, 2, 3, 3, 4, 5, 5, 7, 8],
    "edges of a line": [2] * 7 + [3] * 9 + [4] * 16 + [5] * 17,
    "few and many": [1, 2, 3, 9, 10, 11, 15, 16, 17, FEW - 1, FEW, FEW + 1, 40, 41, 64, 90],
}


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


@pytest.mark.parametrize("kind", PRECISION)
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("dim", [1, 2, 8, 15, 16, 17, 32, 40])
def test_clients_move_as_in_a_plain_loop(dim, sizes, kind):
    rng = np.random.default_rng(dim)
    sizes, n_rows, models, owners = np.array(sizes), sum(sizes), 3, 4
    # Rows of clients lie in another order than that of their sizes.
    places = rng.permutation(len(sizes))
    starts = np.empty(len(sizes), np.int64)
    starts[places] = np.cumsum(sizes[places]) - sizes[places]
    x = np.full((n_rows + ROOM, dim), 7.0, kind)
    x[:n_rows] = rng.standard_normal((n_rows, dim))
    theta = rng.standard_normal((dim, models)).astype(kind)
    predicted = room_for(n_rows, in_words(theta))
    multiply(x, n_rows, in_words(theta), predicted)
    targets = np.zeros((1, n_rows + ROOM), kind)
    targets[0, :n_rows] = rng.standard_normal(n_rows)
    which, owner = rng.integers(0, models, len(sizes)), rng.integers(0, owners, len(sizes))
    share = rng.random(len(sizes))
    share[0] = 0.0
    for update, step, steps in UPDATES:
        room, total = room_to_move(update, n_rows, dim, owners, x), lined(owners, dim, x)
        total[:], expected, size = 0.0, np.zeros((owners, dim)), np.zeros(owners)
        move(0, update, step, steps, x, targets, predicted, starts, sizes, which, share, owner, total, room)
        for i, (begin, rows) in enumerate(zip(starts, sizes, strict=True)):
            own = x[begin : begin + rows].astype(float)
            residual = targets[0, begin : begin + rows] - predicted[begin : begin + rows, which[i]].astype(float)
            shift = rows * shift_of(own, residual, update, step, steps, share[i])
            expected[owner[i]] += shift
            size[owner[i]] += np.abs(shift).max()
        for j in range(owners):
            np.testing.assert_allclose(total[j, :dim], expected[j], rtol=0, atol=PRECISION[kind] * (size[j] + 1e-30))


@pytest.mark.parametrize("rows", [1, 2, 5, 33, 90])
@pytest.mark.parametrize("dim", [3, 40])
@pytest.mark.parametrize("step", [1.0, 100.0])
def test_proximal_steps_in_single_precision_are_right_for_columns_far_from_zero(rows, dim, step):
    rng = np.random.default_rng(rows)
    x = np.zeros((20 * rows + ROOM, dim), np.float32)
    x[: 20 * rows] = rng.standard_normal((20 * rows, dim))
    x[: 10 * rows, 0] = rng.integers(2000, 2025, 10 * rows)  # such as years; the other clients are ordinary
    starts, sizes = rows * np.arange(20), np.full(20, rows)
    targets, predicted = np.zeros((1, len(x)), np.float32), np.zeros((len(x), 8), np.float32)
    targets[0, : 20 * rows] = rng.standard_normal(20 * rows)
    total = lined(20, dim, x)
    total[:] = 0.0
    which, room = np.zeros(20, np.int64), room_to_move(FEDPROX, len(x), dim, 20, x)
    move(0, FEDPROX, step, 1, x, targets, predicted, starts, sizes, which, np.ones(20), np.arange(20), total, room)
    for i in range(20):
        own = slice(starts[i], starts[i] + rows)
        expected = rows * shift_of(x[own].astype(float), targets[0, own].astype(float), FEDPROX, step, 1, 1.0)
        np.testing.assert_allclose(total[i, :dim], expected, rtol=0, atol=1e-4 * np.abs(expected).max())
