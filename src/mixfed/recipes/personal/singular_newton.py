"""Newton's own step where covariances lie on the edge of their cone: along the face that they lie on.

At a maximum with Psi singular the likelihood need not be concave in all directions, for most of them lead nowhere: with
U_n the directions in which nobody deviates, and U_r the others, Psi moves on its face by

    Psi + U_r S U_r^T + U_n T U_r^T + U_r T^T U_n^T + U_n (T Psi_r^-1 T^T) U_n^T + ...

where the last term is what T needs in order not to leave the cone. It makes T cost - <G, U_n T Psi_r^-1 T^T U_n^T>,
G being the slope by Psi, which is negative in the directions of U_n. With that, Newton's step in S and T is as quick
as it is inside of the cone.
"""

from dataclasses import dataclass

import numpy as np

from ...core.arrays import Floats
from ...core.symmetric import doubled, packed, packed_axes, triangle, unpacked

_KEPT = 0.1
"""Least share of its smallest eigenvalue that Psi keeps in a step within its face."""


@dataclass(frozen=True, eq=False)
class SingularDiagonal:
    """The directions in which one kind's Psi, a diagonal one, may move, (v, p), and what they cost, (p, p)."""

    directions: Floats
    cost: Floats
    size: Floats
    """Psi in its face: its eigenvalues, (a,)."""

    def moved(self, step: Floats) -> Floats:
        """Take a step (p,), and stay a covariance. -> (v,)."""
        return np.asarray(self.directions @ np.maximum(self.size + step, _KEPT * self.size))


@dataclass(frozen=True, eq=False)
class SingularFace(SingularDiagonal):
    """The same for any Psi."""

    within: Floats
    """U_r, (d, a)."""
    outside: Floats
    """U_n, (d, n)."""

    def moved(self, step: Floats) -> Floats:
        """Take a step (p,), and stay a covariance. -> (v,)."""
        a = len(self.size)
        if a == 0:  # nobody deviates at all
            return np.zeros(len(self.directions))
        inner = a * (a + 1) // 2
        psi = np.diag(self.size) + unpacked(step[:inner], a)
        values, axes = np.linalg.eigh(psi)
        values = np.maximum(values, _KEPT * self.size.min())
        psi, inverse = (axes * values) @ axes.T, (axes / np.where(values > 0, values, 1.0)) @ axes.T
        turned = self.within + self.outside @ step[inner:].reshape(-1, a) @ inverse
        return packed(turned @ psi @ turned.T)


def singular_face(numbers: Floats, slope: Floats, fisher: Floats, dim: int) -> SingularFace:
    """Find the face of a full Psi, numbers (v,), given the slope (v,) and Fisher's information (v, v) by them.

    A direction counts as one in which nobody deviates if a step along it alone would lead out of the cone. Raises
    `LinAlgError` if the slope says that such directions, together, lead inside after all.
    """
    values, axes = np.linalg.eigh(unpacked(numbers, dim))
    gradient = unpacked(slope / doubled(dim), dim)
    along = packed_axes(axes)  # (d, v)
    promise = along @ slope
    bend = np.einsum("dv,vw,dw->d", along, fisher, along)
    gone = values * bend + promise <= 0
    within, outside, size = axes[:, ~gone], axes[:, gone], values[~gone]
    pull = outside.T @ gradient @ outside
    if (gone.any() and np.linalg.eigvalsh(pull).max() > 0) or (size <= 0).any():
        raise np.linalg.LinAlgError("the covariance does not lie on a face")
    a, n = len(size), int(gone.sum())
    rows, columns = triangle(a)
    inner = within[:, rows].T[:, :, None] * within[:, columns].T[:, None, :]
    inner = np.where((rows == columns)[:, None, None], inner, inner + inner.swapaxes(1, 2))
    outer = np.einsum("dn,ea->nade", outside, within).reshape(n * a, dim, dim)
    outer = outer + outer.swapaxes(1, 2)
    cost = np.zeros((len(rows) + n * a,) * 2)
    cost[len(rows) :, len(rows) :] = -2.0 * np.kron(pull, np.diag(1.0 / size))
    return SingularFace(packed(np.concatenate([inner, outer])).T, cost, size, within, outside)


def singular_diagonal(numbers: Floats, slope: Floats, fisher: Floats) -> SingularDiagonal:
    """Find the face of a diagonal Psi, (v,): a number that is drawn below 0 is 0, and stays there."""
    kept = numbers * np.diag(fisher) + slope > 0
    unit = np.eye(len(numbers))[:, kept]
    return SingularDiagonal(unit, np.zeros((unit.shape[1],) * 2), numbers[kept])
