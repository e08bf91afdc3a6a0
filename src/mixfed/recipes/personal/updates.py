"""The server's mathematics of personal models: from the sums over clients to the next candidates, and to the maximum.

The value of a mixture is its marginal log likelihood with the penalty on noise of `recipes.updates`. Steps are
Newton's, within the cone of covariances (`psd_newton`), with the information

    (1 - h) Fisher's + h (observed - missing)

at several h, all asked about in one exchange. At h = 0 it is Fisher scoring for known memberships; h = 1 is Newton's
own step. EM is among the trials, for its step follows from the scores alone and does not fail:
Psi + Psi S Psi / n, where S is the sum over the n clients of u u^T - A.
"""

import dataclasses

import numpy as np
from scipy.linalg import block_diag

from ...core.arrays import Floats
from ...core.symmetric import doubled, packed, paired, triangle, unpacked
from ...exchange.random_effects import RandomEffects
from ...exchange.units import StandardUnits
from ..updates import RIDGE, SMALLEST_SHARE, after_step
from .fitted import Fitted, added_rows, gradient, information
from .free_parameters import FreeParameters
from .psd_newton import unbound

OBSERVED_SHARE = (0.0, 0.8, 1.0)
"""h: how far the information is the observed one, with the missing one taken off."""
_LARGEST = 1e6
"""A Psi beyond this, in units of the pooled residual, is a step that went astray; sums about it would not be finite."""
_LEAST_BEND = 0.05
"""Where the likelihood bends less than this share of what Fisher's information says, the step is no longer."""


def em_step(found: Fitted) -> RandomEffects:
    """Take a step of EM: models by generalised least squares, Psi and noise by their expectations."""
    mixture, reply, rules = found.mixture, found.reply, found.rules
    _, k, dim = mixture.theta.shape
    gram = unpacked(reply.gram[0], dim) + RIDGE * np.exp(-mixture.log_variance[0])[:, None, None] * np.eye(dim)
    theta = mixture.theta[0] + np.linalg.solve(gram, reply.score[0, :, :dim, None])[..., 0]
    variance, added = np.exp(mixture.log_variance[0]), added_rows(k)
    # E[noise] of all rows is their variance plus twice the derivative by its logarithm.
    squares = reply.rows[0] * variance + 2.0 * variance * reply.score[0, :, dim] + added * rules.prior_variance
    rows = reply.rows[0] + added
    if rules.shared_noise:
        squares, rows = np.full(k, squares.sum()), np.full(k, rows.sum())
    share = np.maximum(reply.clients[0] / reply.clients[0].sum(), SMALLEST_SHARE)
    clients = np.maximum(reply.clients[0], 1e-9)[:, None]
    slope, covariance = reply.score[0, :, dim + 2 :], mixture.covariance[0]
    if found.full:
        slope = unpacked(slope / (0.5 * doubled(dim)), dim)
        whole = unpacked(covariance, dim)
        moved = packed(whole + whole @ slope @ whole / clients[:, :, None])
    else:
        moved = covariance + 2.0 * covariance**2 * slope / clients
    log_variance = np.log(np.maximum(squares / rows, 1e-3 * variance))
    return RandomEffects(theta[None], log_variance[None], np.log(share / share.sum())[None], moved[None])


def count_parameters(found: Fitted) -> int:
    """Count the parameters of a mixture; columns that are left out have no deviations."""
    return int(FreeParameters(found).slope.size)


def cost_of_diagonal(units: StandardUnits, found: Fitted) -> float:
    """Say how much a full Psi gains over a diagonal one if the likelihood is quadratic; 0 where it bends upwards."""
    free = FreeParameters(found)
    columns = np.linalg.pinv(units.whiten)[:, units.inverse_sd > 0]
    rows, others = triangle(units.dim)
    own = columns[rows] * columns[others]  # the numbers of a full Psi for each of a diagonal one, (v, D)
    ways = block_diag(np.eye(free.split), *[own] * free.k)
    start = np.concatenate([np.zeros(free.split), -free.numbers.ravel()])  # all deviations taken away
    curvature = free.curvature(1.0)
    try:
        best = start + ways @ unbound(ways.T @ curvature @ ways, ways.T @ (free.slope - curvature @ start))
    except np.linalg.LinAlgError:
        return 0.0
    return -free.gain(best)


def model_covariance(found: Fitted) -> Floats | None:
    """Invert the observed information: covariances of each kind's theta, (k, d, d); None if it has no inverse."""
    k, dim = found.mixture.theta[0].shape
    free = FreeParameters(found)
    try:
        whole = free.curvature_along(free.faces(), 1.0)
        inverse = unbound(whole, np.eye(len(whole))[:, : k * dim])
    except np.linalg.LinAlgError:
        return None
    return np.stack([inverse[j : j + dim, j : j + dim] for j in range(0, k * dim, dim)])


def learned(before: Fitted, here: Fitted) -> Fitted:
    """Correct the information by how much the slope has changed on the way here: the step of BFGS."""
    step = _flat(here.mixture) - _flat(before.mixture)
    change, predicted = gradient(before) - gradient(here), information(here, 1.0) @ step
    seen, expected = float(change @ step), float(step @ predicted)
    if min(seen, expected) <= _LEAST_BEND * max(seen, expected):
        return here
    correction = np.outer(predicted, predicted) / expected - np.outer(change, change) / seen
    missing = here.reply.missing + paired(correction, here.mixture.theta.shape[1])
    return dataclasses.replace(here, reply=dataclasses.replace(here.reply, missing=missing))


def _flat(mixture: RandomEffects) -> Floats:
    """Give the numbers of a mixture in the order of its score, (k q,)."""
    parts = (mixture.theta[0], mixture.log_variance[0, :, None], mixture.log_weight[0, :, None], mixture.covariance[0])
    return np.concatenate(parts, axis=1).ravel()


def newton_steps(
    found: Fitted, observed_shares: tuple[float, ...], *, bold: bool = False, every: bool = False
) -> tuple[RandomEffects, float]:
    """Take the Newton step of the largest h that gives one, or of ``every`` h. A ``bold`` one does not count as such.

    Gives also what the full step promises; infinite without it.
    """
    free = FreeParameters(found)
    steps, newton_decrement = [], np.inf
    for observed_share in sorted(observed_shares, reverse=True):
        try:
            if observed_share == 1.0:
                step, newton_decrement = free.newton(bold)
            else:
                step, _ = free.in_cone(observed_share)
        except np.linalg.LinAlgError:
            continue
        moved = _moved(found.mixture, (free.reduce @ step).reshape(free.k, -1), found.full)
        if not np.abs(moved.covariance).max() <= _LARGEST:
            newton_decrement = np.inf if observed_share == 1.0 else newton_decrement
            continue
        steps.append(moved)
        if not every and (observed_share < 1.0 or np.isfinite(newton_decrement)):
            break
    return RandomEffects.stack([found.mixture.pick([]), *steps[::-1]]), newton_decrement


def _moved(mixture: RandomEffects, step: Floats, full: bool) -> RandomEffects:
    """Move a mixture by a step (k, q), a diagonal Psi to 0 at most."""
    split = mixture.theta.shape[-1] + 2
    plain, covariance = after_step(mixture.plain, step[:, :split]), mixture.covariance + step[None, :, split:]
    covariance = covariance if full else np.maximum(covariance, 0.0)
    return RandomEffects(plain.theta, plain.log_variance, plain.log_weight, covariance)
