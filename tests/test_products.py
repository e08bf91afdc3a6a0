"""Products in registers: against NumPy, at every size around the edges of a block, and nothing beyond its arrays."""

import numpy as np
import pytest
from numba import njit

from mixfed.kernels.products import (
    ROOM,
    add_products,
    add_rows,
    add_squares,
    in_words,
    inner_products,
    last_line,
    lined,
    multiply,
    products_along,
    room_for,
    with_room,
)
from mixfed.lanes import LINE, number, write

SIZES = [1, 2, 5, 6, 7, 8, 9, 12, 13, 16, 17, 33]
PRECISION = {np.float64: 1e-12, np.float32: 2e-5}
MARK = 12345.0


def with_spare(values):
    """Copy a matrix into the beginning of a longer one, the rest of which is no number."""
    held = np.full((len(values) + ROOM, values.shape[1]), np.nan, values.dtype)
    held[: len(values)] = values
    return held


def beside_others(values):
    """Copy a matrix into the beginning of a longer one; the rest are numbers, as of other clients."""
    return np.nan_to_num(with_spare(values), nan=MARK)


def in_lines(values):
    """Copy a matrix into one that is `lined`."""
    held = lined(len(values), values.shape[1], values)
    held[: len(values), : values.shape[1]] = values
    held[len(values) :] = np.nan
    return held


@pytest.mark.parametrize("kind", PRECISION)
@pytest.mark.parametrize("width", SIZES)
def test_rows_times_models(kind, width):
    rng = np.random.default_rng(width)
    for rows in [*SIZES, 100]:
        for count in SIZES:
            x, models = (rng.standard_normal(shape).astype(kind) for shape in ((rows, width), (width, count)))
            words = in_words(models)
            room = room_for(rows, words)
            around = np.full((ROOM + len(room) + ROOM, room.shape[1]), MARK, kind)
            multiply(beside_others(x), rows, words, around[ROOM:-ROOM])
            found, close = around[ROOM : ROOM + rows], PRECISION[kind]
            expected = x.astype(float) @ models.astype(float)
            np.testing.assert_allclose(found[:, :count], expected, rtol=close, atol=width * close)
            assert (found[:, count:] == 0.0).all()
            assert (around[:ROOM] == MARK).all()
            assert (around[-ROOM:] == MARK).all()


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
            add_products(around[2:-2], with_spare(left), in_lines(right), rows)
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
        add_squares(around[1:-1], in_lines(values), width, rows, sign)
        product = (values.astype(float).T @ values.astype(float))[np.tril_indices(width)]
        close = PRECISION[kind]
        np.testing.assert_allclose(around[1:-1], start + sign * product, rtol=close, atol=10 * np.sqrt(rows) * close)
        assert around[0] == around[-1] == MARK


def test_the_same_rows_give_the_same_bits_wherever_they_lie():
    rng = np.random.default_rng(0)
    values = rng.standard_normal((300, 32))
    found = []
    for place in range(5):
        room = np.zeros((340, 32)).ravel()
        held = room[place : place + 332 * 32].reshape(332, 32)
        held[:300] = values
        triangle = np.zeros(32 * 33 // 2)
        add_squares(triangle, held, 32, 300, 1.0)
        found.append(triangle)
    assert all((triangle == found[0]).all() for triangle in found)


@njit
def _inner(x, first, second, out):
    last, inside = last_line(x)
    four = inner_products(x, first, second, last, inside)
    for place in range(4):
        out[place] = number(four, place)


@njit
def _along(x, row, vector, out):
    write(out, 0, 0, products_along(x, row, vector))


@njit
def _weigh(total, j, x, order, weight, begin, end):
    add_rows(total, j, x, order, weight, begin, end)


@njit
def _room(phi, begin, end):
    return with_room(phi, begin, end)


@pytest.mark.parametrize("kind", PRECISION)
@pytest.mark.parametrize("width", [*SIZES, 32, 64])
def test_rows_with_each_other_and_with_a_vector(kind, width):
    rng, close = np.random.default_rng(width), width * PRECISION[kind]
    x = rng.standard_normal((12, width)).astype(kind)
    held = beside_others(x)
    four, eight, vector = np.zeros(4, kind), np.zeros((1, 8), kind), lined(1, width, x)
    _inner(held, 3, 10, four)
    precise = x.astype(float)
    np.testing.assert_allclose(four, (precise[3:5] @ precise[10:12].T).ravel(), atol=close)
    vector[0, :width] = rng.standard_normal(width)
    _along(held, 2, vector, eight)
    np.testing.assert_allclose(eight[0], precise[2:10] @ vector[0, :width].astype(float), atol=close)


@pytest.mark.parametrize("kind", PRECISION)
@pytest.mark.parametrize("width", [*SIZES, 32, 64])
def test_weighted_rows_are_added_to_one_row(kind, width):
    rng = np.random.default_rng(width)
    x, weight, order = (
        rng.standard_normal((9, width)).astype(kind),
        rng.standard_normal((1, 9)).astype(kind),
        rng.permutation(9),
    )
    for begin, end in ((0, 9), (2, 6), (4, 5), (3, 3)):
        total = lined(3, width, x)
        total[:] = MARK
        _weigh(total, 1, beside_others(x), order, weight, begin, end)
        some = order[begin:end]
        expected = MARK + weight[0, some].astype(float) @ x[some].astype(float)
        np.testing.assert_allclose(total[1, :width], expected, rtol=PRECISION[kind])
        assert (total[[0, 2]] == MARK).all()
        _weigh(total, 2, beside_others(x), order[:0], weight, begin, end)
        expected = MARK + weight[0, begin:end].astype(float) @ x[begin:end].astype(float)
        np.testing.assert_allclose(total[2, :width], expected, rtol=PRECISION[kind])


@pytest.mark.parametrize("kind", PRECISION)
def test_lined_rows_begin_with_a_line_and_are_filled_with_zeros(kind):
    for width in SIZES:
        held = lined(5, width, np.zeros(1, kind))
        assert held.ctypes.data % LINE == 0
        assert held.strides[0] % LINE == 0
        assert held.shape[0] == 5 + ROOM
        assert width <= held.shape[1] < width + LINE // held.itemsize
        assert (held[:, width:] == 0.0).all()


def test_rows_have_room_behind_them_without_a_copy_but_at_the_end():
    phi = np.arange(200.0).reshape(100, 2)
    phi.flags.writeable = False
    for begin, end in ((0, 10), (40, 100 - ROOM), (90, 100)):
        rows = _room(phi, begin, end)
        np.testing.assert_array_equal(rows[: end - begin], phi[begin:end])
        assert len(rows) == end - begin + ROOM
        assert np.shares_memory(rows, phi) == (end + ROOM <= 100)
