"""Products in registers: against NumPy, at every size around the edges of a block, and nothing beyond its arrays."""

import numpy as np
import pytest

from mixfed.lanes import LANES
from mixfed.products import SPARE, add_products, add_squares, in_eights, multiply

SIZES = [1, 2, 5, 6, 7, 8, 9, 12, 13, 16, 17, 33]
PRECISION = {np.float64: 1e-12, np.float32: 2e-5}
MARK = 12345.0


def with_spare(values, spare):
    """Copy a matrix into the beginning of a longer one, the rest of which is no number."""
    held = np.full((len(values) + spare, values.shape[1]), np.nan, values.dtype)
    held[: len(values)] = values
    return held


@pytest.mark.parametrize("kind", PRECISION)
@pytest.mark.parametrize("width", SIZES)
def test_rows_times_models(kind, width):
    rng = np.random.default_rng(width)
    for rows in [*SIZES, 100]:
        for count in SIZES:
            x, models = (rng.standard_normal(shape).astype(kind) for shape in ((rows, width), (width, count)))
            eights = in_eights(models)
            around = np.full((SPARE + rows + SPARE + SPARE, eights.shape[1]), MARK, kind)
            multiply(x, eights, around[SPARE : SPARE + rows + SPARE])
            found, close = around[SPARE : SPARE + rows], PRECISION[kind]
            np.testing.assert_allclose(found[:, :count], x @ models, rtol=close, atol=width * close)
            assert (found[:, count:] == 0.0).all()
            assert (around[:SPARE] == MARK).all()
            assert (around[-SPARE:] == MARK).all()


@pytest.mark.parametrize("kind", PRECISION)
@pytest.mark.parametrize("rows", [1, 2, 15, 16, 17, 95, 96, 97, 700])
def test_columns_times_columns(kind, rows):
    rng = np.random.default_rng(rows)
    for high in SIZES:
        for wide in SIZES:
            left, right = (rng.standard_normal((rows, size)).astype(kind) for size in (high, wide))
            start = rng.standard_normal((high, wide))
            around = np.full((2 + high + 2, wide), MARK)
            around[2:-2] = start
            add_products(around[2:-2], with_spare(left, LANES), with_spare(right, LANES), rows)
            expected = start + left.astype(float).T @ right.astype(float)
            close = PRECISION[kind]
            np.testing.assert_allclose(around[2:-2], expected, rtol=close, atol=10 * np.sqrt(rows) * close)
            assert (around[[0, 1, -2, -1]] == MARK).all()


@pytest.mark.parametrize("kind", PRECISION)
@pytest.mark.parametrize("rows", [1, 2, 15, 16, 17, 95, 96, 97, 700])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_squares_are_the_triangle_of_a_product(kind, rows, sign):
    rng = np.random.default_rng(rows)
    for width in [*SIZES, 64, 101]:
        values = rng.standard_normal((rows, width)).astype(kind)
        start = rng.standard_normal(width * (width + 1) // 2)
        around = np.concatenate([[MARK], start, [MARK]])
        add_squares(around[1:-1], with_spare(values, LANES), rows, sign)
        product = (values.astype(float).T @ values.astype(float))[np.tril_indices(width)]
        close = PRECISION[kind]
        np.testing.assert_allclose(around[1:-1], start + sign * product, rtol=close, atol=10 * np.sqrt(rows) * close)
        assert around[0] == around[-1] == MARK


def test_the_same_rows_give_the_same_bits_wherever_they_lie():
    rng = np.random.default_rng(0)
    values = rng.standard_normal((300, 32))
    found = []
    for place in range(5):
        room = np.zeros((320, 32)).ravel()
        held = room[place : place + 308 * 32].reshape(308, 32)
        held[:300] = values
        triangle = np.zeros(32 * 33 // 2)
        add_squares(triangle, held, 300, 1.0)
        found.append(triangle)
    assert all((triangle == found[0]).all() for triangle in found)
