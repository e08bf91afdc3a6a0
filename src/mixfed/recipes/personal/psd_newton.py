"""Newton's step when some parameters make up covariances, which may not be negative in any direction.

    maximise  g^T s - 1/2 s^T H s   subject to   Psi_j + s_j >= 0 for every kind j

A covariance may well end on the edge, with no deviation in some direction at all. So the quadratic problem is solved as
it stands, by the method of barriers: with + mu log det (Psi_j + s_j), whose maximum misses the true one by mu for each
dimension, in units of log likelihood, and an ever smaller mu. Like Newton's own step it does not depend on units.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from ...core.arrays import Floats
from ...core.symmetric import doubled, packed, packed_axes, triangle, unpacked

_SHARPER = 0.1
"""How much mu falls at a time."""
_MOST_STEPS = 8
"""Newton steps for one mu, at most."""
_FIRST_GAP, _LEAST_GAP, _GAP = 0.05, 1e-9, 0.1
"""The first mu may miss the true answer by so much of what the step promises without a cone; the last by so much of log
likelihood, or by so much of what the step gains."""
_CENTRED = 0.25
"""A maximum for one mu is met with the step that promises less than this share of what mu misses by."""
_INSIDE = 0.95
"""Share of the way to the edge that is gone at most."""


@dataclass(frozen=True)
class Cone:
    """What the last parameters are: k covariances (d, d), by their packed lower triangles, or by their diagonals."""

    k: int
    dim: int
    full: bool

    def matrices(self, numbers: Floats) -> Floats:
        """Give the covariances, (k, d, d), or their diagonals as k d matrices of one number."""
        return unpacked(numbers.reshape(self.k, -1), self.dim) if self.full else numbers.reshape(-1, 1, 1)

    def numbers(self, matrices: Floats) -> Floats:
        """Do the reverse."""
        return packed(matrices).ravel() if self.full else matrices.ravel()

    def barrier(self, numbers: Floats) -> tuple[Floats, Floats]:
        """Give the slope (p,) of sum_j log det, and its curvature with the sign changed: blocks, one per covariance."""
        inverse = np.linalg.inv(self.matrices(numbers)).astype(np.float64)
        if not self.full:
            return inverse.ravel(), inverse**2
        rows, columns = triangle(self.dim)
        times, blocks = doubled(self.dim), []
        for own in inverse:
            # tr(E_p M E_q M): M has rows of rows, rows of columns and so on.
            upper, lower = own[rows], own[columns]
            blocks.append(upper[:, rows] * lower[:, columns] + upper[:, columns] * lower[:, rows])
        return (times * packed(inverse)).ravel(), 0.5 * times[:, None] * times * np.stack(blocks)

    def reach(self, numbers: Floats, step: Floats) -> float:
        """Say how often a step can be taken before it leaves the cone."""
        root = np.linalg.cholesky(self.matrices(numbers))
        half = np.linalg.solve(root, self.matrices(step))
        both = np.linalg.solve(root, half.swapaxes(1, 2))
        least = float(np.linalg.eigvalsh(both).min())
        return np.inf if least >= 0 else -1.0 / least

    def inside(self, numbers: Floats) -> bool:
        """Say whether covariances are positive in all directions."""
        return bool(np.linalg.eigvalsh(self.matrices(numbers)).min() > 0)

    def lifted(self, numbers: Floats, curvature: Floats, mu: float, floor: Floats) -> Floats:
        """Lead numbers (p,), which are best but for the cone, into it, to where each eigenvalue is best by itself.

        That is the maximum of mu log x - 1/2 h (x - value)^2, with the curvature (p, p) along its axis as h; floor (k,)
        at least.
        """
        values, axes = np.linalg.eigh(self.matrices(numbers))
        along, own = packed_axes(axes), np.arange(numbers.size).reshape(len(values), -1)
        h = ((along @ curvature[own[:, :, None], own[:, None, :]]) * along).sum(axis=2)
        # Of the two roots of h x (x - value) = mu one is above 0; their product is - mu / h.
        larger = 0.5 * (np.abs(values) + np.sqrt(values**2 + 4.0 * mu / h))
        values = np.where(values > 0, larger, mu / (h * larger))
        least = floor if self.full else np.repeat(floor, self.dim)
        return self.numbers((axes * np.maximum(values, least[:, None])[:, None, :]) @ axes.swapaxes(1, 2))


def unbound(curvature: Floats, slope: Floats) -> Floats:
    """Take Newton's step wherever it leads. Raises `LinAlgError` if the curvature is not positive."""
    # Symmetric, so its transpose will do, which LAPACK need not turn around.
    factor = cho_factor(curvature.T, lower=True, check_finite=False)
    return np.asarray(cho_solve(factor, slope, check_finite=False))


def climb(
    curvature: Floats, slope: Floats, step: Floats, numbers: Floats, cone: Cone, floor: Floats
) -> tuple[Floats, float]:
    """Take Newton's step within the cone. Gives the step (f,) and the log likelihood that it promises.

    curvature (f, f), slope (f,), and the ``step`` of them that is `unbound`; numbers (p,) are the present values of the
    last p parameters, which the cone is about; floor (k,) is a covariance that counts as small.
    """
    split = len(slope) - len(numbers)
    promise = float(0.5 * slope @ step)
    if not math.isfinite(promise):
        raise ArithmeticError("a Newton step that promises no finite gain")
    if cone.inside(numbers + step[split:]):
        return step, promise
    free, kept = slice(0, split), slice(split, None)
    factor = cho_factor(curvature[free, free])
    # What the free parameters do, given the others, is known: only the others are searched.
    across = cho_solve(factor, curvature[free, kept])
    alone = cho_solve(factor, slope[free])
    reduced = curvature[kept, kept] - curvature[kept, free] @ across
    pull = slope[kept] - curvature[kept, free] @ alone
    gap = max(_FIRST_GAP * promise, _LEAST_GAP)
    mu = gap / (cone.k * cone.dim)
    start = cone.lifted(numbers + step[kept], reduced, mu, floor)
    target = pull + reduced @ numbers
    for found in _path(reduced, target, start, cone, mu):
        moved = found - numbers
        step = np.concatenate([alone - across @ moved, moved])
        gain = float(slope @ step - 0.5 * step @ curvature @ step)
        if gap <= max(_LEAST_GAP, _GAP * gain):
            break
        gap *= _SHARPER
    return step, gain


def _path(reduced: Floats, target: Floats, here: Floats, cone: Cone, mu: float) -> Iterator[Floats]:
    """Follow the maxima of target^T s - 1/2 s^T reduced s + mu log det s as mu falls."""
    while True:
        for _ in range(_MOST_STEPS):
            lean, bend = cone.barrier(here)
            gradient = target - reduced @ here + mu * lean
            whole, size = reduced.copy(), bend.shape[1]
            for j, block in enumerate(bend):
                own = slice(j * size, (j + 1) * size)
                whole[own, own] += mu * block
            step = unbound(whole, gradient)
            here = here + min(1.0, _INSIDE * cone.reach(here, step)) * step
            if 0.5 * gradient @ step < _CENTRED * mu * cone.k * cone.dim:
                break
        yield here
        mu *= _SHARPER
