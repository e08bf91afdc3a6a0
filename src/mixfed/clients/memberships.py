"""Every client's memberships in the kinds of a mixture. They stay with the clients: no query asks for them.

How they are computed is in `kernels.plain.memberships`.
"""

from typing import Any

import numpy as np

from ..core.arrays import Array, Floats
from ..core.threads import one_blas_thread
from ..exchange.local_update import Mixture
from ..families.base import SQUARED, Family
from ..families.gaussian import GAUSSIAN
from ..kernels import plain
from .blocks import over_blocks
from .packed import Clients
from .store import ClientData


def memberships(mixture: Mixture, clients: ClientData, hard: bool = False, family: Family = GAUSSIAN) -> Floats:
    """Give every client's memberships, (n_clients, k). They stay with the clients: no query asks for them."""
    # In units of the noise: squares of a target in units of its own may overflow.
    unit = mixture.noise.max()
    scaled = Mixture(mixture.theta / unit, mixture.weights, mixture.noise / unit)

    def one(block: Clients) -> Floats:
        # In double precision, whatever that of the rows: here nothing is centred, and an offset would cost the digits.
        phi, y, offsets = block.design.astype(np.float64, copy=False), block.y / unit, block.offsets
        return plain.memberships(phi, y, offsets, *mixture_arguments(scaled, phi.dtype), hard, SQUARED.code)[0]

    def of_family(block: Clients) -> Floats:
        eta = block.design.astype(np.float64, copy=False) @ mixture.theta.T
        if block.offset is not None:
            eta += block.offset[:, None]
        log_dispersion = 2.0 * np.log(np.broadcast_to(mixture.noise, mixture.weights.shape))
        rows = family.terms(block.y[:, None], eta, log_dispersion).likelihood
        if block.weight is not None:
            rows = block.weight[:, None] * rows
        logs = plain.by_client(rows, block.offsets)
        logs += mixture_arguments(mixture, np.float64)[1]
        return plain.hardest(logs)[0] if hard else plain.softmax(logs)[0]

    def each(block: Clients) -> Floats:
        block = block.of_family(family)
        return one(block) if family is GAUSSIAN and block.weight is None else of_family(block)

    with one_blas_thread():
        return np.concatenate(list(over_blocks(each, clients)))


def mixture_arguments(mixture: Mixture, precision: Any) -> tuple[Array, Floats, Floats]:
    """Give the models (d, k) in the precision of the rows, log weights and noise."""
    with np.errstate(divide="ignore"):
        log_weights = np.log(mixture.weights)
    return np.ascontiguousarray(mixture.theta.T, dtype=precision), log_weights, mixture.noise


def own_effects(
    mixture: Mixture, factor: Floats, clients: ClientData, uncertainty: bool
) -> tuple[Floats, Floats, Floats]:
    """Give every client's memberships (c, k), means (c, k, r) and packed covariances (c, k, r (r + 1) / 2) of its c.

    factor (k, D, r). Without ``uncertainty`` there are no covariances, (c, k, 0).
    """
    unit = mixture.noise.max()  # in units of the noise: squares of a target in units of its own may overflow
    with np.errstate(divide="ignore"):
        log_weight = np.log(mixture.weights)
    theta, factor = np.ascontiguousarray(mixture.theta / unit), np.ascontiguousarray(factor / unit)
    variance = (mixture.noise / unit) ** 2

    def one(block: Clients) -> tuple[Floats, Floats, Floats]:
        design = np.ascontiguousarray(block.design, dtype=np.float64)
        found: tuple[Floats, Floats, Floats] = plain.client_effects(
            design, block.y / unit, block.offsets, theta, factor, variance, log_weight, uncertainty
        )
        return found

    with one_blas_thread():
        parts = list(over_blocks(one, clients))
    share, mean, covariance = (np.concatenate(part) for part in zip(*parts, strict=True))
    return share, mean, covariance
