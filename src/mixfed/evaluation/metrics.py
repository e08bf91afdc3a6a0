"""How far an answer is from the truth."""

import bisect
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from ..core.arrays import Array
from ..core.errors import MixfedError


def bottleneck_distance(theta: Any, truth: Any) -> float:
    """Give d(theta, truth) = min over permutations of the max over clusters of the Euclidean error.

    theta (k, d), truth (k, d). The permutation that is best for the largest error is a *bottleneck*
    assignment: the least threshold under which the clusters can still be matched one to one.
    """
    gaps = _gaps(theta, truth)
    return float(gaps[np.arange(len(gaps)), bottleneck_matching(theta, truth)].max())


def bottleneck_matching(theta: Any, truth: Any) -> Array:
    """Give the permutation behind `bottleneck_distance`: theta[result[j]] is closest to truth[j]; (k,)."""
    gaps = _gaps(theta, truth)
    heights = np.unique(gaps)

    def matches_all(height: float) -> bool:
        return bool(np.all(_match(gaps <= height) >= 0))

    least = bisect.bisect_left(heights, True, hi=len(heights) - 1, key=matches_all)
    return _match(gaps <= heights[least])


def label_agreement(labels: Any, truth: Any) -> float:
    """Give the share of clients with the right label under the best renaming of labels. (c,), (c,)."""
    labels, truth = np.asarray(labels), np.asarray(truth)
    if labels.shape != truth.shape or labels.ndim != 1 or len(labels) == 0:
        raise MixfedError(f"labels must be two lists of one length, they have {labels.shape}, {truth.shape}")
    names, left = np.unique(labels, return_inverse=True)
    others, right = np.unique(truth, return_inverse=True)
    table = np.zeros((len(names), len(others)), dtype=np.int64)
    np.add.at(table, (left, right), 1)
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum() / len(labels))


def _gaps(theta: Any, truth: Any) -> Array:
    """Distances of every truth to every estimate, (k, k)."""
    theta, truth = np.atleast_2d(np.asarray(theta, float)), np.atleast_2d(np.asarray(truth, float))
    if theta.shape != truth.shape:
        raise MixfedError(f"the models must have one shape, they have {theta.shape} and {truth.shape}")
    gaps: Array = np.linalg.norm(truth[:, None] - theta[None], axis=2)
    return gaps


def _match(allowed: Array) -> Array:
    """Match rows to columns one to one where allowed (k, k); -1 marks a row left alone."""
    matching: Array = maximum_bipartite_matching(csr_array(allowed), perm_type="column")
    return matching
