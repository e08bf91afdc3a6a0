"""Losses of tiles, in every precision, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from mixfed.kernels.compiled.tiles import tile_losses


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [1.0, 1e-27, 1e20])
@pytest.mark.parametrize("k", [1, 2, 8, 19])
def test_losses_are_those_of_a_plain_loop(k, scale, kind):
    """Squares are in double precision: in single, small ones are 0 and large ones infinite."""
    rng = np.random.default_rng(k)
    offsets = 4 + np.concatenate([[0], np.cumsum(rng.integers(1, 6, 30))])
    starts, rows = offsets[:-1] - 4, offsets[-1] - 4
    y, predicted = ((scale * rng.standard_normal(shape)).astype(kind) for shape in (rows, (rows, k)))
    out = np.full((30, k), np.nan)
    tile_losses(0, y, predicted, offsets, out)
    squares = (y[:, None].astype(float) - predicted) ** 2
    np.testing.assert_allclose(out, 0.5 * np.add.reduceat(squares, starts), rtol=1e-14)
