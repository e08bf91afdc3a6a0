"""Tiles of whole clients, and what is made of their rows, in every precision, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from mixfed.kernels.compiled.tiles import TILE, most_rows, tile_losses, tiles

pytestmark = pytest.mark.compiles


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


@pytest.mark.parametrize("sizes", [[], [1], [TILE], [TILE, 1], [3 * TILE, 1, 1], [1, 3 * TILE, 2], None])
def test_tiles_have_whole_clients_and_as_many_rows_as_fit(sizes):
    sizes = np.random.default_rng(0).integers(1, 90, 200) if sizes is None else np.array(sizes, np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    edges = tiles(offsets)
    rows, each = np.diff(offsets[edges]), np.diff(edges)
    assert (edges[0], edges[-1]) == (0, len(sizes))
    assert ((rows <= TILE) | (each == 1)).all()
    assert (rows[:-1] + sizes[edges[1:-1]] > TILE).all()
    assert most_rows(offsets, edges) == rows.max(initial=0)
