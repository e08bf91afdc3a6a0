"""Power iteration finds the leading pair of singular vectors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mixfed.kernels.plain.power_iteration import power_iteration


@given(st.integers(0, 10**6), st.integers(1, 5))
def test_power_iteration_finds_the_leading_left_singular_pair(seed, width):
    rng = np.random.default_rng(seed)
    left, _, right = np.linalg.svd(rng.standard_normal((width, width)))
    values = np.geomspace(4.0, 0.1, width)
    matrix = left @ np.diag(values) @ right
    direction, size = power_iteration(matrix[None], rng.standard_normal((1, width)), 200)
    assert size[0] == pytest.approx(2.0)  # the root of the singular value, not of the eigenvalue of A A^T
    assert abs(direction[0] @ left[:, 0]) == pytest.approx(1.0)


def test_power_iteration_of_a_zero_matrix_stays_finite():
    direction, size = power_iteration(np.zeros((1, 2, 2)), np.ones((1, 2)), 5)
    assert np.all(direction == 0)
    assert size[0] == 0
