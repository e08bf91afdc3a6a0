"""Power iteration: the leading singular vector of an anchor's moment matrix, along which the paper's Phase 1 descends.

Its sign, of which the paper is silent, is chosen where the step is taken: `clients.answers.anchors.descend`.
"""

import numpy as np

from ...core.arrays import Floats


def power_iteration(matrix: Floats, start: Floats, rounds: int) -> tuple[Floats, Floats]:
    """Find the leading left singular vector of A and the root of its singular value.

    matrix (h, r, r), start (h, r) -> direction (h, r) of length one, size (h,).
    """
    square = matrix @ matrix.transpose(0, 2, 1)
    direction = _unit(start)
    for _ in range(rounds):
        direction = _unit(np.einsum("hij,hj->hi", square, direction))
    eigenvalue = np.einsum("hi,hij,hj->h", direction, square, direction)
    return direction, np.maximum(eigenvalue, 0.0) ** 0.25


def _unit(vectors: Floats) -> Floats:
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit: Floats = np.divide(vectors, length, out=np.zeros_like(vectors), where=length > 0)
    return unit
