"""Single clients' log likelihoods to second order, for families in which they are not quadratic.

A client with rows z (n, r) and pooled predictors eta_0 is seen around its own ridge fit t, which maximises
l(t) - t^T P t / 2 with l(t) = sum of a row's log likelihood at eta_0 + z t:

    l(t + h) = l + g^T h - h^T H h / 2,   g = sum u z,   H = sum w z z^T.

Written around 0 that is c + b^T t - t^T H t / 2, and -2 c, b, H have the form of normal equations: a sum of squares,
cross products and second moments.

Shapes: n rows, m clients, D columns with the intercept, r columns of a basis.
"""

import numpy as np

from ...core.arrays import Array, Floats, Ints
from ...core.symmetric import packed, unpacked
from ...families.base import Family
from .rows import by_client, scaled

_STEPS = 8
_LONGEST = 2.0
"""A step is no longer: far away, a quadratic that fits here is no guide."""


def expand(
    family: Family,
    phi: Array,
    y: Floats,
    offsets: Ints,
    centre: Array,
    inverse_sd: Array,
    target_centre: float,
    target_unit: float,
    model: Array,
    basis: Array,
    ridge: Floats,
    shift: Floats | None = None,
    row_weight: Floats | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Expand each client's log likelihood in a basis (D, r) around its ridge fit. model (D, 1), ridge: P, packed.

    Gives -2 c (m,), b (m, r) and H, packed (m, r (r + 1) / 2). A shift (n,) is added to every linear predictor.
    """
    x, dim = scaled(phi, centre, inverse_sd), basis.shape[1]
    z, pooled, target = x @ basis, (x @ model)[:, 0], (y - target_centre) / target_unit
    if shift is not None:
        pooled = pooled + shift
    times = np.ones(1) if row_weight is None else row_weight
    owner, penalty = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)), unpacked(ridge, dim)
    products = packed(z[:, :, None] * z[:, None, :])
    t = np.zeros((len(offsets) - 1, dim))
    for step in range(_STEPS):
        terms = family.terms(target, pooled + np.einsum("nr,nr->n", z, t[owner]), np.zeros(1))
        gram = unpacked(by_client((times * terms.weight)[:, None] * products, offsets), dim)
        slope = by_client((times * terms.score)[:, None] * z, offsets)
        if step < _STEPS - 1:
            moved = np.linalg.solve(gram + penalty, (slope - t @ penalty)[..., None])[..., 0]
            length = np.linalg.norm(moved, axis=1, keepdims=True)
            t += moved * np.minimum(1.0, _LONGEST / np.maximum(length, 1e-300))
    bent = np.einsum("mrs,ms->mr", gram, t)
    constant = by_client(times * terms.likelihood, offsets) - np.einsum("mr,mr->m", slope + 0.5 * bent, t)
    return -2.0 * constant, slope + bent, packed(gram)
