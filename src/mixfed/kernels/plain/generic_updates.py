"""Local updates at one block of clients, whatever the family of the target is: `local_updates`, whose words are used.

With u and w of a row as in `families.base.Terms` and g = sum u z, H = sum w z z^T of a client's rows at theta + shift,

    FedAvg:   shift <- shift + rate g, s times;
    FedProx:  shift <- shift + (H + I / rate)^-1 (g - shift / rate), a few times: Newton's method.

Shapes: n rows, m clients, k kinds, d features.
"""

import numpy as np

from ...core.arrays import Floats, Ints
from ...core.symmetric import packed, unpacked
from ...families.base import Family
from .local_updates import FEDPROX, NEGLIGIBLE
from .memberships import softmax
from .rows import by_client

_NEWTON_STEPS = 3


def generic_updates(
    family: Family,
    z: Floats,
    y: Floats,
    base: Floats,
    offsets: Ints,
    theta: Floats,
    log_weights: Floats,
    update: int,
    step: float,
    local_steps: int,
) -> tuple[Floats, Floats, Floats, Floats, float]:
    """Estimate memberships and move local models. theta (d, k); base (n,): what is added to every linear predictor.

    Gives what `local_updates` gives, the loss of a row being minus its log likelihood.
    """
    sizes, none = np.diff(offsets), np.zeros(1)
    likelihood = by_client(family.terms(y[:, None], base[:, None] + z @ theta, none).likelihood, offsets)
    share, whole = softmax(log_weights + likelihood)
    shift = np.zeros(theta.T.shape)
    for j in range(len(shift) if local_steps else 0):
        some = np.flatnonzero(np.repeat(share[:, j] > NEGLIGIBLE, sizes))
        kept = share[:, j] > NEGLIGIBLE
        edges = np.concatenate([[0], np.cumsum(sizes[kept])])
        rate, rows = step * share[kept, j] / sizes[kept], (z[some], y[some], (base + z @ theta[:, j])[some], edges)
        moved = _newton(family, *rows, rate) if update == FEDPROX else _descended(family, *rows, rate, local_steps)
        shift[j] = sizes[kept] @ moved
    weighed = share * np.where(share == 0.0, 0.0, -likelihood)
    return shift, sizes @ share, share.sum(axis=0), weighed.sum(axis=0), float(whole.sum())


def _descended(family: Family, z: Floats, y: Floats, eta: Floats, offsets: Ints, rate: Floats, steps: int) -> Floats:
    """FedAvg. eta (n,): linear predictors of the server's model; rate (m,) -> shift (m, d)."""
    owner, shift = np.repeat(np.arange(len(rate)), np.diff(offsets)), np.zeros((len(rate), z.shape[1]))
    for _ in range(steps):
        score = family.score(y, eta + np.einsum("nd,nd->n", z, shift[owner]))
        shift = shift + rate[:, None] * by_client(score[:, None] * z, offsets)
    return shift


def _newton(family: Family, z: Floats, y: Floats, eta: Floats, offsets: Ints, rate: Floats) -> Floats:
    """FedProx. eta (n,): linear predictors of the server's model; rate (m,) -> shift (m, d)."""
    dim, owner = z.shape[1], np.repeat(np.arange(len(rate)), np.diff(offsets))
    shift, penalty, products = np.zeros((len(rate), dim)), 1.0 / rate, packed(z[:, :, None] * z[:, None, :])
    for _ in range(_NEWTON_STEPS):
        terms = family.terms(y, eta + np.einsum("nd,nd->n", z, shift[owner]), np.zeros(1))
        gram = unpacked(by_client(terms.weight[:, None] * products, offsets), dim)
        slope = by_client(terms.score[:, None] * z, offsets) - penalty[:, None] * shift
        shift += np.linalg.solve(gram + penalty[:, None, None] * np.eye(dim), slope[..., None])[..., 0]
    return shift
