"""Products of tiles, in every precision: against NumPy, and the same bits wherever rows lie."""

from __future__ import annotations

import numpy as np
import pytest

from mixfed.kernels.compiled.products import add_products, add_squares, gather

PRECISION = {np.float64: 1e-12, np.float32: 2e-5}


@pytest.mark.parametrize("kind", PRECISION)
@pytest.mark.parametrize("rows", [0, 1, 2, 96, 511, 512, 513, 1300])
@pytest.mark.parametrize("width", [1, 2, 8, 17, 32])
def test_products_are_those_of_numpy(kind, rows, width):
    rng = np.random.default_rng([rows, width])
    x, u = (rng.standard_normal((rows, size)).astype(kind) for size in (width, 3))
    start, corner = rng.standard_normal((3, width)), rng.standard_normal(width * (width + 1) // 2)
    close = {"rtol": PRECISION[kind], "atol": 10 * np.sqrt(rows + 1) * PRECISION[kind]}
    total = start.copy()
    add_products(total, u, x)
    np.testing.assert_allclose(total, start + u.astype(float).T @ x.astype(float), **close)
    for sign in (1.0, -1.0):
        triangle = corner.copy()
        add_squares(triangle, x, sign)
        squares = (x.astype(float).T @ x.astype(float))[np.tril_indices(width)]
        np.testing.assert_allclose(triangle, corner + sign * squares, **close)


@pytest.mark.parametrize("kind", PRECISION)
def test_gathered_rows_are_those_of_their_range_times_a_factor(kind):
    x, pile = np.random.default_rng(0).standard_normal((9, 5)).astype(kind), np.full((8, 5), 7.0, kind)
    gather(x, 2, 6, kind(0.5), pile, 3)
    np.testing.assert_array_equal(
        pile, np.concatenate([np.full((3, 5), 7.0), kind(0.5) * x[2:6], np.full((1, 5), 7.0)])
    )


def test_the_same_rows_give_the_same_bits_wherever_they_lie():
    values = np.random.default_rng(0).standard_normal((300, 32))
    found = []
    for place in range(5):
        held = np.zeros(301 * 32)[place : place + 300 * 32].reshape(300, 32)
        held[:] = values
        triangle = np.zeros(32 * 33 // 2)
        add_squares(triangle, held, 1.0)
        found.append(triangle)
    assert all((triangle == found[0]).all() for triangle in found)
