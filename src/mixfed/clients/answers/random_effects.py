"""What clients say of mixtures of linear mixed models, and how well their rows predict each other."""

from functools import reduce
from types import ModuleType

import numpy as np

from ...core.arrays import Floats
from ...core.symmetric import unpacked
from ...exchange.random_effects import LeaveOut, LeftOutSum, RandomEffectsReply, RandomEffectsSums, roots
from ..blocks import over_blocks, summed
from ..packed import Clients
from ..store import ClientData
from .dispatch import answer_all


@answer_all.register
def _random_effects_sums(query: RandomEffectsSums, clients: ClientData, kernels: ModuleType) -> RandomEffectsReply:
    """Sum over clients in the units of Psi."""
    units, candidates, full = query.units, query.candidates, query.full
    count, k, dim = candidates.theta.shape
    theta, covariance = candidates.theta.reshape(count * k, dim), candidates.covariance.reshape(count * k, -1)
    if not full:
        theta = theta @ units.whiten.T
    width = theta.shape[1]
    matrices = unpacked(covariance, width) if full else covariance[:, None, :]
    # One layout of every array: each other one would be compiled for itself.
    theta, matrices, log_variance, log_weight, whiten = map(
        np.ascontiguousarray, (theta, matrices, candidates.log_variance, candidates.log_weight, units.whiten)
    )
    arguments = (units.centre, units.inverse_sd, units.slope, np.array([units.target_centre, units.scale]), whiten)
    informed = np.full(count, -1)
    informed[list(query.informed)] = np.arange(len(query.informed))

    def one(block: Clients) -> tuple[Floats, ...]:
        mixture = (theta, matrices, full, log_variance, log_weight)
        rows = block.phi, block.y, block.offsets
        sums: tuple[Floats, ...] = kernels.random_effects_sums(*rows, *arguments, *mixture, informed, query.fisher)
        return sums

    def both(first: tuple[Floats, ...], second: tuple[Floats, ...]) -> tuple[Floats, ...]:
        for total, more in zip(first, second, strict=True):
            total += more  # in place: the information is large
        return first

    likelihood, people, rows, gram, score, overlap, *rest, missing = reduce(both, over_blocks(one, clients))
    information: tuple[Floats, Floats] = kernels.information(
        candidates.log_variance, query.informed, full, query.fisher, gram, score, *rest
    )
    return RandomEffectsReply(
        likelihood,
        people.reshape(count, k),
        rows.reshape(count, k),
        gram.reshape(count, k, -1),
        score.reshape(count, k, -1),
        overlap,
        *information,
        missing,
    )


@answer_all.register
def _leave_out(query: LeaveOut, clients: ClientData, kernels: ModuleType) -> LeftOutSum:
    candidates = query.candidates
    theta = candidates.theta.reshape(-1, query.units.dim)
    covariance = roots(query.units, candidates.covariance.reshape(len(theta), -1), query.full)
    models, covariance, log_variance, log_weight = map(
        np.ascontiguousarray, (theta.T, covariance, candidates.log_variance, candidates.log_weight)
    )

    def one(block: Clients) -> LeftOutSum:
        z, y = query.units.standardise(block.design, block.y)
        mixture = (models, covariance, log_variance, log_weight)
        return LeftOutSum(*kernels.leave_one_out(np.ascontiguousarray(z), y, block.offsets, *mixture, query.small))

    return summed(one, clients)
