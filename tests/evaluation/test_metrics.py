"""Distances to the truth, against brute force."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mixfed.core.errors import MixfedError
from mixfed.evaluation.metrics import bottleneck_distance, bottleneck_matching, label_agreement


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 4))
def test_bottleneck_distance_equals_brute_force(seed, k, dim):
    rng = np.random.default_rng(seed)
    theta, truth = rng.standard_normal((2, k, dim))
    brute = min(max(np.linalg.norm(theta[order[j]] - truth[j]) for j in range(k)) for order in permutations(range(k)))
    assert bottleneck_distance(theta, truth) == pytest.approx(brute, rel=1e-12)
    matching = bottleneck_matching(theta, truth)
    assert sorted(matching) == list(range(k))
    assert np.linalg.norm(theta[matching] - truth, axis=1).max() == pytest.approx(brute, rel=1e-12)


def test_bottleneck_is_not_the_least_sum():
    theta = np.array([[0.0, 0.0], [-0.706, 3.121]])
    truth = np.array([[0.0, 0.0], [3.2, 0.0]])
    # Straight across: distances 0 and 5, the lesser sum. Crosswise: 3.2 twice, the lesser maximum.
    np.testing.assert_array_equal(bottleneck_matching(theta, truth), [1, 0])
    assert bottleneck_distance(theta, truth) == pytest.approx(3.2, abs=1e-3)


def test_models_of_different_shape_are_refused():
    with pytest.raises(MixfedError, match="one shape"):
        bottleneck_distance(np.zeros((2, 3)), np.zeros((3, 3)))


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 30))
def test_label_agreement_equals_brute_force(seed, k, clients):
    rng = np.random.default_rng(seed)
    labels, truth = rng.integers(0, k, (2, clients))
    brute = max(np.mean(np.array(order)[labels] == truth) for order in permutations(range(k)))
    assert label_agreement(labels, truth) == pytest.approx(brute)
    assert label_agreement((truth + 1) % k, truth) == 1.0
