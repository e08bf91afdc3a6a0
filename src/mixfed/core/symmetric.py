"""Symmetric matrices without what is in them twice: as they are summed, kept and sent.

A matrix of one kind is its lower triangle, row by row. A matrix over all kinds is its blocks for pairs of kinds, the
first not after the second.
"""

from functools import cache
from itertools import combinations_with_replacement

import numpy as np

from .arrays import Array, Floats


@cache
def triangle(dim: int) -> tuple[Array, Array]:
    """Give rows and columns of a packed lower triangle, (v,) each."""
    rows, columns = np.tril_indices(dim)
    return rows, columns


@cache
def places(dim: int) -> Array:
    """Say where entry (a, b) of a symmetric matrix is in its packed lower triangle. -> (d, d)."""
    low, high = np.sort(np.indices((dim, dim)), axis=0)
    where: Array = high * (high + 1) // 2 + low
    return where


@cache
def doubled(dim: int) -> Floats:
    """Say how often each packed number stands in its matrix. -> (v,)."""
    rows, columns = triangle(dim)
    return np.where(rows == columns, 1.0, 2.0)


@cache
def _kept(dim: int) -> Array:
    """Say where in a whole matrix, row by row, each packed number is. -> (v,)."""
    rows, columns = triangle(dim)
    where: Array = rows * dim + columns
    return where


def unpacked(packed: Floats, dim: int) -> Floats:
    """Turn packed lower triangles (..., v) into symmetric matrices (..., d, d)."""
    return np.asarray(np.take(packed, places(dim), axis=-1))


def packed(matrices: Floats) -> Floats:
    """Pack the lower triangles of symmetric matrices (..., d, d). -> (..., v)."""
    *some, dim, _ = matrices.shape
    return np.asarray(np.take(matrices.reshape(*some, dim * dim), _kept(dim), axis=-1))


def packed_axes(axes: Floats) -> Floats:
    """Pack v v^T of each column v of axes (..., d, a), which may be eigenvectors. -> (..., a, v)."""
    lines = axes.swapaxes(-1, -2)
    return packed(lines[..., :, None] * lines[..., None, :])


def mirrored(pairs: Floats, k: int) -> Floats:
    """Make symmetric matrices (..., k q, k q) of blocks for pairs of kinds (..., k (k + 1) / 2, q, q)."""
    *some, _, q, _ = pairs.shape
    whole = np.empty((*some, k, q, k, q))
    for place, (j, other) in enumerate(combinations_with_replacement(range(k), 2)):
        whole[..., j, :, other, :] = pairs[..., place, :, :]
        whole[..., other, :, j, :] = pairs[..., place, :, :].swapaxes(-1, -2)
    return whole.reshape(*some, k * q, k * q)


def paired(matrices: Floats, k: int) -> Floats:
    """Take the blocks for pairs of kinds out of symmetric matrices: what `mirrored` undoes."""
    *some, size, _ = matrices.shape
    blocks = matrices.reshape(*some, k, size // k, k, size // k)
    return np.stack([blocks[..., j, :, other, :] for j, other in combinations_with_replacement(range(k), 2)], axis=-3)
