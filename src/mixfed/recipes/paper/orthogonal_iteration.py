"""Federated orthogonal iteration: the space in which an anchor's residual lies, from d x r numbers of each recruit.

The paper's algorithm of that name, on Y Y^T: apply Y^T, apply Y, make the columns orthonormal, and again.
"""

import numpy as np

from ...core import draws
from ...core.arrays import Array, Floats, Keys
from ...exchange.anchors import ApplyMoment
from ...exchange.pool import Pool


def federated_orthogonal_iteration(pool: Pool, recruits: Array, theta: Floats, start: Floats, rounds: int) -> Floats:
    """Approximate the leading left singular vectors of each anchor's Y by orthogonal iteration on Y Y^T.

    theta (h, d), start (h, d, r) with orthonormal columns -> basis (h, d, r). Two half-steps are one iteration:
    an even one applies Y^T, an odd one applies Y and makes the columns orthonormal again. Y is applied,
    never built: each client sends d x r numbers per anchor.
    """
    block = start
    for half in range(rounds):
        even = half % 2 == 0
        block = pool.ask(ApplyMoment(theta, block, transpose=even), recruits).mean()
        if not even:
            block = np.linalg.qr(block).Q
    return block


def random_frames(keys: Keys, dim: int, n_clusters: int, round_: int, seed: int) -> Floats:
    """Draw a random d x r matrix with orthonormal columns for every anchor, by its key (h,). -> (h, d, r)."""
    width = min(n_clusters, dim)  # with as many clusters as features the basis is the whole space
    normals = draws.normal(seed, "basis", round_, keys, dim * width)
    return np.linalg.qr(normals.reshape(len(keys), dim, width)).Q
