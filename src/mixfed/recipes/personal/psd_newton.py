"""Newton's step when some parameters make up covariances, which may not be negative in any direction.

    maximise  g^T s - 1/2 s^T H s   subject to   Psi_j + s_j >= 0 for every kind j

A covariance may well end on the edge, with no deviation in some direction at all. So the quadratic problem is solved as
it stands. Beside the covariances X_j there are their prices, matrices Z_j > 0. At the maximum with + mu log det X_j
added, Z_j X_j is mu; both are led along such maxima as mu falls, by Newton's steps in units in which X_j and Z_j are
the same (Nesterov and Todd's), so that directions about to vanish can turn, too. Once the slope is that of - tr X_j
Z_j, the sum of tr X_j Z_j bounds what is still to be gained. Like Newton's own step it does not depend on units.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from ...core.arrays import Floats
from ...core.symmetric import doubled, packed, packed_axes, triangle, unpacked

_SHARPER = 0.1
"""How much a step lets mu fall, if it can be taken whole."""
_MOST_STEPS = 100
"""As a rule there are three."""
_LEAST_GAP, _GAP = 1e-9, 0.1
"""The step may miss so much of log likelihood, or so much of what it gains."""
_INSIDE = 0.95
"""Share of the way to the edge that is gone at most."""


@dataclass(frozen=True)
class PsdConstraint:
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

    def priced(self, prices: Floats) -> Floats:
        """Turn matrices Z (k, d, d) into the numbers (p,) by which z^T x is the sum of tr Z_j X_j."""
        return self.numbers(prices) * (np.tile(doubled(self.dim), self.k) if self.full else 1.0)

    def curvature(self, matrices: Floats) -> Floats:
        """Say what tr X_j M_j X_j M_j is of the numbers of X_j: a block for each of the matrices M (k, d, d)."""
        if not self.full:
            return matrices**2
        rows, columns = triangle(self.dim)
        times, blocks = doubled(self.dim), []
        for own in matrices:
            # tr(E_p M E_q M): M has rows of rows, rows of columns and so on.
            upper, lower = own[rows], own[columns]
            blocks.append(upper[:, rows] * lower[:, columns] + upper[:, columns] * lower[:, rows])
        return np.asarray(0.5 * times[:, None] * times * np.stack(blocks))

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


def maximise_barrier(
    curvature: Floats, slope: Floats, step: Floats, numbers: Floats, cone: PsdConstraint, floor: Floats
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
    least = max(promise, _LEAST_GAP) / (cone.k * cone.dim)
    start = cone.lifted(numbers + step[kept], reduced, least, floor)
    missed = start - numbers - step[kept]
    mu = max(least, 0.5 * missed @ reduced @ missed / (cone.k * cone.dim))
    target = pull + reduced @ numbers
    for found, gap in _path(reduced, target, start, cone, mu):
        moved = found - numbers
        step = np.concatenate([alone - across @ moved, moved])
        gain = float(slope @ step - 0.5 * step @ curvature @ step)
        if gap <= max(_LEAST_GAP, _GAP * gain):
            break
    return step, gain


def _path(
    reduced: Floats, target: Floats, here: Floats, cone: PsdConstraint, mu: float
) -> Iterator[tuple[Floats, float]]:
    """Follow the maxima of target^T x - 1/2 x^T reduced x + mu log det x as mu falls. Gives x and what it misses."""
    prices, exact = mu * np.linalg.inv(cone.matrices(here)), False
    for _ in range(_MOST_STEPS):
        root, price_root = np.linalg.cholesky(cone.matrices(here)), np.linalg.cholesky(prices)
        into, price_into = np.linalg.inv(root), np.linalg.inv(price_root)
        _, size, axes = np.linalg.svd(price_root.swapaxes(1, 2) @ root)
        half = (axes @ into).swapaxes(1, 2)
        scale = (half * size[:, None, :]) @ half.swapaxes(1, 2)
        pull = _SHARPER * (size**2).mean() * into.swapaxes(1, 2) @ into
        whole = reduced.copy()
        for j, block in enumerate(cone.curvature(scale)):
            own = slice(j * len(block), (j + 1) * len(block))
            whole[own, own] += block
        step = unbound(whole, target - reduced @ here + cone.priced(pull))
        moved = cone.matrices(step)
        change = pull - prices - scale @ moved @ scale
        share = min(1.0, _INSIDE * min(_reach(into, moved), _reach(price_into, change)))
        here, prices, exact = here + share * step, prices + share * change, exact or share == 1.0
        yield here, float((cone.matrices(here) * prices).sum()) if exact else np.inf


def _reach(into: Floats, step: Floats) -> float:
    """Say how often matrices (k, d, d) whose roots are undone by ``into`` can take a step before one has no root."""
    least = float(np.linalg.eigvalsh(into @ step @ into.swapaxes(1, 2)).min())
    return np.inf if least >= 0 else -1.0 / least
