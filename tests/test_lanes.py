"""Eight numbers at a time: the same as one at a time, and nothing from beyond."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit
from numba.core.errors import TypingError

from mixfed.kernels import tile_losses
from mixfed.lanes import LANES, doubled, read, write, zeros


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
    tile = slice(offsets[begin], offsets[end])
    own = (scale * rng.standard_normal((offsets[end] - offsets[begin], k))).astype(dtype)
    predicted[: len(own)] = own
    out = np.full((end - begin + LANES, k), np.nan)
    tile_losses(0, y[tile], predicted, offsets, begin, end, out)
    squares = (y[tile, None].astype(np.float64) - own) ** 2
    expected = 0.5 * np.add.reduceat(squares, offsets[begin:end] - offsets[begin])
    np.testing.assert_allclose(out[: end - begin], expected, rtol=1e-14)
