"""Draws by weight, against the library."""

from __future__ import annotations

import numpy as np

from mixfed.kernels.plain.anchor_em import drawn


def test_places_are_drawn_by_their_weights():
    rng = np.random.default_rng(0)
    weight, chance = rng.exponential(size=(50, 7)), rng.random((7, 3))
    weight[[0, 20, 49]] = 0.0
    upto = np.cumsum(weight, axis=0)
    found = drawn(upto, chance)
    expected = [np.searchsorted(upto[:, s], chance[s] * upto[-1, s], side="right") for s in range(7)]
    np.testing.assert_array_equal(found, expected)
    often = drawn(upto[:, :1], rng.random((1, 20_000)))[0]
    np.testing.assert_allclose(np.bincount(often, minlength=50) / 20_000, weight[:, 0] / upto[-1, 0], atol=0.01)
