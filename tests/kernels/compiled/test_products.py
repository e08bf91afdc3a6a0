"""Products of columns, in every precision: against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from mixfed.kernels.compiled.products import (
    add_inner_products,
    add_products,
    add_second_moments,
    lined,
)

pytestmark = pytest.mark.compiles

PRECISION = {np.float64: 1e-12, np.float32: 2e-5}


@pytest.mark.parametrize("kind", PRECISION)
@pytest.mark.parametrize("rows", [0, 1, 2, 96, 511, 512, 513, 1300])
@pytest.mark.parametrize("width", [1, 2, 8, 17, 32])
def test_products_are_those_of_numpy(kind, rows, width):
    rng = np.random.default_rng([rows, width])
    x, u = (rng.standard_normal((rows, size)).astype(kind) for size in (width, 3))
    start, corner = rng.standard_normal((3, width)), rng.standard_normal(width * (width + 1) // 2)
    close = {"rtol": PRECISION[kind], "atol": 10 * np.sqrt(rows + 1) * PRECISION[kind]}
    for add, left, right in ((add_products, u, x), (add_inner_products, *map(np.ascontiguousarray, (u.T, x.T)))):
        total = start.copy()
        add(total, left, right)
        np.testing.assert_allclose(total, start + u.astype(float).T @ x.astype(float), **close)
    triangle, weight = corner.copy(), u[:, 0].copy()
    add_second_moments(triangle, np.ascontiguousarray(x.T), weight, lined((max(rows, 1),), x))
    squares = ((weight[:, None] * x.astype(float)).T @ x.astype(float))[np.tril_indices(width)]
    np.testing.assert_allclose(triangle, corner + squares, **close)


@pytest.mark.parametrize("kind", PRECISION)
def test_room_for_columns_begins_with_a_line_of_the_cache(kind):
    like = np.empty(0, kind)
    room = lined((3, 40), like)
    assert room.shape == (3, 40)
    assert room.dtype == kind
    assert room.ctypes.data % 64 == 0
    assert not room.any()
