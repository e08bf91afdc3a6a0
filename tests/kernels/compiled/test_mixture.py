"""Exponentials of many log densities at once."""

from __future__ import annotations

import numpy as np
import pytest

from mixfed.kernels.compiled.mixture import exponentials

pytestmark = pytest.mark.compiles


def test_exponentials_are_those_of_the_library():
    values = -np.concatenate([np.geomspace(1e-300, 39.9, 5000), [0.0, 40.1, 700.0, 1e300]])
    found = values.copy()
    exponentials(found)
    near = values > -40
    np.testing.assert_allclose(found[near], np.exp(values[near]), rtol=1e-13)
    assert (found[~near] == 0).all()
    unknown = np.array([np.nan, -1.0])
    exponentials(unknown)
    assert np.isnan(unknown).tolist() == [True, False]
