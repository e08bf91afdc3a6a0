"""Several numbers at a time: the same as one at a time, and nothing from beyond."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit
from numba.core.errors import TypingError

from mixfed.kernels.tiles import tile_losses
from mixfed.lanes import (
    LANES,
    LINE,
    as_mutable,
    doubled,
    inverse,
    line_of_zeros,
    number,
    read,
    read_half,
    read_line,
    spread,
    sums_of_eight,
    sums_of_four,
    write,
    write_folded,
    write_line,
    zeros,
)


@njit
def _combine(first, second, number, out):
    one, other = read(first, 1, 2), read(second, 0, 1)
    write(out, 1, 0, zeros() + doubled(number * one - other * number + one * other))


@njit
def _count_on(first, out):
    own = doubled(read(first, 0, 0))
    own += doubled(read(first, 1, 0))
    own *= own
    own -= doubled(read(first, 0, 0))
    write(out, 0, 0, own)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arithmetic_is_that_of_numbers(dtype):
    rng = np.random.default_rng(0)
    first, second = rng.standard_normal((2, 3, LANES + 2)).astype(dtype)
    number, out = dtype(0.7), np.full((3, LANES), -1.0)
    _combine(first, second, number, out)
    one, other = first[1, 2:], second[0, 1:-1]
    expected = number * one - other * number + one * other
    np.testing.assert_allclose(out[1], expected, atol=8 * np.finfo(dtype).eps)
    assert (out[[0, 2]] == -1.0).all()
    _count_on(first, out)
    a, b = first[:2, :LANES].astype(np.float64)
    np.testing.assert_allclose(out[0], (a + b) ** 2 - a, rtol=1e-14)


def test_rows_are_read_beyond_their_end():
    first, out = np.arange(6.0 * LANES).reshape(-1, 3), np.zeros((1, LANES))
    _combine(first, np.zeros((3, LANES + 1)), 1.0, np.zeros((3, LANES)))
    _count_on(first, out)
    np.testing.assert_array_equal(out[0], (2.0 * np.arange(LANES) + 3.0) ** 2 - np.arange(LANES))


def test_precisions_are_not_mixed_by_chance():
    with pytest.raises(TypingError):
        _combine(np.ones((3, 16)), np.ones((3, 16), np.float32), 1.0, np.ones((3, 16)))


@njit
def _lines(first, second, out):
    write_line(out, 1, 1, read_line(first, 2, 1) * spread(second, 0, 1) + line_of_zeros(out))


@njit
def _fold(first, out):
    write_folded(out, 1, 2, read_line(first, 0, 0), read_line(first, 1, 0))


@njit
def _add_up(x, four, eight):
    a, b, c, d = read_half(x, 0, 0), read_half(x, 1, 0), read_half(x, 2, 0), read_half(x, 3, 0)
    e, f, g, h = read_half(x, 4, 1), read_half(x, 5, 1), read_half(x, 6, 1), read_half(x, 7, 1)
    sums = sums_of_four(a, b, c, d)
    for place in range(4):
        four[place] = number(sums, place)
    write(eight, 0, 0, sums_of_eight(a, b, c, d, e, f, g, h))


@njit
def _inverse(x, out):
    write_line(out, 0, 0, inverse(read_line(x, 0, 0)))


@njit
def _first(array):
    return as_mutable(array[:1]) if len(array) > 2 else np.ones((1, array.shape[1]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lines_have_as_many_bytes_in_every_precision(dtype):
    rng, lanes = np.random.default_rng(1), LINE // dtype().itemsize
    first, second = rng.standard_normal((2, 3, 2 * lanes)).astype(dtype)
    out = np.full((3, 2 * lanes), -1.0, dtype)
    _lines(first, second, out)
    word = second[0, 1:2] if dtype is np.float64 else second[0, 2:4]
    np.testing.assert_array_equal(out[1, lanes:], first[2, lanes:] * np.tile(word, 8))
    out[1, lanes:] = -1.0
    assert (out == -1.0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_folded_lines_are_eight_sums_of_neighbours(dtype):
    lanes = LINE // dtype().itemsize
    first, out = np.random.default_rng(2).standard_normal((2, lanes)).astype(dtype), np.full((4, 12), -1.0, dtype)
    _fold(first, out)
    np.testing.assert_array_equal(out[1:3, 2:10], first.reshape(2, 8, -1).sum(axis=2))
    out[1:3, 2:10] = -1.0
    assert (out == -1.0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_within_lanes_are_added_up_in_order(dtype):
    half = LINE // 2 // dtype().itemsize
    x = np.random.default_rng(3).standard_normal((8, 2 * half)).astype(dtype)
    four, eight = np.zeros(4, dtype), np.zeros((1, 8), dtype)
    _add_up(x, four, eight)
    sums = np.concatenate([x[:4, :half].sum(axis=1), x[4:, half:].sum(axis=1)])
    np.testing.assert_allclose(eight[0], sums, rtol=0, atol=20 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(four, eight[0, :4])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_inverses_are_those_of_numbers(dtype):
    lanes = LINE // dtype().itemsize
    x, out = (1.0 + np.random.default_rng(4).random((1, lanes))).astype(dtype), np.zeros((1, lanes), dtype)
    _inverse(x, out)
    np.testing.assert_allclose(out, 1 / x, rtol=2 * np.finfo(dtype).eps)


def test_an_array_that_may_only_be_read_is_as_good_as_another():
    array = np.arange(6.0).reshape(3, 2)
    array.flags.writeable = False
    np.testing.assert_array_equal(_first(array), [[0.0, 1.0]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1.0, 1e-27, 1e20])
@pytest.mark.parametrize("k", [1, 2, 7, 8, 9, 16, 19])
def test_losses_are_those_of_a_plain_loop(k, scale, dtype):
    """Squares are in double precision: in single, small ones are 0 and large ones infinite."""
    rng = np.random.default_rng(k)
    sizes = rng.integers(1, 6, 30)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    rows, begin, end = offsets[-1], 4, 26
    y, predicted = (scale * rng.standard_normal(rows)).astype(dtype), np.full((rows + LANES, k), np.nan, dtype)
    tile, starts = slice(offsets[begin], offsets[end]), offsets[begin:end] - offsets[begin]
    own = (scale * rng.standard_normal((offsets[end] - offsets[begin], k))).astype(dtype)
    predicted[: len(own)] = own
    out = np.full((end - begin + LANES, k), np.nan)
    tile_losses(0, y[None, tile].copy(), predicted, starts, sizes[begin:end], out)
    squares = (y[tile, None].astype(np.float64) - own) ** 2
    expected = 0.5 * np.add.reduceat(squares, starts)
    np.testing.assert_allclose(out[: end - begin], expected, rtol=1e-14)
